//! What pods tell autoscalers while a floor protects them.

use std::fs;

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, audit,
    workloads::{Namespace, bare_pod, in_runai_queue},
};

use super::world_with_pods;

const KARPENTER: &str = "karpenter.sh/do-not-disrupt";
const CLUSTER_AUTOSCALER: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const OURS: &str = "tenure.dev/floor-marks";

/// The annotations of a pod that autoscalers read, and ours beside them.
async fn marks(namespace: &Namespace, pod: &DynamicObject) -> [Value; 3] {
    let annotations = namespace.field(pod, "metadata.annotations").await;
    [KARPENTER, CLUSTER_AUTOSCALER, OURS].map(|key| annotations.get(key).cloned().unwrap_or_default())
}

async fn await_marks(namespace: &Namespace, pod: &DynamicObject, expected: [Value; 3]) {
    let same = async || Ok((marks(namespace, pod).await == expected).then_some(()));
    let what = format!("{:?} to have {expected:?}", pod.metadata.name);
    eventually(&what, DEADLINE, same).await.unwrap();
}

fn both() -> [Value; 3] {
    [json!("true"), json!("false"), json!(format!("{KARPENTER},{CLUSTER_AUTOSCALER}"))]
}

const NONE: [Value; 3] = [Value::Null, Value::Null, Value::Null];

/// Sets how long a queue protects its pods.
async fn protect(namespace: &Namespace, floor: &str) {
    let spec = json!({"preemptMinRuntime": floor, "reclaimMinRuntime": "0s"});
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": namespace.name()}, "spec": spec,
    });
    namespace.apply(&queue).await;
}

async fn pod(namespace: &Namespace, name: &str, queue: &str, annotations: &Value) -> DynamicObject {
    let mut pod = bare_pod(namespace.name(), name, &in_runai_queue(queue), &Value::Null);
    pod["metadata"]["annotations"] = annotations.clone();
    namespace.create(&pod).await
}

#[tokio::test]
async fn pods_show_autoscalers_their_floor_until_it_ends_also_after_a_restart() {
    let world = &*world_with_pods().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    protect(&namespace, "1h").await;
    let held = pod(&namespace, "held", name, &json!({})).await;
    let theirs = pod(&namespace, "theirs", name, &json!({KARPENTER: "false"})).await;
    let unguarded = pod(&namespace, "unguarded", name, &json!({"tenure.dev/unguarded": "true"})).await;
    let elsewhere = pod(&namespace, "elsewhere", "no-such-queue", &json!({})).await;
    await_marks(&namespace, &held, both()).await;
    let beside = [json!("false"), json!("false"), json!(CLUSTER_AUTOSCALER)];
    await_marks(&namespace, &theirs, beside).await;

    // while no keeper runs, the floor ends, and a user changes a value that Tenure wrote
    world.tenure.stop_keeper().await.unwrap();
    protect(&namespace, "1s").await;
    let changed = json!({"metadata": {"annotations": {CLUSTER_AUTOSCALER: "true"}}});
    namespace.patch(&theirs, &changed).await;
    world.tenure.start_keeper().await.unwrap();
    await_marks(&namespace, &held, NONE).await;
    await_marks(&namespace, &theirs, [json!("false"), json!("true"), Value::Null]).await;
    for pod in [&unguarded, &elsewhere] {
        assert_eq!(marks(&namespace, pod).await, NONE);
    }
    let writes = ["patch pods/held", "patch pods/held", "patch pods/theirs", "patch pods/theirs"];
    audit::assert_changes(&world.cluster, name, &writes).await;
}

#[tokio::test]
async fn pods_show_autoscalers_nothing_any_more_once_that_is_turned_off() {
    let world = &*world_with_pods().await;
    let namespace = Namespace::new(world).await;
    protect(&namespace, "1h").await;
    let held = pod(&namespace, "held", namespace.name(), &json!({})).await;
    await_marks(&namespace, &held, both()).await;
    let file = world.tenure.config_file();
    let on = fs::read_to_string(file).unwrap();
    assert!(on.contains("floorOnPods: true"), "{on}");
    fs::write(file, on.replace("floorOnPods: true", "floorOnPods: false")).unwrap();
    await_marks(&namespace, &held, NONE).await;
    // and on again, for other tests
    fs::write(file, on).unwrap();
    await_marks(&namespace, &held, both()).await;
}
