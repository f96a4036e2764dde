//! A namespace with a queue of its name, workloads that don't get ready, and their annotations.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, distinct, workload},
};

pub const PAUSED: &str = "tenure.dev/paused";
pub const STATE: &str = "tenure.dev/requeue-state";
pub const ACTIVE: &str = "tenure.dev/active";

/// A wait in seconds. No workload comes back by itself before the end of a test.
pub const LONG: i32 = 600;

/// The time that pods have to get ready. It is enough for a pod that can, on a busy machine.
pub const TIMEOUT: SignedDuration = SignedDuration::from_secs(5);

/// A block that gives pods [`TIMEOUT`].
pub fn waiting(strategy: &Value) -> Value {
    json!({"waitForPodsReady": {"timeout": format!("{TIMEOUT:#}"), "requeuingStrategy": strategy}})
}

/// A block by which no workload comes back by itself in a test.
pub fn waiting_long() -> Value {
    waiting(&json!({"backoffBaseSeconds": LONG}))
}

/// A queue of the run.ai family.
pub async fn queue(namespace: &Namespace, name: &str, spec: &Value) {
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
    });
    namespace.create(&queue).await;
}

/// A namespace with a queue of the same name.
pub async fn place(world: &World, spec: &Value) -> Namespace {
    let namespace = Namespace::new(world).await;
    queue(&namespace, namespace.name(), spec).await;
    namespace
}

/// Labels of pods in a queue that never get ready.
pub fn unready(queue: &str) -> Value {
    json!({"kai.scheduler/queue": queue, UNREADY: "true"})
}

/// A Job of two pods.
pub fn job_of(namespace: &Namespace, name: &str, labels: &Value) -> Value {
    let mut job = distinct(workload("Job", namespace.name(), name, labels, &Value::Null), name);
    job["spec"]["parallelism"] = json!(2);
    job["spec"]["completions"] = json!(2);
    job
}

/// A Job of two pods in the queue of the namespace that never get ready.
pub async fn job(namespace: &Namespace, name: &str) -> DynamicObject {
    namespace.create(&job_of(namespace, name, &unready(namespace.name()))).await
}

/// The present value of an annotation: JSON, or a text.
pub async fn annotation(namespace: &Namespace, object: &DynamicObject, key: &str) -> Option<Value> {
    let annotations = namespace.field(object, "metadata.annotations").await;
    let text = annotations.get(key)?.as_str()?.to_owned();
    Some(serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Sets annotations, or removes those that are null.
pub async fn annotate(namespace: &Namespace, object: &DynamicObject, annotations: &Value) {
    namespace.patch(object, &json!({"metadata": {"annotations": annotations}})).await;
}

/// Waits until an object was evicted this many times, and returns the record and the state.
pub async fn await_eviction(namespace: &Namespace, object: &DynamicObject, count: u64) -> (Value, Value) {
    let evicted = async || {
        let record = annotation(namespace, object, PAUSED).await;
        let state = annotation(namespace, object, STATE).await;
        Ok(record.zip(state).filter(|(_, state)| state["count"] == count && state["requeueAt"].is_string()))
    };
    eventually(&format!("eviction {count}"), DEADLINE, evicted).await.unwrap()
}

/// Waits until a Job isn't suspended.
pub async fn await_running(namespace: &Namespace, job: &DynamicObject) {
    let running = async || {
        let suspended = namespace.field(job, "spec.suspend").await;
        Ok((suspended != json!(true)).then_some(()))
    };
    eventually("the Job to come back", DEADLINE, running).await.unwrap();
}

/// Has objects that wait come back at another time.
pub async fn return_at(namespace: &Namespace, objects: &[&DynamicObject], at: Timestamp) {
    for object in objects {
        let mut state = annotation(namespace, object, STATE).await.unwrap();
        state["requeueAt"] = json!(at);
        annotate(namespace, object, &json!({STATE: state.to_string()})).await;
    }
}

pub fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// The time between a record and the return.
pub fn wait(record: &Value, state: &Value) -> i64 {
    time(&state["requeueAt"]).duration_since(time(&record["at"])).as_secs()
}
