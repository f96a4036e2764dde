//! Preemptors that find no victim wait for the end of a floor, and no longer.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenure_tests::scheduling::{Arena, Wish};

use super::world;

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, class: "", more: Value::Null }
}

const FLOOR: SignedDuration = SignedDuration::from_secs(10);

#[tokio::test]
async fn a_preemptor_waits_for_the_end_of_the_floor_and_runs_then() {
    let arena = Arena::new(world().await, 1).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "10s"})).await;
    let victim = arena.placed(&wish("victim", &queue, 100)).await;
    let start = arena.scheduled_at(&victim).await;
    let preemptor = arena.pod(&wish("preemptor", &queue, 200)).await;
    arena.await_refused(&preemptor).await;
    // by itself kube-scheduler would look again after five minutes
    arena.await_preempted(&victim).await;
    arena.await_placed(&preemptor).await;
    assert!(arena.scheduled_at(&preemptor).await >= start + FLOOR);
}
