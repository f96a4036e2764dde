//! Ways to configure Tenure as an extender of kube-scheduler, and preemption while Tenure doesn't answer.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use serde_json::{Value, json};
use tenure_tests::scheduling::{self, Arena, Wish};

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, class: "", more: Value::Null }
}

async fn queue(arena: &Arena<'_>) -> String {
    arena.queue("team", json!({"preemptMinRuntime": "1h"})).await
}

#[tokio::test]
async fn while_tenure_is_down_an_ignorable_extender_protects_no_pod_and_another_every_pod() {
    let world = scheduling::world("extender-down", &Value::Null).await.unwrap();
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
    let world = scheduling::world("extender-pods", &json!({"nodeCacheCapable": false})).await.unwrap();
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
