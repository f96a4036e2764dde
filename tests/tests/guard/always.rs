//! Deletions that must never wait: those of a pod by its owner, its node, its namespace or its user. Each pod here is
//! within a floor of one hour.

use std::time::Duration;

use kube::{ResourceExt, api::DeleteParams, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{UNDYING, eventually};
use tenure_tests::{
    DEADLINE,
    asker::{Asker, MASTERS},
    scheduling::Arena,
    workloads::workload,
};

use crate::{LONG, await_held, held, in_both, queue_for};

async fn await_gone(arena: &Arena<'_>, object: &DynamicObject) {
    await_gone_within(arena, object, DEADLINE).await;
}

async fn await_gone_within(arena: &Arena<'_>, object: &DynamicObject, deadline: Duration) {
    let gone = async || Ok(arena.namespace.get(object).await.is_none().then_some(()));
    eventually(&format!("{} to go", object.name_any()), deadline, gone).await.unwrap();
}

/// A workload on the test's node in a queue with a floor, all of whose pods are held.
async fn held_workload(arena: &Arena<'_>, kind: &str, more: &Value) -> DynamicObject {
    let queue = queue_for(arena, LONG).await;
    let on_node = json!({"nodeSelector": {"kubernetes.io/hostname": arena.node()}});
    let labels = json!({"kai.scheduler/queue": queue});
    let mut object = workload(kind, arena.namespace.name(), "owner", &labels, &on_node);
    for (field, value) in more.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    let owner = arena.namespace.create(&object).await;
    arena.namespace.await_running(if kind == "Job" { 1 } else { 2 }).await;
    for pod in pods(arena).await {
        await_held(arena, &pod).await;
    }
    owner
}

async fn pods(arena: &Arena<'_>) -> Vec<DynamicObject> {
    let mut pods = Vec::new();
    for name in arena.namespace.pod_names().await {
        let named = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": arena.namespace.name()},
        });
        pods.push(arena.namespace.find(&serde_json::from_value(named).unwrap()).await);
    }
    pods
}

#[tokio::test]
async fn last_deletion_by_the_kubelet_passes() {
    in_both(async |arena| {
        let grace = json!({
            "metadata": {"labels": {UNDYING: "true"}}, "spec": {"terminationGracePeriodSeconds": 3600},
        });
        let pod = held(arena, grace).await;
        arena.namespace.delete(&pod).await;
        assert!(arena.namespace.get(&pod).await.unwrap().metadata.deletion_timestamp.is_some());
        let node = format!("system:node:{}", arena.node());
        let kubelet = Asker::new(arena.world, &node, &["system:nodes", MASTERS]).await;
        let last = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        kubelet.delete_as(&pod, &last).await.unwrap();
        assert!(arena.namespace.get(&pod).await.is_none());
    })
    .await;
}

#[tokio::test]
async fn eviction_by_a_kubelet_passes() {
    in_both(async |arena| {
        let pod = held(arena, json!({})).await;
        let node = format!("system:node:{}", arena.node());
        Asker::new(arena.world, &node, &["system:nodes", MASTERS]).await.evict(&pod).await.unwrap();
        await_gone(arena, &pod).await;
    })
    .await;
}

#[tokio::test]
async fn pods_of_a_replica_set_that_is_deleted_are_collected() {
    in_both(async |arena| {
        let owner = held_workload(arena, "ReplicaSet", &json!({})).await;
        arena.namespace.delete(&owner).await;
        arena.namespace.await_pods(&[]).await;
    })
    .await;
}

#[tokio::test]
async fn pods_of_a_job_that_is_deleted_are_collected() {
    in_both(async |arena| {
        let owner = held_workload(arena, "Job", &json!({})).await;
        arena.namespace.delete(&owner).await;
        arena.namespace.await_pods(&[]).await;
    })
    .await;
}

#[tokio::test]
async fn job_that_is_suspended_loses_its_pods() {
    in_both(async |arena| {
        let owner = held_workload(arena, "Job", &json!({})).await;
        arena.namespace.patch(&owner, &json!({"spec": {"suspend": true}})).await;
        arena.namespace.await_pods(&[]).await;
    })
    .await;
}

#[tokio::test]
async fn job_that_is_complete_is_cleaned_up_with_its_pods() {
    in_both(async |arena| {
        let owner = held_workload(arena, "Job", &json!({"ttlSecondsAfterFinished": 0})).await;
        for pod in pods(arena).await {
            arena.namespace.patch_status(&pod, &json!({"phase": "Succeeded"})).await;
        }
        await_gone(arena, &owner).await;
        arena.namespace.await_pods(&[]).await;
    })
    .await;
}

#[tokio::test]
async fn deployment_that_is_scaled_down_loses_its_pods() {
    in_both(async |arena| {
        let owner = held_workload(arena, "Deployment", &json!({})).await;
        arena.namespace.patch(&owner, &json!({"spec": {"replicas": 0}})).await;
        arena.namespace.await_pods(&[]).await;
    })
    .await;
}

#[tokio::test]
async fn namespace_that_is_deleted_goes_with_its_pods() {
    in_both(async |arena| {
        held(arena, json!({})).await;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": arena.namespace.name()},
        });
        let namespace = arena.namespace.find(&serde_json::from_value(namespace).unwrap()).await;
        arena.namespace.delete(&namespace).await;
        await_gone(arena, &namespace).await;
    })
    .await;
}

#[tokio::test]
async fn node_that_is_tainted_with_no_execute_loses_its_pods() {
    in_both(async |arena| {
        let pod = held(arena, json!({})).await;
        let taint = ["taint", "node", arena.node(), "example.com/broken=true:NoExecute"];
        arena.world.cluster.kubectl(&taint).await.unwrap().success().unwrap();
        await_gone(arena, &pod).await;
    })
    .await;
}

#[tokio::test]
async fn a_node_that_is_deleted_takes_its_pods_along() {
    // 40 s until the controller believes that the node is gone, and 20 s between two looks
    let two_checks = Duration::from_mins(2);
    in_both(async |arena| {
        let pod = held(arena, json!({})).await;
        arena.world.cluster.kubectl(&["delete", "node", arena.node()]).await.unwrap().success().unwrap();
        await_gone_within(arena, &pod, two_checks).await;
    })
    .await;
}

#[tokio::test]
async fn user_may_delete_a_pod_at_any_time() {
    in_both(async |arena| {
        let pod = held(arena, json!({})).await;
        let delete = ["delete", "pod", "-n", arena.namespace.name(), &pod.name_any()];
        arena.world.cluster.kubectl(&delete).await.unwrap().success().unwrap();
        assert!(arena.namespace.get(&pod).await.is_none());
    })
    .await;
}

#[tokio::test]
async fn user_may_delete_all_pods_at_once() {
    in_both(async |arena| {
        let pod = held(arena, json!({})).await;
        let delete = ["delete", "pods", "-n", arena.namespace.name(), "--all"];
        arena.world.cluster.kubectl(&delete).await.unwrap().success().unwrap();
        assert!(arena.namespace.get(&pod).await.is_none());
    })
    .await;
}
