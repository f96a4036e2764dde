//! Preemption for a gang by kube-scheduler itself, which asks no extender: the guard alone holds.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, eventually};
use tenure_tests::{
    DEADLINE, fixtures,
    scheduling::{self, Arena, Wish},
};
use tokio::sync::OnceCell;

use crate::{
    GUARDED, LONG, World, await_held, queue_for,
    verdicts::{Webhook, await_verdict, verdicts},
};

const API: &str = "scheduling.k8s.io/v1beta1";

/// A cluster whose kube-scheduler places gangs, with the guard and the extender.
async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let served = format!("{API}=true");
        let flags = [("feature-gates", "GenericWorkload=true"), ("runtime-config", served.as_str())];
        let cluster = Cluster::start_with_flags("guard-gangs", &flags).await?;
        let values = [&GUARDED[..], &["schedulerExtender.enabled=true"]].concat();
        let world = World::installed_on(cluster, &values, &[]).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        scheduling::configure(&world, &json!({})).await?;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// A pod that takes a whole node of the arena.
async fn victim(arena: &Arena<'_>, name: &str, node: &str, queue: &str) -> DynamicObject {
    let more = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}});
    arena.placed(&Wish { name, cpu: 8, queue, more, ..Wish::default() }).await
}

/// A gang of two pods, each of which takes a node, and is more important than all victims.
async fn gang(arena: &Arena<'_>, queue: &str) -> Vec<DynamicObject> {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 2}}, "priority": 1000});
    let group = fixtures::object(API, "PodGroup", arena.namespace.name(), "gang", &spec);
    arena.namespace.create(&group).await;
    let mut pods = Vec::new();
    for name in ["first", "second"] {
        let more = json!({"spec": {"schedulingGroup": {"podGroupName": "gang"}}});
        pods.push(arena.pod(&Wish { name, cpu: 8, queue, priority: 1000, more, ..Wish::default() }).await);
    }
    pods
}

async fn arena() -> Arena<'static> {
    let arena = Arena::new(world().await, 8).await;
    arena.add_node(&format!("{}-b", arena.node()), 8).await;
    arena
}

#[tokio::test]
async fn gang_takes_no_pod_within_its_floor_and_all_once_the_floors_are_over() {
    let arena = &arena().await;
    let queue = &queue_for(arena, "12s").await;
    let other = format!("{}-b", arena.node());
    let victims = [victim(arena, "a", arena.node(), queue).await, victim(arena, "b", &other, queue).await];
    for victim in &victims {
        await_held(arena, victim).await;
    }
    let gang = gang(arena, queue).await;
    let denied = json!({"verdict": "denied"});
    let one = async || {
        let all = victims.iter().flat_map(|victim| verdicts(arena.world, Webhook::Pods, victim));
        Ok(all.into_iter().find(|verdict| verdict["verdict"] == denied["verdict"]))
    };
    let first: Value = eventually("the guard to deny the gang a victim", DEADLINE, one).await.unwrap();
    println!("{first}");
    for pod in &gang {
        arena.await_placed(pod).await;
    }
    for victim in &victims {
        assert!(arena.namespace.get(victim).await.is_none());
    }
}

#[tokio::test]
async fn gang_of_pods_that_are_not_safe_preempts_them() {
    let arena = &arena().await;
    let queue = &arena.queue("none", json!({})).await;
    let other = format!("{}-b", arena.node());
    victim(arena, "a", arena.node(), queue).await;
    victim(arena, "b", &other, queue).await;
    for pod in &gang(arena, queue).await {
        arena.await_placed(pod).await;
    }
}

#[tokio::test]
async fn victim_that_is_not_safe_goes_though_another_one_of_the_gang_is_kept() {
    let arena = &arena().await;
    let other = format!("{}-b", arena.node());
    let safe = &queue_for(arena, LONG).await;
    let kept = victim(arena, "kept", arena.node(), safe).await;
    await_held(arena, &kept).await;
    let unsafe_queue = &arena.queue("none", json!({})).await;
    let lost = victim(arena, "lost", &other, unsafe_queue).await;
    gang(arena, unsafe_queue).await;
    await_verdict(arena.world, Webhook::Pods, &kept, &json!({"verdict": "denied"})).await;
    arena.assert_untouched(&kept).await;
    arena.await_preempted(&lost).await;
}
