//! Gangs: what is above their minimum may go within their floor, and what isn't may not.

use kube::core::DynamicObject;
use serde_json::json;
use tenure_tests::scheduling::{Arena, Wish};

use super::world;

const MEMBERS: [&str; 4] = ["member-0", "member-1", "member-2", "member-3"];

/// A gang of four that fill the node, of which two are enough, in a queue with a long floor.
async fn gang(arena: &Arena<'_>) -> (String, Vec<DynamicObject>) {
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"})).await;
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": arena.namespace.name()}, "spec": {"minMember": 2, "queue": queue},
    });
    arena.namespace.create(&group).await;
    let mut members = Vec::new();
    for name in MEMBERS {
        let more = json!({"metadata": {"annotations": {"pod-group-name": "gang"}}});
        members.push(arena.placed(&Wish { more, ..wish(name, &queue, 100) }).await);
    }
    (queue, members)
}

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, ..Wish::default() }
}

async fn alive(arena: &Arena<'_>, members: &[DynamicObject]) -> usize {
    let mut alive = 0;
    for member in members {
        alive += usize::from(arena.namespace.get(member).await.is_some());
    }
    alive
}

#[tokio::test]
async fn an_elastic_workload_shrinks_to_its_minimum_and_no_further() {
    let arena = Arena::new(world().await, 4).await;
    let (queue, members) = gang(&arena).await;
    arena.placed(&wish("first", &queue, 200)).await;
    arena.placed(&wish("second", &queue, 200)).await;
    assert_eq!(alive(&arena, &members).await, 2);
    let third = arena.pod(&wish("third", &queue, 200)).await;
    arena.await_refused(&third).await;
    assert_eq!(alive(&arena, &members).await, 2);
    for member in members {
        if arena.namespace.get(&member).await.is_some() {
            arena.assert_untouched(&member).await;
        }
    }
}

#[tokio::test]
async fn a_preemptor_that_needs_more_than_is_above_the_minimum_gets_nothing() {
    let arena = Arena::new(world().await, 4).await;
    let (queue, members) = gang(&arena).await;
    let large = arena.pod(&Wish { cpu: 3, ..wish("large", &queue, 200) }).await;
    arena.await_refused(&large).await;
    for member in &members {
        arena.assert_untouched(member).await;
    }
    arena.placed(&Wish { cpu: 2, ..wish("small", &queue, 300) }).await;
    assert_eq!(alive(&arena, &members).await, 2);
}
