//! Ways to configure Tenure as an extender of kube-scheduler, preemption while Tenure doesn't answer, and wake-ups that no other
//! test disturbs.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_tests::{
    World, audit,
    scheduling::{self, Arena, Wish},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// A cluster whose kube-scheduler asks Tenure, with more fields of the extender's configuration. One test at a time has it.
async fn world(extender: &Value) -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let start = async || scheduling::world("extender", &Value::Null).await.map(Mutex::new);
    let world = WORLD.get_or_try_init(start).await.unwrap().lock().await;
    // the test before may have stopped it
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    scheduling::configure(&world, extender).await.unwrap();
    world
}

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, class: "", more: Value::Null }
}

async fn queue(arena: &Arena<'_>) -> String {
    arena.queue("team", json!({"preemptMinRuntime": "1h"})).await
}

#[tokio::test]
async fn while_tenure_is_down_an_ignorable_extender_protects_no_pod_and_another_every_pod() {
    let world = world(&Value::Null).await;
    let arena = Arena::new(&world, 1).await;
    let queue = queue(&arena).await;
    let victim = arena.placed(&wish("victim", "", 100)).await;
    world.tenure.stop_webhook().await.unwrap();
    let preemptor = arena.pod(&wish("preemptor", &queue, 200)).await;
    arena.await_refused(&preemptor).await;
    arena.assert_untouched(&victim).await;
    arena.namespace.delete(&preemptor).await;

    scheduling::configure(&world, &json!({"ignorable": true})).await.unwrap();
    let preemptor = arena.pod(&wish("another", &queue, 200)).await;
    arena.await_preempted(&victim).await;
    arena.await_placed(&preemptor).await;
    // within its floor now
    let protected = preemptor;
    let preemptor = arena.pod(&wish("third", &queue, 300)).await;
    arena.await_preempted(&protected).await;
    arena.await_placed(&preemptor).await;
}

#[tokio::test]
async fn a_scheduler_that_sends_whole_pods_gets_the_same_answers() {
    let world = world(&json!({"nodeCacheCapable": false})).await;
    let arena = Arena::new(&world, 2).await;
    let queue = queue(&arena).await;
    let old = arena.placed(&wish("old", "", 100)).await;
    arena.age(&old).await;
    let young = arena.placed(&wish("young", &queue, 100)).await;
    arena.placed(&wish("preemptor", &queue, 200)).await;
    arena.await_preempted(&old).await;
    arena.assert_untouched(&young).await;
    let refused = arena.pod(&wish("refused", &queue, 150)).await;
    arena.await_refused(&refused).await;
    arena.assert_untouched(&young).await;
}

#[tokio::test]
async fn one_wake_up_is_enough_for_many() {
    // here no other test runs meanwhile: kube-scheduler looks again at all pods when one of another test goes
    let world = world(&Value::Null).await;
    let arena = Arena::new(&world, 4).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "10s"})).await;
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
