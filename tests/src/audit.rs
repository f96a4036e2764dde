//! Changes of objects, from the API server's own audit log.

use std::fs;

use jiff::Timestamp;
use serde_json::Value;
use tenure_testbed::{Cluster, RELEASE_NAMESPACE, eventually};

use crate::DEADLINE;

/// The keeper's requests of one verb on one resource in a namespace that were answered with success: the names of
/// the objects, in the order of the answers.
pub fn of_keeper(cluster: &Cluster, verb: &str, resource: &str, namespace: &str) -> Vec<String> {
    successes(cluster, "tenure-keeper", namespace)
        .filter(|entry| text(entry, "/verb") == verb && text(entry, "/objectRef/resource") == resource)
        .map(|entry| text(&entry, "/objectRef/name").to_owned())
        .collect()
}

/// The same with the times of the answers.
pub fn answers_to_keeper(
    cluster: &Cluster,
    verb: &str,
    resource: &str,
    namespace: &str,
) -> Vec<(String, Timestamp)> {
    successes(cluster, "tenure-keeper", namespace)
        .filter(|entry| text(entry, "/verb") == verb && text(entry, "/objectRef/resource") == resource)
        .map(|entry| {
            let answered = text(&entry, "/stageTimestamp").parse().expect("an entry has a time");
            (text(&entry, "/objectRef/name").to_owned(), answered)
        })
        .collect()
}

/// All that the keeper has changed in a namespace, but for events: `patch deployments/test`, in the order of the
/// answers.
pub fn changes_of_keeper(cluster: &Cluster, namespace: &str) -> Vec<String> {
    let is_change = |entry: &Value| {
        ["create", "update", "patch", "delete"].contains(&text(entry, "/verb"))
            && text(entry, "/objectRef/resource") != "events"
    };
    let told = |entry: Value| {
        let [verb, resource, name] =
            ["/verb", "/objectRef/resource", "/objectRef/name"].map(|pointer| text(&entry, pointer));
        format!("{verb} {resource}/{name}")
    };
    successes(cluster, "tenure-keeper", namespace).filter(is_change).map(told).collect()
}

/// Waits until the keeper has made as many changes in a namespace as `expected` has, and asserts that they are the
/// same, in any order. An entry of the log may come a little later than the change.
pub async fn assert_changes(cluster: &Cluster, namespace: &str, expected: &[impl AsRef<str>]) {
    let mut expected: Vec<_> = expected.iter().map(AsRef::as_ref).collect();
    expected.sort_unstable();
    let changes = async || {
        Ok(Some(changes_of_keeper(cluster, namespace)).filter(|changes| changes.len() >= expected.len()))
    };
    let mut changes = eventually(&format!("{expected:?}"), DEADLINE, changes).await.unwrap();
    changes.sort_unstable();
    assert_eq!(changes, expected);
}

/// All that the webhook has tried to change anywhere, with success or without: `patch pods/test`.
pub fn attempts_of_webhook(cluster: &Cluster) -> Vec<String> {
    let is_change = |entry: &Value| {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&text(entry, "/verb"))
    };
    let told = |entry: Value| {
        let [verb, resource, name] =
            ["/verb", "/objectRef/resource", "/objectRef/name"].map(|pointer| text(&entry, pointer));
        format!("{verb} {resource}/{name}")
    };
    entries(cluster, "tenure-webhook").into_iter().filter(is_change).map(told).collect()
}

/// The answered requests of one of our programs.
fn entries(cluster: &Cluster, account: &str) -> Vec<Value> {
    let user = format!("system:serviceaccount:{RELEASE_NAMESPACE}:{account}");
    let log = fs::read_to_string(cluster.audit_log()).expect("the audit log can be read");
    // the last line may be half written
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_answered =
        |entry: &Value| text(entry, "/stage") == "ResponseComplete" && text(entry, "/user/username") == user;
    entries.filter(is_answered).collect()
}

/// The requests of one of our programs in a namespace that were answered with success.
fn successes(cluster: &Cluster, account: &str, namespace: &str) -> impl Iterator<Item = Value> {
    let is_success = |entry: &Value| {
        text(entry, "/objectRef/namespace") == namespace
            && entry.pointer("/responseStatus/code").and_then(Value::as_u64).is_some_and(|code| code < 300)
    };
    entries(cluster, account).into_iter().filter(is_success).collect::<Vec<_>>().into_iter()
}

fn text<'a>(entry: &'a Value, pointer: &str) -> &'a str {
    entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The pods whose status the webhook has patched in a namespace, in the order of the answers.
pub fn patched_statuses(cluster: &Cluster, namespace: &str) -> Vec<String> {
    successes(cluster, "tenure-webhook", namespace)
        .filter(|entry| text(entry, "/verb") == "patch" && text(entry, "/objectRef/subresource") == "status")
        .map(|entry| text(&entry, "/objectRef/name").to_owned())
        .collect()
}
