//! Drains of a node: they wait for its protected pods, and empty it in the end.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::json;
use tenure_testbed::Output;
use tenure_tests::scheduling::{Arena, Wish};

use crate::{
    await_held, guarded, held, queue_for, scheduled_at,
    verdicts::{Webhook, await_verdict},
};

/// kubectl drain of a test's own node, on which there are only bare pods.
pub async fn drain(arena: &Arena<'_>, more: &[&str]) -> Output {
    let drain = ["drain", arena.node(), "--force", "--ignore-daemonsets"];
    arena.world.cluster.kubectl(&[&drain, more].concat()).await.unwrap()
}

#[tokio::test]
async fn drain_waits_for_the_end_of_the_floor_and_then_succeeds() {
    let arena = &Arena::new(guarded().await, 8).await;
    let queue = queue_for(arena, "30s").await;
    let pod = arena.placed(&Wish { name: "a", cpu: 1, queue: &queue, ..Wish::default() }).await;
    let end = scheduled_at(arena, &pod).await + SignedDuration::from_secs(30);
    await_held(arena, &pod).await;

    let drained = drain(arena, &["--timeout=1m"]).await;
    assert!(Timestamp::now() >= end, "it was evicted within its floor");
    assert!(arena.namespace.get(&pod).await.is_none());
    for expected in ["(will retry after 5s)", "tenure: pod ", "is protected from being evicted until"] {
        assert!(drained.stderr.contains(expected), "{expected:?} should be in: {}", drained.stderr);
    }
    drained.success().unwrap();
    let world = arena.world;
    await_verdict(world, Webhook::Evictions, &pod, &json!({"verdict": "denied", "reason": "protected"}))
        .await;
    await_verdict(world, Webhook::Evictions, &pod, &json!({"verdict": "allowed", "reason": "unprotected"}))
        .await;
}

#[tokio::test]
async fn drain_that_waits_for_less_time_than_the_floor_lasts_fails_and_has_evicted_no_pod() {
    let arena = &Arena::new(guarded().await, 8).await;
    let pod = held(arena, json!({})).await;
    let drained = drain(arena, &["--timeout=1s"]).await;
    assert!(!drained.status.success(), "{}", drained.stderr);
    assert!(drained.stderr.contains(&format!("pods/{:?}", pod.name_any())), "{}", drained.stderr);
    arena.assert_untouched(&pod).await;
}

#[tokio::test]
async fn drain_does_not_wait_for_a_toleration_that_never_ends() {
    let arena = &Arena::new(guarded().await, 8).await;
    let annotations = [("minimum-preemptable-priority", "1000000"), ("toleration-seconds", "-1")];
    let class = &arena.class("for-ever", 10, "PreemptLowerPriority", &annotations).await;
    let queue = &queue_for(arena, "0s").await;
    let pod = arena.placed(&Wish { name: "a", cpu: 1, queue, class, ..Wish::default() }).await;
    drain(arena, &["--timeout=30s"]).await.success().unwrap();
    assert!(arena.namespace.get(&pod).await.is_none());
}

#[tokio::test]
async fn drain_waits_for_a_toleration_that_ends() {
    let arena = &Arena::new(guarded().await, 8).await;
    let annotations = [("minimum-preemptable-priority", "1000000"), ("toleration-seconds", "3600")];
    let class = &arena.class("an-hour", 10, "PreemptLowerPriority", &annotations).await;
    let pod = arena.placed(&Wish { name: "a", cpu: 1, class, ..Wish::default() }).await;
    await_held(arena, &pod).await;
    let verdict = json!({"verdict": "denied", "rule": "preemptionToleration"});
    await_verdict(arena.world, Webhook::Evictions, &pod, &verdict).await;
}
