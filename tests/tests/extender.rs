//! Ways to configure Tenure as an extender of kube-scheduler, and preemption while Tenure doesn't answer.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use serde_json::{Value, json};
use tenure_tests::{
    World,
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
