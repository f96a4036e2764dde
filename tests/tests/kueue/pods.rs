//! Plain pods that Kueue manages, alone and in groups.

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_tests::{
    audit,
    workloads::{Namespace, bare_pod, distinct, reference},
};

use super::{
    Kueue, queue,
    standin::{admitted, workload_of},
    world,
};

/// A pod of the namespace's queue that Kueue manages, with more labels.
async fn pod(namespace: &Namespace, name: &str, more: &Value) -> DynamicObject {
    let mut labels = json!({"kai.scheduler/queue": namespace.name(), "kueue.x-k8s.io/managed": "true"});
    for (key, value) in more.as_object().unwrap() {
        labels[key] = value.clone();
    }
    namespace.create(&distinct(bare_pod(namespace.name(), name, &labels, &Value::Null), name)).await
}

#[tokio::test]
async fn a_group_of_plain_pods_is_paused_as_one_by_its_workload() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    queue(&namespace, namespace.name(), &json!({"maxDuration": "6s"})).await;
    let group = json!({"kueue.x-k8s.io/pod-group-name": "group"});
    let (one, other) = (pod(&namespace, "one", &group).await, pod(&namespace, "other", &group).await);
    let mut workload = workload_of("v1beta2", &one, "group");
    workload["metadata"]["labels"] = Value::Null;
    // as Kueue does: else it would be gone with the last of its pods
    workload["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/resource-in-use"]);
    workload["metadata"]["ownerReferences"] = json!([reference(&one), reference(&other)]);
    let workload = namespace.create(&workload).await;
    namespace.patch_status(&workload, &admitted(true)).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    namespace.await_pause_of(&workload, "spec.active", &json!(false)).await;
    namespace.await_pods(&[]).await;
    audit::assert_changes(&world.cluster, namespace.name(), &["patch workloads/group"]).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert!(events[0].starts_with("Workload/group: Set spec.active to false because"), "{events:?}");
    drop(kueue);
}

#[tokio::test]
async fn a_plain_pod_is_paused_by_its_workload_and_deleted_if_another_claims_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    queue(&namespace, namespace.name(), &json!({"maxDuration": "6s"})).await;
    let alone = pod(&namespace, "alone", &json!({})).await;
    let workload = namespace.create(&workload_of("v1beta2", &alone, "pod-alone")).await;
    namespace.patch_status(&workload, &admitted(true)).await;
    // of a group whose Workload it doesn't own
    let claimed = pod(&namespace, "claimed", &json!({"kueue.x-k8s.io/pod-group-name": "pod-alone"})).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    namespace.await_pods(&[]).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 2).await;
    assert!(
        events[0].starts_with("Pod/alone: Set spec.active of its Workload pod-alone to false"),
        "{events:?}"
    );
    assert!(events[1].starts_with("Pod/claimed: Deleted because"), "{events:?}");
    let expected = ["patch workloads/pod-alone", "delete pods/claimed"];
    audit::assert_changes(&world.cluster, namespace.name(), &expected).await;
    assert!(namespace.get(&workload).await.is_none_or(|now| now.uid() == workload.uid()));
    assert!(namespace.get(&claimed).await.is_none());
    drop(kueue);
}
