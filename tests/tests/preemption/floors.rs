//! Floors of queues: against preemptors of the same queue, and of others.

use serde_json::{Value, json};
use tenure_tests::scheduling::{Arena, Wish};

use super::world;

/// A pod that fills a node of two processors.
fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 2, class: "", more: Value::Null }
}

#[tokio::test]
async fn a_preempt_floor_holds_against_the_same_queue_for_as_long_as_the_queue_has_it() {
    let arena = Arena::new(world().await, 2).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h", "reclaimMinRuntime": "0s"})).await;
    let victim = arena.placed(&wish("victim", &queue, 100)).await;
    let early = arena.pod(&wish("early", &queue, 200)).await;
    arena.await_refused(&early).await;
    arena.assert_untouched(&victim).await;
    arena.namespace.delete(&early).await;
    let world = arena.world;
    let patch = r#"{"spec": {"preemptMinRuntime": "0s"}}"#;
    let patched = world
        .cluster
        .kubectl(&["patch", "queue.v3alpha1.scheduling.run.ai", &queue, "--type=merge", "-p", patch])
        .await;
    patched.unwrap().success().unwrap();
    let late = arena.pod(&wish("late", &queue, 200)).await;
    arena.await_preempted(&victim).await;
    arena.await_placed(&late).await;
}

#[tokio::test]
async fn a_preempt_floor_does_not_hold_against_other_queues() {
    let arena = Arena::new(world().await, 2).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h"})).await;
    let other = arena.queue("other", json!({})).await;
    let victim = arena.placed(&wish("victim", &queue, 100)).await;
    let preemptor = arena.pod(&wish("preemptor", &other, 200)).await;
    arena.await_preempted(&victim).await;
    arena.await_placed(&preemptor).await;
}

/// Two departments; the teams of the first are safe from those of the second, and not from each other.
async fn departments(arena: &Arena<'_>) -> [String; 3] {
    let research = arena.queue("research", json!({"reclaimMinRuntime": "1h"})).await;
    let sales = arena.queue("sales", json!({})).await;
    let within = |parent: &str, floor: &str| json!({"parentQueue": parent, "reclaimMinRuntime": floor});
    [
        arena.queue("vision", within(&research, "0s")).await,
        arena.queue("speech", within(&research, "0s")).await,
        arena.queue("calls", within(&sales, "0s")).await,
    ]
}

#[tokio::test]
async fn reclaim_obeys_the_floor_one_below_the_lowest_common_ancestor() {
    let arena = Arena::new(world().await, 2).await;
    let [vision, speech, calls] = departments(&arena).await;
    let victim = arena.placed(&wish("victim", &vision, 100)).await;
    let stranger = arena.pod(&wish("stranger", &calls, 200)).await;
    arena.await_refused(&stranger).await;
    arena.assert_untouched(&victim).await;
    let sibling = arena.pod(&wish("sibling", &speech, 300)).await;
    arena.await_preempted(&victim).await;
    arena.await_placed(&sibling).await;
}

#[tokio::test]
async fn a_pod_that_names_no_queue_reclaims_as_one_of_another_tree() {
    let arena = Arena::new(world().await, 2).await;
    let [vision, ..] = departments(&arena).await;
    let victim = arena.placed(&wish("victim", &vision, 100)).await;
    let preemptor = arena.pod(&wish("preemptor", "", 200)).await;
    arena.await_refused(&preemptor).await;
    arena.assert_untouched(&victim).await;
}

#[tokio::test]
async fn pods_without_a_queue_are_preempted_as_ever() {
    let arena = Arena::new(world().await, 2).await;
    let victim = arena.placed(&wish("victim", "", 100)).await;
    let preemptor = arena.pod(&wish("preemptor", "", 200)).await;
    arena.await_preempted(&victim).await;
    arena.await_placed(&preemptor).await;
}

#[tokio::test]
async fn what_the_cluster_itself_needs_gets_room_within_any_floor() {
    let arena = Arena::new(world().await, 2).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"})).await;
    let victim = arena.placed(&wish("victim", &queue, 100)).await;
    let critical = Wish { class: "system-cluster-critical", ..wish("critical", "", 0) };
    let critical = arena.pod(&critical).await;
    arena.await_preempted(&victim).await;
    arena.await_placed(&critical).await;
}
