//! Owners of other kinds, in whose place this test makes pods and takes them away.

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, audit,
    fixtures::object,
    workloads::{Namespace, bare_pod, controller, distinct, owned},
};

use super::{
    scene::{PAUSED, STATE, annotation, await_eviction, place, unready, waiting},
    world,
};

const T9K: &str = "tensorstack.dev/v1beta1";

/// Kinds of owners, the field and value that pause them, and a spec that holds another value there, or none.
fn kinds() -> [(&'static str, &'static str, &'static str, Value, Value); 6] {
    let mode =
        json!({"debug": {"enabled": true}, "pause": {"enabled": false, "resumeSpecs": [{"type": "worker"}]}});
    let policy = json!({"cleanPodPolicy": "Running", "suspend": false});
    let job = "spec.runMode.pause.enabled";
    [
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            "spec.runPolicy.suspend",
            json!(true),
            json!({"runPolicy": policy}),
        ),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "spec.replicas", json!(0), json!({"replicas": 3})),
        (T9K, "SimpleMLService", "spec.replicas", json!(0), json!({"replicas": 2})),
        ("batch.tensorstack.dev/v1beta1", "GenericJob", job, json!(true), json!({"runMode": mode})),
        (T9K, "MLService", "spec.runMode", json!("paused"), json!({"runMode": "running"})),
        (T9K, "Notebook", "spec.runMode", json!("paused"), json!({})),
    ]
}

/// An owner, and a pod of it that never gets ready.
async fn create(namespace: &Namespace, owner: &Value) -> (DynamicObject, DynamicObject) {
    let owner = namespace.create(owner).await;
    let name = owner.name_any();
    let pod = bare_pod(namespace.name(), &name, &unready(namespace.name()), &Value::Null);
    let pod = namespace.create(&owned(distinct(pod, &name), &[controller(&owner)])).await;
    (owner, pod)
}

#[tokio::test]
async fn the_field_of_each_kind_of_owner_holds_again_what_it_held_and_nothing_else_has_changed() {
    let world = world().await;
    let namespace = place(world, &waiting(&json!({}))).await;
    let (mut all, mut changes) = (Vec::new(), Vec::new());
    for (api_version, kind, field, value, spec) in kinds() {
        let owner = object(api_version, kind, namespace.name(), &kind.to_lowercase(), &spec);
        let (owner, pod) = create(&namespace, &owner).await;
        // with what the API server sets by default
        let before = namespace.field(&owner, "spec").await;
        changes.extend([
            format!("patch {0}s/{0}", owner.name_any()),
            format!("patch {0}s/{0}", owner.name_any()),
        ]);
        all.push((owner, pod, field, value, before));
    }
    for (owner, pod, field, value, _) in &all {
        // while its pod is there it doesn't come back
        let (record, _) = await_eviction(&namespace, owner, 1).await;
        assert_eq!((&record["field"], &record["value"]), (&json!(field), value));
        assert_eq!(namespace.field(owner, field).await, *value);
        namespace.delete(pod).await;
    }
    for (owner, _, field, _, before) in &all {
        let name = owner.name_any();
        let back = async || Ok(annotation(&namespace, owner, PAUSED).await.is_none().then_some(()));
        eventually(&format!("{name} to come back"), DEADLINE, back).await.unwrap();
        assert_eq!(namespace.field(owner, "spec").await, *before, "{name}: {field}");
        assert_eq!(annotation(&namespace, owner, STATE).await, Some(json!({"count": 1, "priority": 0})));
    }
    audit::assert_changes(&world.cluster, namespace.name(), &changes).await;
}
