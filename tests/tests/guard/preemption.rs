//! Deletions that a scheduler may make for a certain pod.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    asker::Asker,
    callers::Caller,
    scheduling::{Arena, Wish},
};
use tokio::sync::RwLockReadGuard;

use crate::{
    LONG, World, alone, await_held, guarded, queue_for,
    verdicts::{Webhook, await_verdict, verdicts},
};

/// The cluster of [`alone`] with the guard.
async fn guard_alone() -> RwLockReadGuard<'static, World> {
    let world = alone().await.read().await;
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world
}

/// A node that is full of one pod, which is safe from its own queue alone, and for long.
async fn safe_from_its_queue(arena: &Arena<'_>) -> DynamicObject {
    let queue = &arena.queue("own", json!({"preemptMinRuntime": LONG, "reclaimMinRuntime": "0s"})).await;
    let victim = arena.placed(&Wish { name: "victim", cpu: 8, queue, ..Wish::default() }).await;
    await_held(arena, &victim).await;
    victim
}

/// A pod that is more important, and that no scheduler looks at.
fn preemptor<'a>(name: &'a str, queue: &'a str) -> Wish<'a> {
    let unseen = json!({"spec": {"schedulerName": "missing"}});
    Wish { name, cpu: 8, queue, priority: 1000, more: unseen, ..Wish::default() }
}

/// The nodes that the webhook answers to kube-scheduler.
async fn preempt(arena: &Arena<'_>, preemptor: &DynamicObject, victim: &DynamicObject) -> Value {
    let uid = victim.metadata.uid.as_ref().unwrap();
    let nodes = json!({arena.node(): {"Pods": [{"UID": uid}], "NumPDBViolations": 0}});
    Caller::scheduler(arena.world).ask(&json!(preemptor), &nodes).await
}

#[tokio::test]
async fn scheduler_may_delete_what_the_extender_has_granted() {
    let arena = &Arena::new(guarded().await, 8).await;
    let victim = safe_from_its_queue(arena).await;
    let scheduler = Asker::scheduler(arena.world).await;
    scheduler.would_delete(&victim).await.unwrap_err();
    let queue = &arena.queue("other", json!({})).await;
    let preemptor = arena.pod(&preemptor("preemptor", queue)).await;
    let answer = preempt(arena, &preemptor, &victim).await;
    assert!(answer[arena.node()].is_object(), "{answer}");
    scheduler.delete(&victim).await.unwrap();
    let name = format!("{}/preemptor", arena.namespace.name());
    let verdict = json!({"verdict": "allowed", "reason": "permit", "preemptor": name});
    await_verdict(arena.world, Webhook::Pods, &victim, &verdict).await;
}

#[tokio::test]
async fn permit_is_for_deletions_and_no_eviction_passes_by_it() {
    let arena = &Arena::new(guarded().await, 8).await;
    let victim = safe_from_its_queue(arena).await;
    let queue = &arena.queue("other", json!({})).await;
    let preemptor = arena.pod(&preemptor("preemptor", queue)).await;
    preempt(arena, &preemptor, &victim).await;
    Asker::scheduler(arena.world).await.would_delete(&victim).await.unwrap();
    Asker::admin(arena.world).await.would_evict(&victim).await.unwrap_err();
}

/// Another replica of the webhook may have been asked for the permit.
#[tokio::test]
async fn scheduler_may_delete_for_a_pod_that_is_nominated_to_the_node_without_a_permit() {
    let world = &*guard_alone().await;
    let arena = &Arena::new(world, 8).await;
    let victim = safe_from_its_queue(arena).await;
    let scheduler = Asker::scheduler(arena.world).await;
    scheduler.would_delete(&victim).await.unwrap_err();
    let queue = &arena.queue("other", json!({})).await;
    let preemptor = arena.pod(&preemptor("preemptor", queue)).await;
    arena.namespace.patch_status(&preemptor, &json!({"nominatedNodeName": arena.node()})).await;
    let allowed = async || Ok(scheduler.delete(&victim).await.ok());
    eventually("the nomination to be seen", DEADLINE, allowed).await.unwrap();
    let name = format!("{}/preemptor", arena.namespace.name());
    let verdict = json!({"verdict": "allowed", "reason": "nominated", "preemptor": name});
    await_verdict(arena.world, Webhook::Pods, &victim, &verdict).await;
}

#[tokio::test]
async fn pod_that_is_nominated_gets_no_victim_that_its_own_queue_protects() {
    let world = &*guard_alone().await;
    let arena = &Arena::new(world, 8).await;
    let victim = safe_from_its_queue(arena).await;
    let queue = arena.namespace.field(&victim, "metadata.labels").await["kai.scheduler/queue"].clone();
    let preemptor = arena.pod(&preemptor("preemptor", queue.as_str().unwrap())).await;
    arena.namespace.patch_status(&preemptor, &json!({"nominatedNodeName": arena.node()})).await;
    let scheduler = Asker::scheduler(arena.world).await;
    let name = format!("{}/preemptor", arena.namespace.name());
    let refusal = async || {
        let refused = scheduler.delete(&victim).await.unwrap_err();
        Ok(refused.message.contains(&format!("for pod {name}")).then_some(refused))
    };
    let refused = eventually("the nomination to be seen", DEADLINE, refusal).await.unwrap();
    assert_eq!(refused.code, 429);
    let verdict = json!({"verdict": "denied", "reason": "nominated-waits", "preemptor": name});
    await_verdict(arena.world, Webhook::Pods, &victim, &verdict).await;
    arena.assert_untouched(&victim).await;
}

#[tokio::test]
async fn real_scheduler_preempts_what_the_extender_grants() {
    let arena = &Arena::new(guarded().await, 8).await;
    let victim = safe_from_its_queue(arena).await;
    let queue = &arena.queue("other", json!({})).await;
    let wish = Wish { name: "preemptor", cpu: 8, queue, priority: 1000, ..Wish::default() };
    arena.placed(&wish).await;
    assert!(arena.namespace.get(&victim).await.is_none());
    let verdict = json!({"verdict": "allowed", "reason": "permit"});
    await_verdict(arena.world, Webhook::Pods, &victim, &verdict).await;
}

#[tokio::test]
async fn real_scheduler_without_the_extender_waits_for_the_end_of_the_floor_and_asks_seldom() {
    let world = &*guard_alone().await;
    let arena = &Arena::new(world, 8).await;
    let floor = 8;
    let queue = &queue_for(arena, &format!("{floor}s")).await;
    let victim = arena.placed(&Wish { name: "victim", cpu: 8, queue, ..Wish::default() }).await;
    await_held(arena, &victim).await;
    let wish = Wish { name: "preemptor", cpu: 8, queue, priority: 1000, ..Wish::default() };
    arena.placed(&wish).await;
    let verdicts = verdicts(arena.world, Webhook::Pods, &victim);
    let (last, denied) = verdicts.split_last().unwrap();
    assert_eq!(last["verdict"], "allowed");
    assert!((1..=floor + 2).contains(&denied.len()), "{verdicts:#?}");
    assert!(denied.iter().all(|verdict| verdict["verdict"] == "denied"), "{verdicts:#?}");
}
