//! Outages of the keeper and of the API server, and a missing definition.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit, scale,
    workloads::{Namespace, bare_pod, in_queue, queue, workload},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const OWNERS: usize = 16;

/// A cluster with webhook and keeper. One test at a time has it, and may stop the keeper or the API server.
async fn shared() -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let start = async || Ok::<_, anyhow::Error>(Mutex::new(Box::pin(World::running("outages")).await?));
    let world = WORLD.get_or_try_init(start).await.unwrap().lock().await;
    // a test that has failed may have left it dead
    world.tenure.start_keeper().await.unwrap();
    world
}

async fn apply_owners(world: &World, namespace: &str, in_queue: &Value) {
    let owners: Vec<Value> = (0..OWNERS)
        .map(|number| {
            let object =
                workload("Deployment", namespace, &format!("owner-{number}"), in_queue, &Value::Null);
            let own = object.to_string().replace(r#""app":"test""#, &format!(r#""app":"{number}""#));
            serde_json::from_str(&own).unwrap()
        })
        .collect();
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": owners})).await;
}

/// Waits until all owners are paused; then each was paused once, and by no patch twice. The server may log a patch as failed that it
/// has applied, if the keeper dies before the answer; a record can't lie: that of a second pause has counted the first.
async fn assert_each_paused_once(world: &World, name: &str) {
    let namespace = Namespace::of(world, name);
    for number in 0..OWNERS {
        let record = namespace.await_paused("Deployment", &format!("owner-{number}")).await;
        assert_eq!(
            (record.get("previousValue"), record.get("reversals")),
            (Some(&json!(2)), None),
            "{record}"
        );
    }
    let patches = audit::of_keeper(&world.cluster, "patch", "deployments", name);
    let owners: BTreeSet<&String> = patches.iter().collect();
    assert_eq!(patches.len(), owners.len(), "none is patched twice");
}

/// Waits until each owner has an event; none has two.
async fn assert_each_has_one_event(world: &World, name: &str) {
    let namespace = Namespace::of(world, name);
    namespace.await_events(OWNERS).await;
    assert_no_event_twice(&namespace).await;
    assert_eq!(namespace.events().await.len(), OWNERS);
}

async fn assert_no_event_twice(namespace: &Namespace) {
    let events = namespace.events().await;
    assert_eq!(events.iter().collect::<BTreeSet<_>>().len(), events.len(), "{events:?}");
}

#[tokio::test]
async fn what_expires_while_the_keeper_is_dead_is_handled_after_its_restart_once() {
    let world = &shared().await;
    let name = world.namespace().await;
    world.apply(&queue("restart", "2s")).await;
    world.tenure.kill_keeper().await.unwrap();
    apply_owners(world, &name, &in_queue("restart")).await;
    await_age(&Namespace::of(world, &name), 3).await;
    world.tenure.start_keeper().await.unwrap();
    assert_each_paused_once(world, &name).await;
    assert_each_has_one_event(world, &name).await;
}

/// Waits until the youngest pod is older than this many seconds, by the API server's clock.
async fn await_age(namespace: &Namespace, seconds: i64) {
    let all = OWNERS * 2;
    eventually("all pods to be old enough", DEADLINE, async || {
        let times = namespace.created().await;
        let youngest = times.iter().max().filter(|_| times.len() == all);
        Ok(youngest
            .filter(|time| jiff::Timestamp::now().duration_since(**time).as_secs() > seconds)
            .map(drop))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_keeper_that_is_killed_in_the_midst_of_expiries_pauses_each_once() {
    let world = &shared().await;
    let name = world.namespace().await;
    world.apply(&queue("killed", "3s")).await;
    apply_owners(world, &name, &in_queue("killed")).await;
    let namespace = Namespace::of(world, &name);
    for number in [0, OWNERS / 2, OWNERS - 1] {
        namespace.await_paused("Deployment", &format!("owner-{number}")).await;
        world.tenure.kill_keeper().await.unwrap();
        world.tenure.start_keeper().await.unwrap();
    }
    assert_each_paused_once(world, &name).await;
    // the record is on the object; an event that follows a pause by a millisecond may die with the keeper
    assert_no_event_twice(&namespace).await;
}

#[tokio::test]
async fn a_keeper_that_is_asked_to_end_finishes_what_it_has_begun() {
    let world = &shared().await;
    let name = world.namespace().await;
    world.apply(&queue("asked", "3s")).await;
    apply_owners(world, &name, &in_queue("asked")).await;
    let namespace = Namespace::of(world, &name);
    for number in [0, OWNERS - 1] {
        namespace.await_paused("Deployment", &format!("owner-{number}")).await;
        world.tenure.stop_keeper().await.unwrap();
        world.tenure.start_keeper().await.unwrap();
    }
    assert_each_paused_once(world, &name).await;
    assert_each_has_one_event(world, &name).await;
}

#[tokio::test]
async fn an_outage_of_the_api_server_loses_nothing() {
    let world = &shared().await;
    let name = world.namespace().await;
    world.apply(&queue("outage", "1d")).await;
    apply_owners(world, &name, &in_queue("outage")).await;
    let namespace = Namespace::of(world, &name);
    namespace.await_running(OWNERS * 2).await;
    world.apply(&queue("outage", "1s")).await;
    // in the midst of it
    namespace.await_events(1).await;
    world.cluster.stop_api_server().await.unwrap();
    world.cluster.start_api_server().await.unwrap();
    assert_each_paused_once(world, &name).await;
    assert_each_has_one_event(world, &name).await;
}

/// The number of changes after the backup: what the keeper has seen is then ahead of what the test writes later, for as long
/// as it lasts.
const LOST: usize = 1_000;

#[tokio::test]
async fn after_etcd_was_restored_new_pods_and_changed_queues_count() {
    let world = &World::installed_alone("restored", &[]).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    // this family counts from a pod's creation: none has to be scheduled
    let name = "restored";
    scale::namespace(world, name).await;
    world.apply(&queue("restored", "1d")).await;
    world.apply(&bare_pod(name, "kept", &in_queue("restored"), &Value::Null)).await;
    world.cluster.back_up().await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(world.cluster.client().unwrap(), name);
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("lost".into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    for number in 0..LOST {
        let change = Patch::Merge(json!({"data": {"number": number.to_string()}}));
        maps.patch("lost", &PatchParams::default(), &change).await.unwrap();
    }
    // the watches of pods and queues see a version after these
    world.apply(&bare_pod(name, "lost", &in_queue("lost"), &Value::Null)).await;
    world.apply(&queue("lost", "1s")).await;
    let namespace = Namespace::of(world, name);
    let gone = async || Ok((!namespace.pod_names().await.contains("lost")).then_some(()));
    eventually("the pod of the lost queue to expire", DEADLINE, gone).await.unwrap();

    world.cluster.restore().await.unwrap();
    world.apply(&bare_pod(name, "new", &in_queue("restored"), &Value::Null)).await;
    world.apply(&queue("restored", "1s")).await;
    let none = async || Ok(namespace.pod_names().await.is_empty().then_some(()));
    eventually("the pods of the restored queue to expire", DEADLINE, none).await.unwrap();
}

/// A definition like T9k's that lets anything pass.
fn permissive_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.scheduler.tensorstack.dev"},
        "spec": {
            "group": "scheduler.tensorstack.dev", "scope": "Namespaced",
            "names": {"kind": "Queue", "plural": "queues", "singular": "queue"},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

#[tokio::test]
async fn a_missing_definition_is_waited_for_and_an_undecodable_queue_stalls_nothing() {
    let values = ["crds.tensorstack=false", "webhook.failurePolicy=Ignore"];
    let world = &World::installed_alone("missing", &values).await.unwrap();
    let name = "missing";
    scale::namespace(world, name).await;
    // ready, though there is no such kind
    world.tenure.start_keeper().await.unwrap();
    world.apply(&bare_pod(name, "test", &in_queue("good"), &Value::Null)).await;
    world.apply(&permissive_definition()).await;
    let established = ["wait", "--for=condition=Established", "crd/queues.scheduler.tensorstack.dev"];
    world.cluster.kubectl(&established).await.unwrap().success().unwrap();
    for (queue_name, spec) in [
        ("list", json!([])),
        ("text", json!("soon")),
        ("number", json!({"maxDuration": 10})),
        ("nonsense", json!({"maxDuration": "soon"})),
        ("zero", json!({"maxDuration": "0s"})),
        ("good", json!({"maxDuration": "1s"})),
    ] {
        let mut object = queue(queue_name, "");
        object["spec"] = spec;
        world.apply(&bare_pod(name, &format!("in-{queue_name}"), &in_queue(queue_name), &Value::Null)).await;
        world.apply(&object).await;
    }
    let namespace = Namespace::of(world, name);
    let expired = async || Ok((namespace.pods().await.len() == 5).then_some(()));
    eventually("the pods of the good queue to expire", DEADLINE, expired).await.unwrap();
    let mut deleted = audit::of_keeper(&world.cluster, "delete", "pods", name);
    deleted.sort();
    assert_eq!(deleted, ["in-good", "test"]);
    let log = std::fs::read_to_string(world.tenure.keeper_log()).unwrap();
    assert!(
        log.contains("Not installed in the cluster") && log.contains("Unreadable: counts as absent"),
        "{log}"
    );
}
