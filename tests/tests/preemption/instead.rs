//! Others go in place of protected victims, where there are any.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    scheduling::{Arena, Wish},
};

use super::world;

/// A pod of one processor.
fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, class: "", more: Value::Null }
}

/// A queue whose pods are protected, and on the node an old pod without a queue and a younger one of that queue.
async fn old_and_young(arena: &Arena<'_>) -> (String, [DynamicObject; 2]) {
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h"})).await;
    let old = arena.placed(&wish("old", "", 100)).await;
    arena.age(&old).await;
    let young = arena.placed(&wish("young", &queue, 100)).await;
    (queue, [old, young])
}

#[tokio::test]
async fn where_the_youngest_is_protected_an_older_one_goes() {
    let arena = Arena::new(world().await, 2).await;
    let (queue, [old, young]) = old_and_young(&arena).await;
    let preemptor = arena.pod(&wish("preemptor", &queue, 200)).await;
    arena.await_preempted(&old).await;
    arena.await_placed(&preemptor).await;
    arena.assert_untouched(&young).await;
}

#[tokio::test]
async fn a_node_whose_pods_are_protected_is_passed_over_for_another() {
    let arena = Arena::new(world().await, 1).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h"})).await;
    let protected = arena.placed(&wish("protected", &queue, 100)).await;
    arena.add_node(&format!("{}-other", arena.node()), 1).await;
    // kube-scheduler would rather take the pod of the lower priority
    let free = arena.placed(&wish("free", "", 150)).await;
    let preemptor = arena.pod(&wish("preemptor", &queue, 200)).await;
    arena.await_preempted(&free).await;
    arena.await_placed(&preemptor).await;
    arena.assert_untouched(&protected).await;
}

#[tokio::test]
async fn of_those_that_could_go_instead_one_without_a_disruption_budget_goes() {
    let arena = Arena::new(world().await, 3).await;
    let (queue, [old, young]) = old_and_young(&arena).await;
    let more = json!({"metadata": {"labels": {"app": "budgeted"}}});
    let budgeted = arena.placed(&Wish { more, ..wish("budgeted", "", 50) }).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": arena.namespace.name()},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "budgeted"}}},
    });
    let budget = arena.namespace.create(&budget).await;
    let counted = async || {
        let counted = arena.namespace.field(&budget, "status.observedGeneration").await;
        Ok((counted == json!(1)).then_some(()))
    };
    eventually("the budget to be counted", DEADLINE, counted).await.unwrap();
    let preemptor = arena.pod(&wish("preemptor", &queue, 200)).await;
    arena.await_preempted(&old).await;
    arena.await_placed(&preemptor).await;
    arena.assert_untouched(&young).await;
    arena.assert_untouched(&budgeted).await;
}

#[tokio::test]
async fn no_pod_goes_instead_for_a_preemptor_that_needs_more_than_room() {
    let arena = Arena::new(world().await, 2).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h"})).await;
    let container = json!({
        "name": "main", "image": "example.com/image", "ports": [{"containerPort": 80, "hostPort": 8080}],
        "resources": {"requests": {"cpu": "1"}},
    });
    let more = json!({"spec": {"containers": [container]}});
    let old = arena.placed(&wish("old", "", 100)).await;
    let young = arena.placed(&Wish { more: more.clone(), ..wish("young", &queue, 100) }).await;
    // it needs the port of the young one, which is protected
    let preemptor = arena.pod(&Wish { more, ..wish("preemptor", &queue, 200) }).await;
    arena.await_refused(&preemptor).await;
    arena.assert_untouched(&old).await;
    arena.assert_untouched(&young).await;
}

#[tokio::test]
async fn several_pods_go_instead_of_one_that_takes_as_much() {
    let arena = Arena::new(world().await, 4).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h"})).await;
    let mut small = Vec::new();
    for name in ["small-0", "small-1"] {
        let pod = arena.placed(&wish(name, "", 100)).await;
        arena.age(&pod).await;
        small.push(pod);
    }
    let large = arena.placed(&Wish { cpu: 2, ..wish("large", &queue, 100) }).await;
    let preemptor = arena.pod(&Wish { cpu: 2, ..wish("preemptor", &queue, 200) }).await;
    for pod in &small {
        arena.await_preempted(pod).await;
    }
    arena.await_placed(&preemptor).await;
    arena.assert_untouched(&large).await;
}
