//! Exemptions from the guard.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE,
    asker::{Asker, MASTERS, SCHEDULER},
    scheduling::{Arena, Wish},
    workloads::{Namespace, bare_pod},
};

use crate::{
    EXEMPT_GROUP, EXEMPT_USER, LONG, ODD_SCHEDULER, await_held, guarded, held, in_both, queue_for,
    verdicts::{Webhook, await_verdict},
};

#[tokio::test]
async fn pod_that_is_unguarded_may_go() {
    let arena = &Arena::new(guarded().await, 8).await;
    let pod = held(arena, json!({})).await;
    let scheduler = Asker::scheduler(arena.world).await;
    scheduler.would_delete(&pod).await.unwrap_err();
    arena
        .namespace
        .patch(&pod, &json!({"metadata": {"annotations": {"tenure.dev/unguarded": "true"}}}))
        .await;
    // the deletion comes with the pod as it is now
    scheduler.would_delete(&pod).await.unwrap();
    let admin = Asker::admin(arena.world).await;
    let evicted = async || Ok(admin.evict(&pod).await.ok());
    eventually("the guard to know of the annotation", DEADLINE, evicted).await.unwrap();
    let verdict = json!({"verdict": "allowed", "reason": "unguarded"});
    for webhook in [Webhook::Pods, Webhook::Evictions] {
        await_verdict(arena.world, webhook, &pod, &verdict).await;
    }
}

/// Requests of exempt users don't wait for a guard that is down either.
#[tokio::test]
async fn exempt_users_and_groups_may_do_as_they_like() {
    in_both(async |arena| {
        let pod = held(arena, json!({})).await;
        let group = &[EXEMPT_GROUP, MASTERS][..];
        for (user, groups) in
            [(EXEMPT_USER, &[MASTERS][..]), ("person", group), (SCHEDULER, group), (ODD_SCHEDULER, group)]
        {
            let exempt = Asker::new(arena.world, user, groups).await;
            exempt.would_delete(&pod).await.unwrap();
            exempt.would_evict(&pod).await.unwrap();
        }
        Asker::new(arena.world, "person", &[MASTERS]).await.would_evict(&pod).await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn pods_of_no_queue_and_of_one_that_does_not_exist_may_go() {
    let arena = &Arena::new(guarded().await, 8).await;
    // so the guard knows them
    held(arena, json!({})).await;
    let scheduler = Asker::scheduler(arena.world).await;
    let admin = Asker::admin(arena.world).await;
    for (name, queue) in [("unknown", "no-such-queue"), ("without", "")] {
        let pod = arena.placed(&Wish { name, cpu: 1, queue, ..Wish::default() }).await;
        let verdict = json!({"verdict": "allowed", "reason": "unprotected"});
        let known = async || {
            scheduler.would_delete(&pod).await.unwrap();
            admin.would_evict(&pod).await.unwrap();
            Ok(knows(arena, &pod, &verdict).then_some(()))
        };
        eventually("the guard to know the pod", DEADLINE, known).await.unwrap();
    }
}

fn knows(arena: &Arena<'_>, pod: &DynamicObject, verdict: &Value) -> bool {
    [Webhook::Pods, Webhook::Evictions].into_iter().all(|webhook| {
        let verdicts = crate::verdicts::verdicts(arena.world, webhook, pod);
        verdicts.iter().any(|of| of["reason"] == verdict["reason"])
    })
}

#[tokio::test]
async fn pods_of_exempt_namespaces_may_go() {
    in_both(async |arena| {
        let queue = queue_for(arena, LONG).await;
        let labels = json!({"kai.scheduler/queue": queue});
        let on_node = json!({"nodeSelector": {"kubernetes.io/hostname": arena.node()}});
        let scheduler = Asker::scheduler(arena.world).await;
        let mut pods = Vec::new();
        for name in ["kube-system", RELEASE_NAMESPACE] {
            let account = ["get", "serviceaccount", "default", "-n", name];
            let account = async || Ok(Some(arena.world.cluster.kubectl(&account).await?.success()?));
            eventually("the default service account", DEADLINE, account).await.unwrap();
            let namespace = Namespace::of(arena.world, name);
            let pod = namespace.create(&bare_pod(name, arena.node(), &labels, &on_node)).await;
            arena.await_placed(&pod).await;
            pods.push(pod);
        }
        // by the time that the guard knows of this one, it knows of the others
        let last = arena.placed(&Wish { name: "last", cpu: 1, queue: &queue, ..Wish::default() }).await;
        await_held(arena, &last).await;
        for pod in pods {
            scheduler.would_delete(&pod).await.unwrap();
            Asker::admin(arena.world).await.would_evict(&pod).await.unwrap();
            scheduler.delete(&pod).await.unwrap();
        }
    })
    .await;
}
