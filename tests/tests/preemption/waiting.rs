//! Preemptors that find no victim wait for the end of a floor, and no longer.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_tests::{
    audit,
    scheduling::{self, Arena, Wish},
};

use super::world;

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, class: "", more: Value::Null }
}

const FLOOR: SignedDuration = SignedDuration::from_secs(10);

async fn queue(arena: &Arena<'_>) -> String {
    arena.queue("team", json!({"preemptMinRuntime": "10s"})).await
}

#[tokio::test]
async fn a_preemptor_waits_for_the_end_of_the_floor_and_runs_then() {
    let arena = Arena::new(world().await, 1).await;
    let queue = queue(&arena).await;
    let victim = arena.placed(&wish("victim", &queue, 100)).await;
    let start = arena.scheduled_at(&victim).await;
    let preemptor = arena.pod(&wish("preemptor", &queue, 200)).await;
    arena.await_refused(&preemptor).await;
    // by itself kube-scheduler would look again after five minutes
    arena.await_preempted(&victim).await;
    arena.await_placed(&preemptor).await;
    assert!(arena.scheduled_at(&preemptor).await >= start + FLOOR);
}

#[tokio::test]
async fn one_wake_up_is_enough_for_many() {
    // a world of its own: kube-scheduler looks again at all pods when one of another test goes
    let world = scheduling::world("preemption-wakes", &Value::Null).await.unwrap();
    let arena = Arena::new(&world, 4).await;
    let queue = queue(&arena).await;
    let mut victims = Vec::new();
    for name in ["victim-0", "victim-1", "victim-2", "victim-3"] {
        victims.push(arena.placed(&wish(name, &queue, 100)).await);
    }
    let start = Timestamp::now();
    for victim in &victims {
        arena.schedule_at(victim, start).await;
    }
    let mut preemptors = Vec::new();
    for (name, priority) in [("low", 200), ("high", 400), ("middle", 300)] {
        let preemptor = arena.pod(&wish(name, &queue, priority)).await;
        arena.await_refused(&preemptor).await;
        preemptors.push(preemptor);
    }
    for preemptor in &preemptors {
        arena.await_room(preemptor).await;
    }
    let patched = audit::patched_statuses(&arena.world.cluster, arena.namespace.name());
    assert_eq!(patched, ["high", "high"], "a nomination, and its end");
}
