//! Decisions of a person while a workload waits.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{
    DEADLINE,
    workloads::{distinct, in_runai_queue, workload},
};

use super::{
    scene::{
        ACTIVE, PAUSED, STATE, annotate, annotation, await_eviction, await_running, job, job_of, place,
        return_at, unready, waiting_long,
    },
    world,
};

#[tokio::test]
async fn what_a_person_has_decided_stays() {
    let namespace = place(world().await, &waiting_long()).await;
    let [again, unrecorded, inactive, other] =
        ["paused-again", "unrecorded", "inactive", "z-other"].map(|name| job(&namespace, name));
    let (again, unrecorded, inactive, other) = tokio::join!(again, unrecorded, inactive, other);
    let rollout =
        workload("Deployment", namespace.name(), "rollout", &unready(namespace.name()), &Value::Null);
    let rollout = namespace.create(&distinct(rollout, "rollout")).await;
    // one that runs isn't stopped by the annotation alone
    let mut runs = job_of(&namespace, "runs", &in_runai_queue(namespace.name()));
    runs["metadata"]["annotations"] = json!({ACTIVE: "false"});
    let runs = namespace.create(&runs).await;
    for object in [&again, &unrecorded, &inactive, &other, &rollout] {
        await_eviction(&namespace, object, 1).await;
    }

    // resumed by a person, and paused again
    namespace.patch(&again, &json!({"spec": {"suspend": false}})).await;
    namespace.patch(&again, &json!({"spec": {"suspend": true}})).await;
    annotate(&namespace, &unrecorded, &json!({PAUSED: null})).await;
    annotate(&namespace, &inactive, &json!({ACTIVE: "false"})).await;
    let template = json!({"metadata": {"labels": {UNREADY: null}}});
    namespace.patch(&rollout, &json!({"spec": {"replicas": 1, "template": template}})).await;

    // the other one is the last of those that are due
    let all = [&again, &unrecorded, &inactive, &rollout, &other];
    return_at(&namespace, &all, Timestamp::now()).await;
    await_running(&namespace, &other).await;
    let forgotten = async || Ok(annotation(&namespace, &again, PAUSED).await.is_none().then_some(()));
    eventually("the record to go that is a person's pause", DEADLINE, forgotten).await.unwrap();
    for job in [&again, &unrecorded, &inactive] {
        assert_eq!(namespace.field(job, "spec.suspend").await, json!(true), "{:?}", job.metadata.name);
    }
    assert_eq!(namespace.field(&rollout, "spec.replicas").await, json!(1));
    assert_eq!(namespace.field(&runs, "spec.suspend").await, json!(false));
    let events = namespace.await_events_of("Requeued", 1).await;
    assert!(events.len() == 1 && events[0].starts_with("Job/z-other: "), "{events:?}");
    assert_eq!(annotation(&namespace, &again, STATE).await, Some(json!({"count": 1, "priority": 0})));

    annotate(&namespace, &inactive, &json!({ACTIVE: "true"})).await;
    await_running(&namespace, &inactive).await;
}

#[tokio::test]
async fn what_a_person_deactivates_while_it_waits_is_noted_and_begins_again_when_it_is_activated() {
    let namespace = place(world().await, &waiting_long()).await;
    let job = job(&namespace, "train").await;
    await_eviction(&namespace, &job, 1).await;
    annotate(&namespace, &job, &json!({ACTIVE: "false"})).await;
    let noted = async || {
        let record = annotation(&namespace, &job, PAUSED).await;
        Ok(record.filter(|record| record["reason"] == "Deactivated").map(drop))
    };
    eventually("the deactivation to be noted", DEADLINE, noted).await.unwrap();
    assert_eq!(annotation(&namespace, &job, STATE).await, Some(json!({"count": 1, "priority": 0})));
    assert_eq!(namespace.field(&job, "spec.suspend").await, json!(true));

    annotate(&namespace, &job, &json!({ACTIVE: null})).await;
    await_running(&namespace, &job).await;
    await_eviction(&namespace, &job, 1).await;
    assert_eq!(namespace.await_events_of("Reactivated", 1).await.len(), 1);
    assert_eq!(namespace.await_events_of("EvictedDueToPodsReadyTimeout", 2).await.len(), 2);
}

#[tokio::test]
async fn a_record_that_names_another_field_is_not_followed() {
    let namespace = place(world().await, &waiting_long()).await;
    let [forged, other] = ["forged", "z-other"].map(|name| job(&namespace, name));
    let (forged, other) = tokio::join!(forged, other);
    for job in [&forged, &other] {
        await_eviction(&namespace, job, 1).await;
    }
    let mut record = annotation(&namespace, &forged, PAUSED).await.unwrap();
    record["field"] = json!("spec.parallelism");
    (record["value"], record["previousValue"]) = (json!(2), json!(50));
    annotate(&namespace, &forged, &json!({PAUSED: record.to_string()})).await;
    return_at(&namespace, &[&forged, &other], Timestamp::now()).await;
    await_running(&namespace, &other).await;
    assert_eq!(namespace.field(&forged, "spec.parallelism").await, json!(2));
    assert_eq!(namespace.field(&forged, "spec.suspend").await, json!(true));
}
