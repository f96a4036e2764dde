//! A webhook, and reviews for it.

use axum::Router;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tenure_webhook::{KnownQueues, LargeBodies, Metrics, Mutator, Validator, router};

/// The uid of every request.
pub const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// A webhook that knows these queues of the run.ai family.
pub fn webhook(queues: KnownQueues) -> Router {
    let metrics = Metrics::register(&mut Registry::default());
    router(Validator::new(queues, "t9k-system".into()), Mutator::default(), metrics, &LargeBodies::default())
}

/// A review as the API server writes one, of a Queue named demo.
pub fn review(group: &str, operation: &str, object: &Value, old: &Value) -> Value {
    let version = if group == "scheduling.run.ai" { "v3alpha1" } else { "v1beta1" };
    let kind = json!({"group": group, "version": version, "kind": "Queue"});
    let resource = json!({"group": group, "version": version, "resource": "queues"});
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": "demo",
            "namespace": "t9k-system",
            "operation": operation,
            "userInfo": {"username": "admin", "uid": "014fbff9a07c", "groups": ["system:authenticated"], "extra": {"a": ["b"]}},
            "object": object,
            "oldObject": old,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}
