//! Deletions by a scheduler.

use jiff::{SignedDuration, Timestamp};
use kube::{
    ResourceExt,
    core::{DynamicObject, Status},
};
use serde_json::{Value, json};
use tenure_testbed::{UNDYING, eventually};
use tenure_tests::{
    DEADLINE,
    asker::{Asker, MASTERS, SCHEDULER},
    scheduling::{Arena, Wish},
};

use crate::{
    KAI, LONG, ODD_SCHEDULER, await_held, guarded, held, in_both, queue_for, scheduled_at,
    verdicts::{Webhook, await_verdict, verdicts},
};

/// The API server's answer, which tells a client of kube-scheduler when to ask again.
fn assert_asked_to_wait(refused: &Status, pod: &DynamicObject) {
    assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"), "{refused:?}");
    let details = refused.details.clone().unwrap();
    assert_eq!(details.retry_after_seconds, 1, "{details:?}");
    assert_eq!((&*details.kind, &details.name), ("pods", &pod.name_any()));
    let name = format!("tenure: pod {}/{} is protected", pod.namespace().unwrap(), pod.name_any());
    for expected in ["denied the request", &name, "for another ", "set annotation tenure.dev/unguarded"] {
        assert!(refused.message.contains(expected), "{expected:?} should be in: {}", refused.message);
    }
}

#[tokio::test]
async fn scheduler_may_not_delete_a_pod_within_its_floor_and_may_after_it() {
    let arena = &Arena::new(guarded().await, 8).await;
    let queue = &queue_for(arena, "10s").await;
    let pod = arena.placed(&Wish { name: "a", cpu: 1, queue, ..Wish::default() }).await;
    let end = scheduled_at(arena, &pod).await + SignedDuration::from_secs(10);
    await_held(arena, &pod).await;
    let scheduler = Asker::scheduler(arena.world).await;
    assert_asked_to_wait(&scheduler.delete(&pod).await.unwrap_err(), &pod);
    assert_asked_to_wait(&scheduler.would_delete(&pod).await.unwrap_err(), &pod);
    arena.assert_untouched(&pod).await;

    let deleted = async || Ok(scheduler.delete(&pod).await.ok());
    eventually("the floor to end", DEADLINE, deleted).await.unwrap();
    assert!(Timestamp::now() >= end, "it was deleted within its floor");
    let denied = json!({"verdict": "denied", "reason": "protected", "protected-until": end.to_string()});
    let denied = await_verdict(arena.world, Webhook::Pods, &pod, &denied).await;
    assert!(denied["rule"].is_string(), "{denied}");
    let allowed = json!({"verdict": "allowed", "reason": "unprotected"});
    await_verdict(arena.world, Webhook::Pods, &pod, &allowed).await;
}

#[tokio::test]
async fn eviction_is_refused_with_the_time_that_is_left() {
    let arena = &Arena::new(guarded().await, 8).await;
    let pod = held(arena, json!({})).await;
    let admin = Asker::admin(arena.world).await;
    let refused = admin.evict(&pod).await.unwrap_err();
    assert_asked_to_wait(&refused, &pod);
    // drains of managed platforms know nothing but this
    assert_eq!(admin.evict_plainly(&pod).await, (429, Some("1".to_owned())));
    assert!(
        refused.message.contains(" for another 59m") || refused.message.contains(" for another 1h"),
        "{refused}"
    );
    arena.assert_untouched(&pod).await;
}

#[tokio::test]
async fn every_scheduler_that_is_named_is_guarded_against_even_one_with_an_odd_name() {
    let arena = &Arena::new(guarded().await, 8).await;
    let pod = held(arena, json!({})).await;
    let second = Asker::new(arena.world, ODD_SCHEDULER, &[MASTERS]).await;
    assert_asked_to_wait(&second.delete(&pod).await.unwrap_err(), &pod);
    arena.assert_untouched(&pod).await;
    let another = Asker::new(arena.world, "system:serviceaccount:batch:scheduler", &[MASTERS]).await;
    another.delete(&pod).await.unwrap();
    assert!(verdicts(arena.world, Webhook::Pods, &pod).iter().all(|verdict| verdict["verdict"] == "denied"));
}

