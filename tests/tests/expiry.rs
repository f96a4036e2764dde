//! Ceilings on a real API server: the workloads that are paused, the way they are, and the ones that are left alone.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    keeper::Metrics,
    workloads::{Namespace, bare_pod, in_queue, in_runai_queue, queue, runai_queue, workload},
};
use tokio::sync::OnceCell;

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let values = &["tenancy.defaultQueue.runai=by-default"];
    let started = async || {
        let world = World::running_with("expiry", values, &[]).await?;
        fixtures::install(&world, fixtures::definitions("scheduling.run.ai")).await;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(|| Box::pin(started())).await.unwrap()
}

const NOTHING: Value = Value::Null;

fn pausing(kind: &str, name: &str, field: &str, value: &str) -> String {
    format!(
        "{kind}/{name}: Set {field} to {value} because its pod's lifetime exceeded maxDuration defined in Queue"
    )
}

#[tokio::test]
async fn two_pods_of_a_deployment_are_one_patch_and_one_event() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("two-pods", "2s")).await;
    world.apply(&workload("Deployment", &name, "test", &in_queue("two-pods"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    let record = namespace.await_paused("Deployment", "test").await;
    assert_eq!(record["reason"], "MaxDurationExceeded");
    assert_eq!(record["queue"], "two-pods");
    assert_eq!(record["field"], "spec.replicas");
    assert_eq!(record["previousValue"], 2);
    await_no_pods(&namespace).await;
    assert_eq!(namespace.events().await, [pausing("Deployment", "test", "spec.replicas", "0")]);
    assert_eq!(audit::of_keeper(&world.cluster, "patch", "deployments", &name), ["test"]);
    assert!(audit::of_keeper(&world.cluster, "patch", "replicasets", &name).is_empty());
    assert!(audit::of_keeper(&world.cluster, "delete", "pods", &name).is_empty());
}

async fn await_no_pods(namespace: &Namespace) {
    let none = async || Ok(namespace.pods().await.is_empty().then_some(()));
    eventually("all pods to be gone", DEADLINE, none).await.unwrap();
}

#[tokio::test]
async fn nothing_is_paused_before_its_time_by_the_api_servers_clock() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("on-time", "3s")).await;
    world.apply(&bare_pod(&name, "test", &in_queue("on-time"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    let created = namespace.created().await.pop().unwrap();
    await_no_pods(&namespace).await;
    let event = [
        "get",
        "events.v1.events.k8s.io",
        "-n",
        &name,
        "--field-selector",
        "reason=MaxDurationExceeded",
        "-o",
        "jsonpath={.items[0].eventTime}",
    ];
    let deleted = async || Ok(world.cluster.kubectl(&event).await?.success()?.parse::<Timestamp>().ok());
    let deleted = eventually("the event", DEADLINE, deleted).await.unwrap();
    let age = deleted.duration_since(created);
    assert!(age > SignedDuration::from_secs(3), "deleted at the age of {age:#}");
}

#[tokio::test]
async fn stateful_sets_replica_sets_and_jobs_are_paused_too() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("kinds", "2s")).await;
    let kinds = [
        ("StatefulSet", "spec.replicas", "0"),
        ("ReplicaSet", "spec.replicas", "0"),
        ("Job", "spec.suspend", "true"),
    ];
    for (kind, _, _) in kinds {
        let mut object = workload(kind, &name, &kind.to_lowercase(), &in_queue("kinds"), &NOTHING);
        if kind != "Job" {
            // each its own pods
            object["spec"]["selector"]["matchLabels"]["kind"] = json!(kind);
            object["spec"]["template"]["metadata"]["labels"]["kind"] = json!(kind);
        }
        world.apply(&object).await;
    }
    let namespace = Namespace::of(world, &name);
    let mut expected = Vec::new();
    for (kind, field, value) in kinds {
        namespace.await_paused(kind, &kind.to_lowercase()).await;
        expected.push(pausing(kind, &kind.to_lowercase(), field, value));
    }
    await_no_pods(&namespace).await;
    expected.sort();
    let events = async || {
        let mut events = namespace.events().await;
        events.sort();
        Ok((events == expected).then_some(()))
    };
    eventually("one event an owner", DEADLINE, events).await.unwrap();
}

#[tokio::test]
async fn a_workload_that_names_no_queue_that_exists_ends_by_the_default_queue() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&runai_queue("by-default", "", "2s")).await;
    world.apply(&workload("Job", &name, "test", &in_runai_queue("mistyped"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    assert_eq!(namespace.await_paused("Job", "test").await["queue"], "by-default");
}

#[tokio::test]
async fn a_group_that_names_a_queue_that_cannot_exist_ends_by_the_default_queue() {
    let world = world().await;
    world.apply(&runai_queue("by-default", "", "2s")).await;
    // the API server refuses them as names, and some of them as values of a selector
    for (app, queue) in [("comma", "no,pe"), ("last", "by-default,"), ("equal", "a=b"), ("escape", "a\\")] {
        let name = world.namespace().await;
        world
            .apply(&json!({
                "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
                "metadata": {"name": "gang", "namespace": name}, "spec": {"minMember": 1, "queue": queue},
            }))
            .await;
        let mut job = workload("Job", &name, app, &json!({}), &NOTHING);
        job["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
        world.apply(&job).await;
        let namespace = Namespace::of(world, &name);
        assert_eq!(namespace.await_paused("Job", app).await["queue"], "by-default", "{queue}");
    }
}

#[tokio::test]
async fn a_pod_without_owner_is_deleted_with_an_event() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("bare", "2s")).await;
    world.apply(&bare_pod(&name, "test", &in_queue("bare"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    await_no_pods(&namespace).await;
    let recorded = async || Ok(Some(namespace.events().await).filter(|events| !events.is_empty()));
    let events = eventually("the event", DEADLINE, recorded).await.unwrap();
    assert_eq!(events, ["Pod/test: Deleted because its lifetime exceeded maxDuration defined in Queue"]);
    assert_eq!(audit::of_keeper(&world.cluster, "delete", "pods", &name), ["test"]);
}

#[tokio::test]
async fn pods_of_a_daemon_set_of_high_priority_and_without_a_queue_are_untouched() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("untouched", "2s")).await;
    let critical = json!({"priorityClassName": "system-cluster-critical"});
    let labels = in_queue("untouched");
    world.apply(&workload("DaemonSet", &name, "daemon", &labels, &NOTHING)).await;
    let own = |object: Value, app: &str| {
        let text = object.to_string().replace(r#""app":"test""#, &format!(r#""app":"{app}""#));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    world.apply(&own(workload("Deployment", &name, "critical", &labels, &critical), "critical")).await;
    world.apply(&own(workload("Deployment", &name, "free", &json!({}), &NOTHING), "free")).await;
    // with the daemon set's label it would be adopted
    world.apply(&own(bare_pod(&name, "lone-critical", &labels, &critical), "lone")).await;
    let namespace = Namespace::of(world, &name);
    namespace.await_running(tenure_testbed::NODES + 2 + 2 + 1).await;
    let before = namespace.pods().await;
    // the pod that is made last expires last
    world.apply(&own(workload("Deployment", &name, "control", &labels, &NOTHING), "control")).await;
    namespace.await_paused("Deployment", "control").await;
    let only_those = async || Ok((namespace.pods().await == before).then_some(()));
    eventually("only the control's pods to be gone", DEADLINE, only_those).await.unwrap();
    assert_eq!(namespace.events().await, [pausing("Deployment", "control", "spec.replicas", "0")]);
    assert!(audit::of_keeper(&world.cluster, "delete", "pods", &name).is_empty());
}

#[tokio::test]
async fn an_owner_whose_template_has_a_high_priority_is_not_paused_and_only_expired_pods_of_another_go() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("mixed", "1d")).await;
    world.apply(&workload("Deployment", &name, "test", &in_queue("mixed"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    namespace.await_running(2).await;
    // a rollout that can't get on keeps the old pods beside the new ones, which are critical
    let mut labels = in_queue("mixed");
    labels[UNREADY] = json!("true");
    let critical = json!({"priorityClassName": "system-cluster-critical"});
    world.apply(&workload("Deployment", &name, "test", &labels, &critical)).await;
    let three = async || Ok((namespace.pods().await.len() == 3).then_some(()));
    eventually("the first new pod", DEADLINE, three).await.unwrap();
    let before = namespace.pods().await;
    world.apply(&queue("mixed", "1s")).await;
    let deleted =
        async || Ok((audit::of_keeper(&world.cluster, "delete", "pods", &name).len() >= 2).then_some(()));
    eventually("the old pods to be deleted", DEADLINE, deleted).await.unwrap();
    world.apply(&queue("mixed", "1d")).await;
    assert_eq!(namespace.pause("Deployment", "test").await, None);
    assert!(audit::of_keeper(&world.cluster, "patch", "deployments", &name).is_empty());
    let kept = namespace.pods().await.into_iter().filter(|uid| before.contains(uid)).count();
    assert_eq!(kept, 1, "the critical pod is left alone");
}

#[tokio::test]
async fn shortening_a_ceiling_expires_a_running_pod_at_once() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("shortened", "1d")).await;
    world.apply(&workload("Deployment", &name, "test", &in_queue("shortened"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    namespace.await_running(2).await;
    world.apply(&queue("shortened", "1s")).await;
    namespace.await_paused("Deployment", "test").await;
}

#[tokio::test]
async fn lengthening_or_removing_a_ceiling_saves_a_running_pod() {
    // long enough for a busy machine to change it in time
    const SAVED: &str = "15s";
    let world = world().await;
    let name = world.namespace().await;
    for saved in ["lengthened", "removed"] {
        world.apply(&queue(saved, SAVED)).await;
        world.apply(&bare_pod(&name, saved, &in_queue(saved), &NOTHING)).await;
    }
    world.apply(&queue("lengthened", "1d")).await;
    let system = Namespace::of(world, "t9k-system");
    let removed = system.apply(&queue("removed", SAVED)).await;
    system.patch(&removed, &json!({"spec": {"maxDuration": null}})).await;
    // a pod that is made after the saved ones, under the ceiling that they had
    world.apply(&queue("control", SAVED)).await;
    world.apply(&bare_pod(&name, "control", &in_queue("control"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    let two = async || Ok((namespace.pods().await.len() == 2).then_some(()));
    eventually("the control to expire", DEADLINE, two).await.unwrap();
    assert_eq!(audit::of_keeper(&world.cluster, "delete", "pods", &name), ["control"]);
}

#[tokio::test]
async fn a_resumed_workload_gets_a_full_ceiling_again() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&queue("resumed", "2s")).await;
    world.apply(&workload("Deployment", &name, "test", &in_queue("resumed"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    let first = namespace.await_paused("Deployment", "test").await;
    await_no_pods(&namespace).await;
    world
        .cluster
        .kubectl(&["scale", "-n", &name, "deployment/test", "--replicas=1"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let again = async || Ok(namespace.pause("Deployment", "test").await.filter(|record| *record != first));
    let second = eventually("the second pause", DEADLINE, again).await.unwrap();
    assert_eq!(second["previousValue"], 1);
    let two = async || Ok((namespace.events().await.len() == 2).then_some(()));
    eventually("a second event", DEADLINE, two).await.unwrap();
    let patches = audit::of_keeper(&world.cluster, "patch", "deployments", &name).len();
    assert!(
        (2..=3).contains(&patches),
        "two pauses, and the first record may be taken away before: {patches}"
    );
}

#[tokio::test]
async fn a_job_that_is_made_again_under_its_name_has_a_full_ceiling_of_its_own() {
    const CEILING: SignedDuration = SignedDuration::from_secs(5);
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&runai_queue("again", "", "5s")).await;
    let job = workload("Job", namespace.name(), "again", &in_runai_queue("again"), &Value::Null);
    let first = namespace.create(&job).await;
    namespace.await_running(1).await;
    let aged = async || {
        let oldest = namespace.created().await.into_iter().min();
        Ok(oldest.filter(|at| *at + SignedDuration::from_secs(3) < Timestamp::now()).map(drop))
    };
    eventually("its pod to be older", DEADLINE, aged).await.unwrap();
    namespace.delete(&first).await;
    let gone = async || Ok(namespace.get(&first).await.is_none().then_some(()));
    eventually("the first to be gone", DEADLINE, gone).await.unwrap();

    let second = namespace.create(&job).await;
    let created = second.creation_timestamp().unwrap().0;
    let record = namespace.await_pause_of(&second, "spec.suspend", &json!(true)).await;
    let at: Timestamp = record["at"].as_str().unwrap().parse().unwrap();
    assert!(at >= created + CEILING, "{record}, made at {created}");
    assert_eq!(record["uid"], json!(second.uid()));
}

#[tokio::test]
async fn a_runai_queues_clock_starts_when_a_pod_is_scheduled_and_the_least_ceiling_of_the_tree_counts() {
    let world = world().await;
    let name = world.namespace().await;
    world.apply(&runai_queue("tree-root", "", "2s")).await;
    world.apply(&runai_queue("tree-leaf", "tree-root", "1h")).await;
    let nowhere = json!({"nodeSelector": {"no-such": "node"}});
    world.apply(&bare_pod(&name, "pending", &in_runai_queue("tree-leaf"), &nowhere)).await;
    world.apply(&workload("Deployment", &name, "test", &in_runai_queue("tree-leaf"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    let record = namespace.await_paused("Deployment", "test").await;
    assert_eq!(record["queue"], "tree-leaf");
    let only_pending = async || Ok((namespace.pods().await.len() == 1).then_some(()));
    eventually("only the pending pod to be left", DEADLINE, only_pending).await.unwrap();
    assert!(audit::of_keeper(&world.cluster, "delete", "pods", &name).is_empty());
}

#[tokio::test]
async fn a_t9k_queue_outside_the_system_namespace_does_not_count() {
    let world = world().await;
    let name = world.namespace().await;
    let mut elsewhere = queue("elsewhere", "1s");
    elsewhere["metadata"]["namespace"] = json!(name);
    world.apply(&elsewhere).await;
    world.apply(&queue("elsewhere-control", "1s")).await;
    world.apply(&bare_pod(&name, "free", &in_queue("elsewhere"), &NOTHING)).await;
    world.apply(&bare_pod(&name, "control", &in_queue("elsewhere-control"), &NOTHING)).await;
    let namespace = Namespace::of(world, &name);
    let one = async || Ok((namespace.pods().await.len() == 1).then_some(()));
    eventually("the control to expire", DEADLINE, one).await.unwrap();
    assert_eq!(audit::of_keeper(&world.cluster, "delete", "pods", &name), ["control"]);
}

#[tokio::test]
async fn both_programs_serve_metrics() {
    let world = world().await;
    for (program, url) in ["webhook", "keeper"].iter().zip(world.tenure.admin_urls()) {
        let metrics = Metrics::of(url).await;
        let reloaded = metrics.gauge(&format!("tenure_{program}_config_last_reload_successful"));
        assert_eq!(reloaded, Some(1.0), "{program}");
    }
    assert_eq!(Metrics::of_world(world).await.gauge("tenure_keeper_leader"), Some(1.0));
}
