//! Owners that a tenant writes keep no pod running, and stop no pods of others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{Output, UNDYING, eventually};
use tenure_tests::{
    DEADLINE, fixtures,
    keeper::Metrics,
    tenant::Tenant,
    workloads::{Namespace, bare_pod, controller, distinct, owned, workload},
};

use crate::{assert_untouched, await_ended, in_both, up};

const REPLICAS: &str = "spec.replicas";

fn in_short() -> Value {
    json!({"kai.scheduler/queue": "short"})
}

/// A reference to a controller, whether or not there is one.
pub fn claim(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: uid.into(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

/// A pod of the tenant in queue `short`, with this controller.
async fn pod_of(tenant: &Tenant<'_>, name: &str, spec: &Value, owner: OwnerReference) -> DynamicObject {
    let pod = distinct(bare_pod(tenant.name(), name, &in_short(), spec), name);
    tenant.create(&owned(pod, &[owner])).await
}

/// A Deployment of the tenant with two pods in a queue.
async fn deployment(tenant: &Tenant<'_>, name: &str, queue: &str, spec: &Value) -> DynamicObject {
    let labels = json!({"kai.scheduler/queue": queue});
    tenant.create(&distinct(workload("Deployment", tenant.name(), name, &labels, spec), name)).await
}

/// Waits until an owner is paused, within the ceiling and a minute.
async fn await_paused(tenant: &Tenant<'_>, owner: &DynamicObject, field: &str, value: Value) {
    let paused = async || Ok((tenant.field(owner, field).await == value).then_some(()));
    eventually(&format!("{} to be paused", owner.name_any()), DEADLINE + DEADLINE / 3, paused).await.unwrap();
}

/// Waits until pods have ended whose owners can't be paused: the ceiling, and all tries.
async fn await_ended_after_all_tries(tenant: &Tenant<'_>, pods: &[String]) {
    let ended = async || {
        let live = live_pods(tenant).await;
        Ok(pods.iter().all(|pod| !live.contains(pod)).then_some(()))
    };
    eventually("the pods to end", 3 * DEADLINE, ended).await.unwrap();
}

/// The uids of the pods that don't terminate.
async fn live_pods(tenant: &Tenant<'_>) -> Vec<String> {
    tenant.pods().await
}

async fn await_pods(tenant: &Tenant<'_>, count: usize) -> Vec<String> {
    let all = async || Ok(Some(live_pods(tenant).await).filter(|pods| pods.len() == count));
    eventually("the pods", DEADLINE, all).await.unwrap()
}

#[tokio::test]
async fn owner_that_would_exempt_a_pod_and_does_not_exist_keeps_it_no_longer() {
    let world = up().await;
    let tenant = &Tenant::new(world).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    let node = Namespace::of(world, tenant.name()).find(&serde_json::from_value(node).unwrap()).await;
    let mut pods = Vec::new();
    for (name, owner) in [
        ("daemon", claim("invented.example.org/v1", "DaemonSet", "daemons", "d")),
        ("static", claim("invented.example.org/v1", "Node", "node-1", "n")),
        ("of-node", controller(&node)),
    ] {
        pods.push(pod_of(tenant, name, &Value::Null, owner).await);
    }
    for pod in &pods {
        await_ended(tenant, pod).await;
    }
}

#[tokio::test]
async fn owner_that_the_api_server_can_not_show_ends_the_chain() {
    let tenant = &Tenant::new(up().await).await;
    let long = format!("{}/v1", "a".repeat(66_000));
    let mut pods = Vec::new();
    for (name, owner) in [
        ("long", claim(&long, "Job", "a", "u")),
        // kinds that can be created and not read
        ("binding", claim("v1", "Binding", "a", "u")),
        ("review", claim("authentication.k8s.io/v1", "TokenReview", "a", "u")),
    ] {
        pods.push(pod_of(tenant, name, &Value::Null, owner).await);
    }
    for pod in &pods {
        await_ended(tenant, pod).await;
    }
}

#[tokio::test]
async fn exempt_pod_whose_owner_can_not_be_read_blocks_no_pause() {
    let world = up().await;
    let tenant = &Tenant::new(world).await;
    let broken = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.broken.example.com"},
        "spec": {
            "group": "broken.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": tenant.name(), "name": "nothing"},
        },
    });
    world.apply(&broken).await;
    let critical = json!({"priorityClassName": "system-cluster-critical"});
    pod_of(tenant, "critical", &critical, claim("broken.example.com/v1", "Thing", "thing", "t")).await;
    let ours = deployment(tenant, "ours", "short", &Value::Null).await;
    let pod =
        pod_of(tenant, "alone", &Value::Null, claim("broken.example.com/v1", "Thing", "thing", "t")).await;
    // and one that claims to be a pod of the Deployment
    pod_of(tenant, "claims", &critical, controller(&ours)).await;
    await_paused(tenant, &ours, REPLICAS, json!(0)).await;
    await_ended(tenant, &pod).await;
    world.cluster.kubectl(&["delete", "apiservice", "v1.broken.example.com"]).await.unwrap();
}

