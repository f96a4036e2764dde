//! What floors keep from preemptors is counted.

use kube::core::DynamicObject;
use serde_json::json;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    keeper::Metrics,
    scheduling::{Arena, Wish},
};

use super::world;

const GPU: &str = "nvidia.com/gpu";

/// A pod with four GPUs.
fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    let resources = json!({"requests": {"cpu": "1", GPU: "4"}, "limits": {GPU: "4"}});
    let container = json!({"name": "main", "image": "example.com/image", "resources": resources});
    let more = json!({"spec": {"containers": [container]}});
    Wish { name, queue, priority, cpu: 1, class: "", more }
}

async fn kept(arena: &Arena<'_>, queue: &str) -> Option<f64> {
    let [webhook, _] = arena.world.tenure.admin_urls();
    let series = format!(
        "tenure_webhook_kept_resource_seconds_total{{family=\"run.ai\",queue=\"{queue}\",resource=\"{GPU}\"}}"
    );
    Metrics::of(webhook).await.gauge(&series)
}

async fn await_more(arena: &Arena<'_>, queue: &str, than: f64) -> f64 {
    eventually(&format!("more than {than} seconds of GPUs"), DEADLINE, async || {
        Ok(kept(arena, queue).await.filter(|seconds| *seconds > than))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn gpus_that_a_floor_keeps_from_a_preemptor_are_counted_by_queue_until_the_floor_ends() {
    let arena = Arena::new(world().await, 4).await;
    let gpus = json!({GPU: "4"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": arena.node()}});
    let node = serde_json::from_value(node).unwrap();
    arena.namespace.patch_status(&node, &json!({"capacity": gpus, "allocatable": gpus})).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "30s"})).await;
    let victim = arena.placed(&wish("victim", &queue, 100)).await;
    assert_eq!(kept(&arena, &queue).await, None, "nothing has asked for it");
    let preemptor = arena.pod(&wish("preemptor", &queue, 200)).await;
    arena.await_refused(&preemptor).await;
    let seconds = await_more(&arena, &queue, 0.0).await;
    await_more(&arena, &queue, seconds).await;
    arena.await_preempted(&victim).await;
    // at most from the victim's placement to the end of its floor, four of them
    let seconds = kept(&arena, &queue).await.unwrap();
    assert!(seconds <= 120.0, "{seconds}");

    let queue =
        json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": queue}});
    let of_queue: DynamicObject = serde_json::from_value(queue).unwrap();
    arena.namespace.delete(&of_queue).await;
    let name = of_queue.metadata.name.unwrap();
    let gone = async || Ok(kept(&arena, &name).await.is_none().then_some(()));
    eventually("the series to go with its queue", DEADLINE, gone).await.unwrap();
}
