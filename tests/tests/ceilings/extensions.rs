//! More time than a ceiling: asked for, granted up to what queues allow, and counted for one run of one workload.

mod claims;
mod decisions;
mod plugin;
mod races;
mod runs;

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    workloads::{Namespace, in_runai_queue, runai_queue, workload},
};

/// A queue with a ceiling that allows extensions.
fn queue(name: &str, ceiling: &str, extensions: Value) -> Value {
    let mut queue = runai_queue(name, "", ceiling);
    queue["spec"]["extensions"] = extensions;
    queue
}

/// A Job of one pod in a queue.
fn job(namespace: &Namespace, name: &str, queue: &str) -> Value {
    workload("Job", namespace.name(), name, &in_runai_queue(queue), &Value::Null)
}

/// A request for more time for a workload that exists.
fn extension(owner: &DynamicObject, name: &str, duration: &str) -> Value {
    let types = owner.types.clone().unwrap();
    let target = json!({
        "apiVersion": types.api_version, "kind": types.kind, "name": owner.name_any(), "uid": owner.uid(),
    });
    json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension",
        "metadata": {"name": name, "namespace": owner.namespace()},
        "spec": {"target": target, "duration": duration, "reason": "nearly done"},
    })
}

/// A decision about a request, as an approver writes it.
fn decision(by: &str, state: &str, granted: &str) -> Value {
    json!({"status": {
        "state": state, "granted": granted, "by": by, "at": Timestamp::now(), "message": "as discussed",
    }})
}

/// Waits until an extension has a state; returns its status.
async fn await_state(namespace: &Namespace, extension: &DynamicObject, state: &str) -> Value {
    let what = format!("extension {} to be {state}", extension.name_any());
    let status = async || {
        let status = namespace.field(extension, "status").await;
        Ok((status["state"] == state && !status["by"].is_null() || is_waiting(&status, state))
            .then_some(status))
    };
    eventually(&what, DEADLINE, status).await.unwrap()
}

fn is_waiting(status: &Value, state: &str) -> bool {
    state == "Pending" && status["state"] == state && status["message"].is_string()
}

/// The end of a workload's run as its notice says.
async fn announced(namespace: &Namespace, owner: &DynamicObject) -> Option<Timestamp> {
    let annotations = namespace.field(owner, "metadata.annotations").await;
    annotations.get("tenure.dev/expires-at")?.as_str()?.parse().ok()
}

/// Waits until the notice says this end.
async fn await_end(namespace: &Namespace, owner: &DynamicObject, end: Timestamp) {
    let what = format!("the end of {} to be {end}", owner.name_any());
    let shown = async || Ok((announced(namespace, owner).await == Some(end)).then_some(()));
    eventually(&what, DEADLINE, shown).await.unwrap();
}

const fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}
