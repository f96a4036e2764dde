//! Workloads whose pods don't get ready, and that come back.

use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{DEADLINE, workloads::Namespace};

use super::{Kueue, await_starts, job, queue, tenure, workload_of, world};

const INACTIVE: Value = Value::Bool(false);

/// A queue of the namespace's name in which pods have two seconds to get ready, and a Job whose pods don't.
async fn unready(namespace: &Namespace, strategy: &Value) -> kube::core::DynamicObject {
    let wait = json!({"timeout": "2s", "requeuingStrategy": strategy});
    queue(namespace, namespace.name(), &json!({"waitForPodsReady": wait})).await;
    job(namespace, "train", &json!({"kai.scheduler/queue": namespace.name(), UNREADY: "true"})).await
}

#[tokio::test]
async fn a_workload_that_was_not_ready_is_active_again_when_it_is_its_time() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    let job = unready(&namespace, &json!({"backoffBaseSeconds": 2, "backoffFactor": "1"})).await;
    let workload = workload_of(&namespace, "train", "v1beta2").await;
    let record = namespace.await_pause_of(&workload, "spec.active", &INACTIVE).await;
    assert_eq!(record["reason"], "PodsReadyTimeout");
    let events = namespace.await_events_of("EvictedDueToPodsReadyTimeout", 1).await;
    assert!(
        events[0].starts_with("Job/train: Set spec.active of its Workload job-train to false"),
        "{events:?}"
    );
    await_starts(&kueue, &["train", "train"]).await;
    let events = namespace.await_events_of("Requeued", 1).await;
    let expected = "Job/train: Set spec.active of its Workload job-train back to true: return 1";
    assert!(events[0].starts_with(expected), "{events:?}");
    assert_eq!(
        namespace.field(&job, "metadata.annotations").await,
        Value::Null,
        "the Job itself is never touched"
    );
}

#[tokio::test]
async fn a_workload_that_came_back_too_often_stays_inactive_until_its_job_is_activated() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    unready(&namespace, &json!({"backoffLimitCount": 0})).await;
    let workload = workload_of(&namespace, "train", "v1beta2").await;
    let record = namespace.await_pause_of(&workload, "spec.active", &INACTIVE).await;
    assert_eq!(record["reason"], "WorkloadInactive");
    let events = namespace.await_events_of("DeactivatedDueToRequeuingLimitExceeded", 1).await;
    assert!(events[0].contains("kubectl tenure activate job.batch/train"), "{events:?}");
    // an activation before Kueue has stopped the Job would leave it running
    namespace.await_pods(&[]).await;
    tenure(world, &namespace, &["activate", "job/train"]).await;
    await_starts(&kueue, &["train", "train"]).await;
}

#[tokio::test]
async fn a_person_deactivates_a_job_by_its_workload() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    job(&namespace, "train", &json!({})).await;
    await_starts(&kueue, &["train"]).await;
    let said = tenure(world, &namespace, &["deactivate", "job/train"]).await;
    let expected = "workload.kueue.x-k8s.io/job-train, by which Kueue runs job.batch/train, deactivated";
    assert!(said.starts_with(expected), "{said}");
    namespace.await_pods(&[]).await;
    let workload = workload_of(&namespace, "train", "v1beta2").await;
    // without the plugin: the keeper does the rest
    namespace.patch(&workload, &json!({"metadata": {"annotations": {"tenure.dev/active": null}}})).await;
    let active = async || Ok((namespace.field(&workload, "spec.active").await == json!(true)).then_some(()));
    eventually("the Workload to be active again", DEADLINE, active).await.unwrap();
    await_starts(&kueue, &["train", "train"]).await;
}