#[tokio::test]
async fn deployment_that_finalizers_hold_in_deletion_keeps_no_pod() {
    let tenant = &Tenant::new(up().await).await;
    let mut held = workload("Deployment", tenant.name(), "held", &in_short(), &Value::Null);
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    let held = tenant.create(&distinct(held, "held")).await;
    let pods = await_pods(tenant, 2).await;
    tenant.delete(&held).await;
    await_ended_after_all_tries(tenant, &pods).await;
    tenant.patch(&held, &json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn pod_whose_owner_is_set_back_again_and_again_is_deleted() {
    let tenant = &Tenant::new(up().await).await;
    let owner = tenant.chain(&[("batch.tensorstack.dev/v1beta1", "GenericJob")]).await.remove(0);
    let pod = pod_of(tenant, "looped", &Value::Null, controller(&owner)).await;
    let set_back = async {
        loop {
            let run = json!({"spec": {"runMode": {"pause": {"enabled": false}}}});
            let _ = tenant.try_patch(&owner, &run).await;
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    let uid = [pod.uid().unwrap()];
    tokio::select! {
        () = await_ended_after_all_tries(tenant, &uid) => {}
        () = set_back => {}
    }
}

#[tokio::test]
async fn pod_that_claims_a_strangers_owner_stops_itself_alone() {
    let world = up().await;
    let tenant = &Tenant::new(world).await;
    let neighbour = deployment(tenant, "neighbour", "long", &Value::Null).await;
    let theirs = await_pods(tenant, 2).await;
    let fleet = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "spec": {}, "metadata": {"name": tenant.name()}});
    let fleet = tenant.as_admin().create(&fleet).await;
    let one = async |resource: &str| -> DynamicObject {
        let list = tenant.kubectl(&["get", resource, "-o", "json"], "").await.success().unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        serde_json::from_value(list["items"][0].clone()).unwrap()
    };
    let (set, pod) = (one("replicaset").await, one("pods").await);
    let mut pods = Vec::new();
    let claimed = [("of-deployment", &neighbour), ("of-fleet", &fleet), ("of-set", &set), ("of-pod", &pod)];
    for (name, owner) in claimed {
        let mut pod = distinct(bare_pod(tenant.name(), name, &in_short(), &Value::Null), name);
        pod["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "1s"});
        pods.push(tenant.create(&owned(pod, &[controller(owner)])).await);
    }
    for pod in &pods {
        await_ended(tenant, pod).await;
    }
    assert_eq!(tenant.field(&neighbour, REPLICAS).await, json!(2));
    assert_eq!(tenant.as_admin().field(&fleet, "spec.suspend").await, Value::Null);
    let live = live_pods(tenant).await;
    assert!(theirs.iter().all(|pod| live.contains(pod)), "{theirs:?} {live:?}");
    assert_untouched(tenant, &neighbour).await;
}

#[tokio::test]
async fn owner_that_no_patch_fits_into_keeps_no_pod() {
    let tenant = &Tenant::new(up().await).await;
    // the second name reads like the field of an error that another object has taken its place
    for name in ["full", "metadata.uid"] {
        let mut full = workload("Deployment", tenant.name(), name, &in_short(), &Value::Null);
        full["metadata"]["annotations"] = json!({"example.com/full": "x".repeat(262_000)});
        tenant.create(&distinct(full, name)).await;
    }
    let pods = await_pods(tenant, 4).await;
    await_ended_after_all_tries(tenant, &pods).await;
}

#[tokio::test]
async fn job_that_is_no_owner_of_a_deployment_does_not_stand_in_for_it() {
    let tenant = &Tenant::new(up().await).await;
    let mut job = workload("Job", tenant.name(), "shield", &json!({}), &Value::Null);
    job["spec"]["managedBy"] = json!("example.com/missing");
    let job = tenant.create(&distinct(job, "shield")).await;
    let shielded = workload("Deployment", tenant.name(), "shielded", &in_short(), &Value::Null);
    let shielded = tenant.create(&owned(distinct(shielded, "shielded"), &[controller(&job)])).await;
    await_paused(tenant, &shielded, REPLICAS, json!(0)).await;
    assert_eq!(tenant.field(&job, "spec.suspend").await, json!(false));
    // the event says which pod it was, and of which queue
    let recorded = async || {
        let events = tenant.kubectl(&["get", "events.events.k8s.io", "-o", "json"], "").await.success()?;
        let events: Value = serde_json::from_str(&events)?;
        let of_pause = |event: &&Value| event["reason"] == "MaxDurationExceeded";
        Ok(events["items"].as_array().unwrap().iter().find(of_pause).cloned())
    };
    let event = eventually("the event", DEADLINE, recorded).await.unwrap();
    assert_eq!(event["regarding"]["name"], "shielded");
    assert!(event["related"]["name"].as_str().unwrap().starts_with("shielded-"), "{event}");
    assert_eq!(event["metadata"]["annotations"]["tenure.dev/queue"], "short");
}

#[tokio::test]
async fn grace_period_of_a_year_or_a_billion_ends_within_the_bound_after_each_deletion() {
    let world = up().await;
    let tenant = &Tenant::new(world).await;
    let year = 365 * 24 * 60 * 60;
    // in nanoseconds it is more than 64 bits hold, so that the API server deletes the pod in the past
    let overflows = 36_028_797_018_960_368_i64;
    let cases = [
        ("expires", year),
        ("deleted-before", year),
        ("expires-overflows", overflows),
        ("deleted-before-overflows", overflows),
    ];
    let mut pods = Vec::new();
    for (name, grace) in cases {
        let spec = json!({"terminationGracePeriodSeconds": grace});
        let labels = json!({"kai.scheduler/queue": "short", UNDYING: ""});
        let pod = tenant.create(&distinct(bare_pod(tenant.name(), name, &labels, &spec), name)).await;
        let on_node = async || Ok(tenant.field(&pod, "spec.nodeName").await.is_string().then_some(()));
        eventually("the pod to be bound", DEADLINE, on_node).await.unwrap();
        if name.starts_with("deleted-before") {
            tenant.delete(&pod).await;
            let shown = tenant.field(&pod, "metadata.deletionGracePeriodSeconds").await;
            assert_eq!(shown, json!(grace), "nothing ends it here but the keeper");
        }
        pods.push(pod);
    }
    for pod in &pods {
        let shortened = async || {
            let grace = tenant.field(pod, "metadata.deletionGracePeriodSeconds").await;
            Ok(grace.as_i64().is_some_and(|grace| (1..=60).contains(&grace)).then_some(()))
        };
        eventually("its grace period to be shortened", 2 * DEADLINE, shortened).await.unwrap();
    }
    // the keeper's own deletions have the bound from the start
    let counted = async || {
        let shortened =
            Metrics::of_world(world).await.count("tenure_keeper_shortened_terminations_total", &[]);
        Ok((shortened >= 2).then_some(shortened))
    };
    assert_eq!(eventually("both to be counted", DEADLINE, counted).await.unwrap(), 2);
}

/// A kubelet lets the containers of a pod that is gone run on for the pod's whole grace period.
#[tokio::test]
async fn pod_with_a_long_grace_period_is_not_removed_before_its_containers_have_ended() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let pod = async |name: &str, spec: &Value| {
            let labels = json!({"kai.scheduler/queue": "long", UNDYING: ""});
            let pod = tenant.create(&distinct(bare_pod(tenant.name(), name, &labels, spec), name)).await;
            let on_node = async || Ok(tenant.field(&pod, "spec.nodeName").await.is_string().then_some(()));
            eventually("the pod to be bound", DEADLINE, on_node).await.unwrap();
            pod
        };
        let force = async |name: &str, more: &[&str]| {
            let delete = ["delete", "pod", name, "--force", "--grace-period=0", "--wait=false"];
            tenant.kubectl(&[&delete[..], more].concat(), "").await
        };
        let delete = async |name: &str, grace: &str| {
            let delete = ["delete", "pod", name, grace, "--wait=false"];
            tenant.kubectl(&delete, "").await.success().unwrap()
        };
        let is_refused = |tried: &Output| {
            tried.stderr.contains("gracePeriodSeconds: Invalid value: 0: must be at least 1")
        };
        let year = json!({"terminationGracePeriodSeconds": 365 * 24 * 60 * 60});
        let (by_spec, by_deletion) = (pod("by-spec", &year).await, pod("by-deletion", &Value::Null).await);
        let usual = pod("usual", &Value::Null).await;
        eventually("the policy to be enforced", DEADLINE, async || {
            Ok(is_refused(&force("by-spec", &["--dry-run=server"]).await).then_some(()))
        })
        .await
        .unwrap();
        delete("by-deletion", "--grace-period=31536000").await;
        for pod in [&by_spec, &by_deletion] {
            let tried = force(&pod.name_any(), &[]).await;
            assert!(is_refused(&tried), "{}", tried.stderr);
        }
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "by-spec", "namespace": tenant.name()}, "deleteOptions": {"gracePeriodSeconds": 0},
        });
        let pods = format!("/api/v1/namespaces/{}/pods", tenant.name());
        let path = format!("{pods}/by-spec/eviction");
        let tried = tenant.kubectl(&["create", "--raw", &path, "-f", "-"], &eviction.to_string()).await;
        assert!(is_refused(&tried), "{}", tried.stderr);
        let collection = format!("{pods}?labelSelector=app%20in%20(by-spec,by-deletion)&gracePeriodSeconds=0");
        let tried = tenant.kubectl(&["delete", "--raw", &collection], "").await;
        assert!(is_refused(&tried), "{}", tried.stderr);
        assert!(tenant.get(&by_spec).await.is_some() && tenant.get(&by_deletion).await.is_some());

        force("usual", &[]).await.success().unwrap();
        assert!(tenant.get(&usual).await.is_none());
        delete("by-spec", "--grace-period=1").await;
        let by_admin = ["delete", "pod", "by-spec", "--namespace", tenant.name(), "--force", "--grace-period=0"];
        world.cluster.kubectl(&by_admin).await.unwrap().success().unwrap();
        assert!(tenant.get(&by_spec).await.is_none());
    })
    .await;
}

/// The policy on references passes it, as it does a pod from before that policy.
#[tokio::test]
async fn owner_whose_templates_name_another_queue_is_not_paused_for_a_pod() {
    let tenant = &Tenant::new(up().await).await;
    let template = json!({"metadata": {"labels": {"kai.scheduler/queue": "long"}}});
    let spec = json!({"replicaSpecs": [{"template": template}]});
    let job = fixtures::object("batch.tensorstack.dev/v1beta1", "GenericJob", tenant.name(), "theirs", &spec);
    let job = tenant.create(&job).await;
    let pod = pod_of(tenant, "claims", &Value::Null, controller(&job)).await;
    await_ended(tenant, &pod).await;
    assert_eq!(tenant.field(&job, "spec.runMode.pause.enabled").await, Value::Null);
    assert_untouched(tenant, &job).await;
}
