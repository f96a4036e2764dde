//! Workloads that their controllers don't stop when they are paused.

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    workloads::{in_runai_queue, workload},
};

use super::{
    below::TRIES,
    brisk_world,
    kinds::lose,
    scene::{STATE, annotation, await_eviction, place},
};

/// The controller of a StatefulSet deletes no pod before those of higher ordinals are ready.
#[tokio::test]
async fn the_pods_of_a_stateful_set_that_cannot_be_scaled_down_are_deleted_and_it_comes_back() {
    let wait = json!({
        "timeout": "3s", "recoveryTimeout": "2s", "requeuingStrategy": {"backoffBaseSeconds": 5, "backoffFactor": "1"},
    });
    let namespace = place(brisk_world().await, &json!({"waitForPodsReady": wait})).await;
    let labels = in_runai_queue(namespace.name());
    let set = workload("StatefulSet", namespace.name(), "db", &labels, &Value::Null);
    let set = namespace.create(&set).await;
    let ready = async || Ok((namespace.field(&set, "status.readyReplicas").await == json!(2)).then_some(()));
    eventually("both pods to be ready", DEADLINE, ready).await.unwrap();
    let before = namespace.pods().await;
    for pod in ["db-0", "db-1"] {
        lose(&namespace, pod).await;
    }
    await_eviction(&namespace, &set, 1).await;
    assert_eq!(namespace.field(&set, "spec.replicas").await, json!(0));
    assert_eq!(namespace.pods().await, before, "its controller waits for them to be ready");

    let gone = async || Ok((!namespace.pods().await.iter().any(|uid| before.contains(uid))).then_some(()));
    eventually("its pods to be deleted", TRIES, gone).await.unwrap();
    let back = async || Ok((namespace.field(&set, "spec.replicas").await == json!(2)).then_some(()));
    eventually("it to come back", DEADLINE, back).await.unwrap();
    let state = annotation(&namespace, &set, STATE).await.unwrap();
    assert_eq!(state["count"], 1, "{state}");
}