#[tokio::test]
async fn scheduler_that_shows_no_preemptor_may_delete_a_pod_after_the_shorter_of_both_floors() {
    let arena = &Arena::new(guarded().await, 8).await;
    let floors = json!({"preemptMinRuntime": LONG, "reclaimMinRuntime": "10s"});
    let queue = &arena.queue("protected", floors).await;
    let pod = arena.placed(&Wish { name: "a", cpu: 1, queue, ..Wish::default() }).await;
    let end = scheduled_at(arena, &pod).await + SignedDuration::from_secs(10);
    await_held(arena, &pod).await;
    let kai = Asker::new(arena.world, KAI, &[MASTERS]).await;
    assert_asked_to_wait(&kai.delete(&pod).await.unwrap_err(), &pod);
    let may_go = async || Ok(kai.would_delete(&pod).await.ok());
    eventually("the shorter floor to end", DEADLINE, may_go).await.unwrap();
    assert!(Timestamp::now() >= end, "it could have been deleted within both floors");
    // whose nomination may be about to come
    Asker::scheduler(arena.world).await.would_delete(&pod).await.unwrap_err();
    arena.assert_untouched(&pod).await;
    kai.delete(&pod).await.unwrap();
    let denied =
        json!({"verdict": "denied", "rule": "reclaimMinRuntime", "protected-until": end.to_string()});
    await_verdict(arena.world, Webhook::Pods, &pod, &denied).await;
    let allowed = json!({"verdict": "allowed", "reason": "unprotected"});
    await_verdict(arena.world, Webhook::Pods, &pod, &allowed).await;
}

#[tokio::test]
async fn scheduler_that_deletes_many_pods_at_once_is_judged_for_each() {
    let arena = &Arena::new(guarded().await, 8).await;
    let held = held(arena, json!({"metadata": {"labels": {"of": "both"}}})).await;
    let free = json!({"metadata": {"labels": {"of": "both"}}});
    let free = arena.placed(&Wish { name: "free", cpu: 1, more: free, ..Wish::default() }).await;
    // its own rights aren't enough for this
    let scheduler = Asker::new(arena.world, SCHEDULER, &[MASTERS]).await;
    // until the guard knows both
    let refused = async || {
        let refused = scheduler.delete_all(&held, "of=both").await.unwrap_err();
        Ok(arena.namespace.get(&free).await.is_none().then_some(refused))
    };
    let refused = eventually("the one to go that isn't protected", DEADLINE, refused).await.unwrap();
    assert_asked_to_wait(&refused, &held);
    arena.assert_untouched(&held).await;
}

#[tokio::test]
async fn scheduler_may_delete_what_has_ended() {
    in_both(async |arena| {
        for phase in ["Succeeded", "Failed"] {
            let name = &phase.to_lowercase();
            let queue =
                &arena.queue(name, json!({"preemptMinRuntime": LONG, "reclaimMinRuntime": LONG})).await;
            let pod = arena.placed(&Wish { name, cpu: 1, queue, ..Wish::default() }).await;
            await_held(arena, &pod).await;
            // else kwok might set it back
            arena.namespace.await_running(1).await;
            arena.namespace.patch_status(&pod, &json!({"phase": phase})).await;
            Asker::scheduler(arena.world).await.delete(&pod).await.unwrap();
            assert_eq!(verdicts(arena.world, Webhook::Pods, &pod), Vec::<Value>::new());
        }
    })
    .await;
}

#[tokio::test]
async fn scheduler_may_delete_what_is_about_to_go() {
    in_both(async |arena| {
        let lingers = json!({
            "metadata": {"labels": {UNDYING: "true"}}, "spec": {"terminationGracePeriodSeconds": 3600},
        });
        let pod = held(arena, lingers).await;
        let scheduler = Asker::scheduler(arena.world).await;
        scheduler.would_delete(&pod).await.unwrap_err();
        arena.namespace.delete(&pod).await;
        scheduler.delete(&pod).await.unwrap();
    })
    .await;
}
