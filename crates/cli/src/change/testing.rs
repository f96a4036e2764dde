//! Objects for tests of changes.

use std::fmt;

use serde_json::{Value, json};
use tenure_policy::{owner_table::OwnerTable, pause::OwnerObject};

use super::{ChangeCommand, ChangeSubject, ObjectChange, ObjectName};
use crate::cluster::{Clock, ResourceKinds};

impl fmt::Debug for ObjectChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectChange").field("patch", &self.patch).finish_non_exhaustive()
    }
}

fn kinds() -> ResourceKinds {
    let resource = |plural: &str, kind: &str| json!({"resource": plural, "singularResource": kind.to_lowercase(), "responseKind": {"kind": kind}, "scope": "Namespaced"});
    let group = |name: &str, resource: Value| {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": [resource]}]}),
        )
        .unwrap()
    };
    let groups = [
        group("apps", resource("deployments", "Deployment")),
        group("batch", resource("jobs", "Job")),
        group("tensorstack.dev", resource("notebooks", "Notebook")),
        group("argoproj.io", resource("rollouts", "Rollout")),
    ];
    ResourceKinds::read(groups.into_iter())
}

/// Returns the decision of a command on an object `ns/test` of this kind.
pub fn judged<C: ChangeCommand>(command: &C, kind: &str, found: &Value) -> Result<ObjectChange, String> {
    let (kinds, table) = (kinds(), OwnerTable::default());
    let object = ObjectName { kind: kinds.resolve(kind, &table).unwrap(), name: "test", namespace: "ns" };
    let metadata = &serde_json::from_value(found["metadata"].clone()).unwrap();
    let (found, table, clock) = (OwnerObject(found), &table, Clock::default());
    let subject = ChangeSubject { object, found, metadata, table, clock, verb: C::VERB };
    command.judge(subject).map_err(|error| error.to_string())
}

/// Returns the message about a change, by the object after it.
pub fn message(change: &ObjectChange, now: &Value) -> Result<String, String> {
    (change.message)(now).map_err(|error| error.to_string())
}

/// The record of a pause.
pub fn record(reason: &str, field: &str, value: &Value, previous: &Value) -> String {
    json!({
        "reason": reason, "at": "2026-01-02T03:04:05Z", "queue": "demo",
        "field": field, "value": value, "previousValue": previous,
    })
    .to_string()
}

/// An object with these annotations.
pub fn object(annotations: &[(&str, &str)], spec: &Value) -> Value {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, text)| (format!("tenure.dev/{key}"), json!(text))).collect();
    json!({"metadata": {"uid": "u", "resourceVersion": "7", "annotations": annotations}, "spec": spec})
}
