//! What was done to the API server, from its own audit log.

use std::fs;

use serde_json::Value;
use tenure_testbed::{Cluster, RELEASE_NAMESPACE};

/// The keeper's requests of one verb on one resource in a namespace that were answered with success: the names of
/// the objects, in the order of the answers.
pub fn of_keeper(cluster: &Cluster, verb: &str, resource: &str, namespace: &str) -> Vec<String> {
    let user = format!("system:serviceaccount:{RELEASE_NAMESPACE}:tenure-keeper");
    let log = fs::read_to_string(cluster.audit_log()).expect("the audit log can be read");
    // the last line may be half written
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries
        .filter(|entry| {
            let is = |pointer, value: &str| entry.pointer(pointer).and_then(Value::as_str) == Some(value);
            is("/stage", "ResponseComplete")
                && is("/user/username", &user)
                && is("/verb", verb)
                && is("/objectRef/resource", resource)
                && is("/objectRef/namespace", namespace)
                && entry
                    .pointer("/responseStatus/code")
                    .and_then(Value::as_u64)
                    .is_some_and(|code| code < 300)
        })
        .map(|entry| entry.pointer("/objectRef/name").and_then(Value::as_str).unwrap_or_default().to_owned())
        .collect()
}
