//! Preemption for a gang by kube-scheduler itself, which asks no extender: the guard alone holds.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, fixtures,
    scheduling::{Arena, Wish},
};

use crate::{
    LONG, await_held, queue_for,
    verdicts::{Webhook, await_verdict, verdicts},
    with_alpha_apis,
};

pub const API: &str = "scheduling.k8s.io/v1beta1";

/// A pod that takes a whole node of the arena.
async fn victim(arena: &Arena<'_>, name: &str, node: &str, queue: &str) -> DynamicObject {
    let more = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}});
    arena.placed(&Wish { name, cpu: 8, queue, more, ..Wish::default() }).await
}

/// A gang of two pods, each of which takes a node, and is more important than all victims.
async fn gang(arena: &Arena<'_>, queue: &str) -> Vec<DynamicObject> {
    let class = &arena.class("gang", 1000, "PreemptLowerPriority", &[]).await;
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": class});
    let group = fixtures::object(API, "PodGroup", arena.namespace.name(), "gang", &spec);
    arena.namespace.create(&group).await;
    let mut pods = Vec::new();
    for name in ["first", "second"] {
        let more = json!({"spec": {"schedulingGroup": {"podGroupName": "gang"}}});
        pods.push(arena.pod(&Wish { name, cpu: 8, queue, class, more, ..Wish::default() }).await);
    }
    pods
}

async fn arena() -> Arena<'static> {
    let arena = Arena::new(with_alpha_apis().await, 8).await;
    arena.add_node(&format!("{}-b", arena.node()), 8).await;
    arena
}

#[tokio::test]
async fn gang_takes_no_pod_within_its_floor_and_all_once_the_floors_are_over() {
    let arena = &arena().await;
    let queue = &queue_for(arena, "12s").await;
    let other = format!("{}-b", arena.node());
    let victims = [victim(arena, "a", arena.node(), queue).await, victim(arena, "b", &other, queue).await];
    for victim in &victims {
        await_held(arena, victim).await;
    }
    let gang = gang(arena, queue).await;
    let is_denied = async || {
        let mut all = victims.iter().flat_map(|victim| verdicts(arena.world, Webhook::Pods, victim));
        Ok(all.any(|verdict| verdict["verdict"] == "denied").then_some(()))
    };
    eventually("the guard to deny the gang a victim", DEADLINE, is_denied).await.unwrap();
    for pod in &gang {
        arena.await_placed(pod).await;
    }
    for victim in &victims {
        assert!(arena.namespace.get(victim).await.is_none());
    }
}

#[tokio::test]
async fn gang_of_pods_that_are_not_safe_preempts_them() {
    let arena = &arena().await;
    let queue = &arena.queue("none", json!({})).await;
    let other = format!("{}-b", arena.node());
    victim(arena, "a", arena.node(), queue).await;
    victim(arena, "b", &other, queue).await;
    for pod in &gang(arena, queue).await {
        arena.await_placed(pod).await;
    }
}

/// kube-scheduler deletes the last victim of a gang only if it could delete all others.
#[tokio::test]
async fn gang_waits_as_long_as_a_floor_protects_one_of_its_victims() {
    let arena = &arena().await;
    let other = format!("{}-b", arena.node());
    let safe = &queue_for(arena, LONG).await;
    let kept = victim(arena, "kept", arena.node(), safe).await;
    await_held(arena, &kept).await;
    let free = &arena.queue("free", json!({})).await;
    victim(arena, "other", &other, free).await;
    let gang = gang(arena, free).await;
    await_verdict(arena.world, Webhook::Pods, &kept, &json!({"verdict": "denied"})).await;
    for pod in &gang {
        assert_eq!(arena.namespace.field(pod, "spec.nodeName").await, Value::Null);
    }
    let kept = arena.namespace.get(&kept).await.unwrap();
    assert_eq!(kept.metadata.deletion_timestamp, None);
}
