//! The rules that apply in a queue: its own block, an ancestor's, or the configured one; and a ceiling as a time slice.

use jiff::SignedDuration;
use serde_json::json;
use tenure_tests::workloads::{Namespace, in_runai_queue};

use super::{
    scene::{annotation, await_eviction, await_running, job_of, place, queue, time, unready, wait, waiting},
    world,
};

#[tokio::test]
async fn the_nearest_block_up_the_tree_counts_and_else_the_configured_one() {
    let namespace = place(world().await, &waiting(&json!({"backoffBaseSeconds": 700}))).await;
    let root = namespace.name();
    let name = |suffix: &str| format!("{root}-{suffix}");
    queue(&namespace, &name("team"), &json!({"parentQueue": root})).await;
    queue(&namespace, &name("heir"), &json!({"parentQueue": name("team")})).await;
    let mut own = waiting(&json!({"backoffBaseSeconds": 800}));
    own["parentQueue"] = json!(name("team"));
    queue(&namespace, &name("own"), &own).await;
    queue(&namespace, &name("other"), &json!({})).await;
    for (suffix, seconds) in [("heir", 700), ("own", 800), ("other", 500)] {
        let job = namespace.create(&job_of(&namespace, suffix, &unready(&name(suffix)))).await;
        let (record, state) = await_eviction(&namespace, &job, 1).await;
        assert_eq!((&record["queue"], wait(&record, &state)), (&json!(name(suffix)), seconds));
    }
}

/// Waits until a slice has ended, and returns the record and the state.
async fn await_slice_end(
    namespace: &Namespace,
    job: &kube::core::DynamicObject,
) -> (serde_json::Value, serde_json::Value) {
    let record = namespace.await_pause_of(job, "spec.suspend", &json!(true)).await;
    assert_eq!(record["reason"], "MaxDurationExceeded");
    (record, annotation(namespace, job, "tenure.dev/requeue-state").await.unwrap())
}

#[tokio::test]
async fn a_ceiling_can_be_a_time_slice_that_is_no_shorter_than_the_floor() {
    let world = world().await;
    let root = place(world, &json!({"preemptMinRuntime": "7s"})).await;
    let leaf = format!("{}-leaf", root.name());
    let slice = json!({
        "parentQueue": root.name(), "maxDuration": "2s", "maxDurationAction": "Requeue", "requeueDelay": "3s",
    });
    queue(&root, &leaf, &slice).await;
    let job = root.create(&job_of(&root, "train", &in_runai_queue(&leaf))).await;
    for _ in 0..2 {
        let (record, state) = await_slice_end(&root, &job).await;
        // of the pods, which are scheduled a little later
        let started = time(&root.field(&job, "metadata.creationTimestamp").await);
        let floor = SignedDuration::from_secs(7);
        assert!(time(&record["at"]) >= started + floor, "{record} is within the floor");
        assert_eq!((&state["count"], wait(&record, &state)), (&json!(0), 3));
        await_running(&root, &job).await;
    }
    let events = root.await_events_of("Requeued", 2).await;
    assert!(events[0].ends_with("Set spec.suspend back to false: its next time slice begins"), "{events:?}");
}
