//! While the guard is down.

use serde_json::json;
use tenure_tests::{
    asker::{Asker, SCHEDULER},
    scheduling::Arena,
};

use crate::{alone, down, drains::drain, held, queue_for};

/// The requests that pass all the same are in `always`, on the same cluster.
#[tokio::test]
async fn evictions_and_deletions_by_schedulers_are_refused_where_the_guard_must_answer() {
    let arena = &Arena::new(down().await, 8).await;
    let pod = held(arena, json!({})).await;
    for refused in [
        Asker::admin(arena.world).await.evict(&pod).await.unwrap_err(),
        Asker::scheduler(arena.world).await.delete(&pod).await.unwrap_err(),
    ] {
        assert!(refused.message.contains("failed calling webhook"), "{refused:?}");
    }
    assert!(!drain(arena, &["--timeout=5s"]).await.status.success());
    arena.assert_untouched(&pod).await;
}

#[tokio::test]
async fn nothing_is_held_up_by_default() {
    let world = &*alone().await.write().await;
    world.tenure.stop_webhook().await.unwrap();
    let arena = &Arena::new(world, 8).await;
    let queue = &queue_for(arena, "1h").await;
    for name in ["a", "b"] {
        let wish = tenure_tests::scheduling::Wish { name, cpu: 1, queue, ..Default::default() };
        let pod = arena.placed(&wish).await;
        if name == "b" {
            Asker::new(world, SCHEDULER, &[]).await.delete(&pod).await.unwrap();
        }
    }
    drain(arena, &["--timeout=30s"]).await.success().unwrap();
    arena.namespace.await_pods(&[]).await;
}
