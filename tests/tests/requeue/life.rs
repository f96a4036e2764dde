//! The life of a workload whose pods never get ready.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{
    DEADLINE,
    workloads::{distinct, in_runai_queue, workload},
};

use super::{
    metrics::{DEACTIVATIONS, EVICTIONS, RETURNS, assert_counted},
    scene::{
        ACTIVE, PAUSED, STATE, TIMEOUT, annotate, annotation, await_eviction, await_running, job, place,
        time, unready, wait, waiting, waiting_long,
    },
    world,
};

#[tokio::test]
async fn it_comes_back_as_often_as_it_may_and_is_deactivated_and_can_be_activated() {
    let strategy = json!({"backoffBaseSeconds": 2, "backoffFactor": "2", "backoffLimitCount": 2});
    let world = world().await;
    let namespace = place(world, &waiting(&strategy)).await;
    let job = job(&namespace, "train").await;
    let mut began = time(&namespace.field(&job, "metadata.creationTimestamp").await);
    for (count, seconds) in [(1, 2), (2, 4)] {
        let (record, state) = await_eviction(&namespace, &job, count).await;
        assert_eq!(record["reason"], "PodsReadyTimeout");
        assert_eq!(namespace.field(&job, "spec.suspend").await, json!(true));
        assert!(time(&record["at"]) >= began + TIMEOUT, "{record} comes too early after {began}");
        assert_eq!(wait(&record, &state), seconds, "{state}");
        await_running(&namespace, &job).await;
        // conditions say whole seconds
        began = Timestamp::from_second(time(&state["requeueAt"]).as_second()).unwrap();
    }
    let deactivated = async || {
        let active = annotation(&namespace, &job, ACTIVE).await;
        Ok(active.filter(|active| *active == json!(false)).map(drop))
    };
    eventually("the deactivation", DEADLINE, deactivated).await.unwrap();
    let record = annotation(&namespace, &job, PAUSED).await.unwrap();
    assert_eq!(record["reason"], "WorkloadInactive");
    let state = annotation(&namespace, &job, STATE).await;
    assert_eq!(state, Some(json!({"count": 2, "priority": 0})), "the count stays until it is activated");
    assert!(time(&record["at"]) >= began + TIMEOUT, "{record} comes too early after {began}");
    assert_eq!(namespace.field(&job, "spec.suspend").await, json!(true));
    let queue = ("queue", namespace.name());
    assert_counted(world, EVICTIONS, &[queue, ("cause", "WaitForStart")], 3).await;
    assert_counted(world, DEACTIVATIONS, &[queue], 1).await;
    assert_counted(world, RETURNS, &[queue], 2).await;
    annotate(&namespace, &job, &json!({ACTIVE: "true"})).await;
    await_running(&namespace, &job).await;
    let (_, state) = await_eviction(&namespace, &job, 1).await;
    assert_eq!(state["count"], 1);
    for (reason, count) in [
        ("EvictedDueToPodsReadyTimeout", 3),
        ("DeactivatedDueToRequeuingLimitExceeded", 1),
        ("Reactivated", 1),
        ("Requeued", 2),
    ] {
        assert_eq!(namespace.await_events_of(reason, count).await.len(), count, "{reason}");
    }
}

/// The first story: room is made elsewhere while it waits.
#[tokio::test]
async fn it_runs_for_good_when_it_comes_back_and_can_get_ready() {
    let namespace = place(world().await, &waiting(&json!({"backoffBaseSeconds": 10}))).await;
    let job = job(&namespace, "train").await;
    let (record, _) = await_eviction(&namespace, &job, 1).await;
    let is_suspended = async || {
        let [conditions, active] =
            ["status.conditions", "status.active"].map(|path| namespace.field(&job, path));
        let is = |condition: &Value| condition["type"] == "Suspended" && condition["status"] == "True";
        let is_suspended = conditions.await.as_array().is_some_and(|all| all.iter().any(is));
        Ok((is_suspended && active.await.as_u64().unwrap_or_default() == 0).then_some(()))
    };
    eventually("the Job controller to have suspended it", DEADLINE, is_suspended).await.unwrap();
    let gets_ready = json!({"spec": {"template": {"metadata": {"labels": {UNREADY: null}}}}});
    // as long as it is suspended, a Job can be given another template
    namespace.patch(&job, &gets_ready).await;
    await_running(&namespace, &job).await;
    namespace.await_running(2).await;
    let ready = async || Ok((namespace.field(&job, "status.ready").await == json!(2)).then_some(()));
    eventually("both pods to be ready", DEADLINE, ready).await.unwrap();
    assert_eq!(annotation(&namespace, &job, PAUSED).await, None);
    assert_eq!(namespace.events_of("EvictedDueToPodsReadyTimeout").await.len(), 1, "after {record}");
}

/// The second story: a workload that never gets ready would hold room that others could use.
#[tokio::test]
async fn another_gets_its_place_while_it_waits() {
    let namespace = place(world().await, &waiting_long()).await;
    // there is only one such place
    let place = json!({
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
        "containers": [{
            "name": "main", "image": "example.com/image", "ports": [{"containerPort": 80, "hostPort": 17000}],
        }],
    });
    let of_one_pod =
        |name: &str, labels: &Value| distinct(workload("Job", namespace.name(), name, labels, &place), name);
    let first = namespace.create(&of_one_pod("first", &unready(namespace.name()))).await;
    let placed = async || Ok((namespace.field(&first, "status.active").await == json!(1)).then_some(()));
    eventually("its pod", DEADLINE, placed).await.unwrap();
    let second = namespace.create(&of_one_pod("second", &in_runai_queue(namespace.name()))).await;
    await_eviction(&namespace, &first, 1).await;
    let ready = async || Ok((namespace.field(&second, "status.ready").await == json!(1)).then_some(()));
    eventually("the second to be ready", DEADLINE, ready).await.unwrap();
    assert_eq!(annotation(&namespace, &second, PAUSED).await, None, "as long as it waited, it took no room");
}
