//! Evictions of `lifecycle.k8s.io`, which wait for the floors of pods that name Tenure. Kubernetes has no controller for
//! them yet: the tests write what it would, on a real API server.

use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, fixtures,
    scheduling::{Arena, Wish},
};

use crate::{await_held, queue_for, scheduled_at, with_alpha_apis};

pub const API: &str = "lifecycle.k8s.io/v1alpha1";

const TENURE: &str = "tenure.dev/floor";

/// The responder of Kubernetes itself, which evicts.
const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";

/// The time now, in whole seconds.
fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap()
}

/// A pod within a floor, which names Tenure as a responder.
async fn pod(arena: &Arena<'_>, floor: &str) -> DynamicObject {
    let queue = &queue_for(arena, floor).await;
    let more = json!({"spec": {"evictionResponders": [{"name": TENURE, "priority": 20_000}]}});
    let pod = arena.placed(&Wish { name: "kept", cpu: 1, queue, more, ..Wish::default() }).await;
    await_held(arena, &pod).await;
    pod
}

/// An Eviction of a pod, in which Tenure is to respond first.
async fn eviction(arena: &Arena<'_>, pod: &DynamicObject) -> DynamicObject {
    let target = json!({"name": TENURE, "priority": 20_000, "state": "Active"});
    let next = json!({"name": EVICTOR, "priority": 100, "state": "Inactive"});
    let status = json!({
        "targetResponders": [target, next],
        "responders": [{"name": TENURE, "startTime": now()}, {"name": EVICTOR}],
    });
    eviction_with(arena, pod, &status).await
}

/// An Eviction of a pod with a status.
async fn eviction_with(arena: &Arena<'_>, pod: &DynamicObject, status: &Value) -> DynamicObject {
    let target = json!({"target": {"pod": {"name": pod.name_any(), "uid": pod.uid().unwrap()}}});
    let mut eviction = fixtures::object(API, "Eviction", arena.namespace.name(), "of-kept", &target);
    eviction["metadata"]["labels"] = json!({TENURE: "responder"});
    let eviction = arena.namespace.create(&eviction).await;
    let admin = arena.world.cluster.client().unwrap();
    patch_status(admin, arena, status).await.unwrap();
    eviction
}

/// Writes the status of the arena's Eviction.
async fn patch_status(client: Client, arena: &Arena<'_>, status: &Value) -> kube::Result<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("lifecycle.k8s.io", "v1alpha1", "Eviction"));
    let evictions = Api::<DynamicObject>::namespaced_with(client, arena.namespace.name(), &resource);
    let patch = Patch::Merge(json!({"status": status}));
    evictions.patch_status("of-kept", &PatchParams::default(), &patch).await
}

/// Waits until Tenure's entry has a field. Returns the entry.
async fn await_entry(arena: &Arena<'_>, eviction: &DynamicObject, field: &str) -> Value {
    let entry = async || {
        let responders = arena.namespace.field(eviction, "status.responders").await;
        let entry = responders.as_array().and_then(|all| all.iter().find(|of| of["name"] == TENURE).cloned());
        Ok(entry.filter(|entry| entry.get(field).is_some()))
    };
    eventually(&format!("the entry to have {field}"), DEADLINE, entry).await.unwrap()
}

#[tokio::test]
async fn an_eviction_waits_for_the_end_of_the_floor_and_is_then_passed_on() {
    let arena = &Arena::new(with_alpha_apis().await, 8).await;
    let pod = pod(arena, "40s").await;
    let end = scheduled_at(arena, &pod).await + SignedDuration::from_secs(40);
    let eviction = eviction(arena, &pod).await;

    let held = await_entry(arena, &eviction, "heartbeatTime").await;
    assert_eq!((&held["expectedCompletionTime"], held.get("completionTime")), (&json!(end), None), "{held}");
    let message = held["message"].as_str().unwrap();
    assert!(message.contains(&format!("is protected from being evicted until {end}")), "{message}");

    let done = await_entry(arena, &eviction, "completionTime").await;
    assert!(done["completionTime"].as_str().unwrap().parse::<Timestamp>().unwrap() >= end, "{done}");
    arena.assert_untouched(&pod).await;
}

#[tokio::test]
async fn an_eviction_of_a_pod_that_is_gone_is_passed_on() {
    let arena = &Arena::new(with_alpha_apis().await, 8).await;
    let pod = pod(arena, "1h").await;
    arena.namespace.delete(&pod).await;
    let eviction = eviction(arena, &pod).await;
    await_entry(arena, &eviction, "completionTime").await;
}

/// Also with the webhook's token in the wrong hands.
#[tokio::test]
async fn webhook_may_write_no_entry_of_another_responder() {
    let arena = &Arena::new(with_alpha_apis().await, 8).await;
    let pod = pod(arena, "1h").await;
    let target = json!({"name": EVICTOR, "priority": 100, "state": "Active"});
    let entry = json!({"name": EVICTOR, "startTime": now()});
    let status = json!({"targetResponders": [target], "responders": [entry]});
    eviction_with(arena, &pod, &status).await;
    let cluster = &arena.world.cluster;
    let webhook = cluster.service_account_kubeconfig("tenure-system", "tenure-webhook").await.unwrap();
    let webhook = cluster.client_of(&webhook).await.unwrap();
    let mut entry = entry;
    entry["completionTime"] = json!(now());
    let refused =
        patch_status(webhook, arena, &json!({"responders": [entry]})).await.unwrap_err().to_string();
    assert!(refused.contains("tenure-accounts"), "{refused}");
}
