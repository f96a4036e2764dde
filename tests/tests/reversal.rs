//! Pauses that somebody sets back: kept all the same, counted, and told of when they don't end.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    keeper::Metrics,
    workloads::{Namespace, in_queue, queue, workload},
};
use tokio::sync::OnceCell;

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(|| World::running("reversal")).await.unwrap()
}

/// A Deployment that is paused for the first time.
async fn paused(queue_name: &str) -> (&'static World, Namespace, DynamicObject, Value) {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue(queue_name, "1s")).await;
    let deployment = workload("Deployment", namespace.name(), "test", &in_queue(queue_name), &Value::Null);
    let deployment = namespace.create(&deployment).await;
    let record = namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    (world, namespace, deployment, record)
}

/// Waits for a pause with another record than `before`.
async fn await_another_pause(namespace: &Namespace, deployment: &DynamicObject, before: &Value) -> Value {
    let another = async || {
        let record = namespace.pause_of(deployment, "spec.replicas", &json!(0)).await;
        Ok(record.filter(|record| record != before))
    };
    eventually("another pause", DEADLINE, another).await.unwrap()
}

#[tokio::test]
async fn a_pause_that_is_set_back_is_made_again_counted_and_from_the_second_time_on_told_once() {
    let (world, namespace, deployment, mut record) = paused("reversed").await;
    for reversals in 1..=3 {
        namespace.await_pods(&[]).await;
        namespace.patch(&deployment, &json!({"spec": {"replicas": 1}})).await;
        record = await_another_pause(&namespace, &deployment, &record).await;
        assert_eq!(record["reversals"], json!(reversals));
        if reversals == 1 {
            assert_eq!(namespace.events_of("PauseReversed").await, [""; 0]);
        }
    }
    let told = namespace.await_events_of("PauseReversed", 1).await;
    assert!(told[0].starts_with("Deployment/test: spec.replicas was set back 2 times"), "{told:?}");
    namespace.await_events(4).await;
    assert_eq!(namespace.events_of("PauseReversed").await.len(), 1);
    assert_eq!(audit::of_keeper(&world.cluster, "patch", "deployments", namespace.name()).len(), 4);
    let metrics = Metrics::of_world(world).await;
    let here = ("queue", "reversed");
    let deployments = [here, ("kind", "Deployment")];
    assert_eq!(metrics.count("tenure_keeper_reversed_pauses_total", &deployments), 3);
    let paused = [here, ("result", "Paused")];
    assert_eq!(metrics.count("tenure_keeper_expirations_total", &paused), 4);
}

#[tokio::test]
async fn a_resumption_that_takes_the_record_away_is_no_reversal() {
    let (_, namespace, deployment, record) = paused("resumed").await;
    namespace.await_pods(&[]).await;
    // as `kubectl tenure resume` does
    let resume = json!({"metadata": {"annotations": {"tenure.dev/paused": null}}, "spec": {"replicas": 2}});
    namespace.patch(&deployment, &resume).await;
    let again = await_another_pause(&namespace, &deployment, &record).await;
    assert_eq!(again.get("reversals"), None);
    assert_eq!(again["previousValue"], json!(2));
}

#[tokio::test]
async fn a_workload_whose_pause_was_set_back_has_a_full_ceiling_again() {
    let (_, namespace, deployment, record) = paused("full-again").await;
    namespace.await_pods(&[]).await;
    namespace.apply(&queue("full-again", "3s")).await;
    namespace.patch(&deployment, &json!({"spec": {"replicas": 1}})).await;
    namespace.await_running(1).await;
    let pods = namespace.created().await;
    let again = await_another_pause(&namespace, &deployment, &record).await;
    let at: jiff::Timestamp = again["at"].as_str().unwrap().parse().unwrap();
    let age = at.duration_since(pods[0]);
    assert!(age > jiff::SignedDuration::from_secs(3), "paused at the age of {age:#}");
}
