//! Changes of objects, from the API server's own audit log. Tests assert by it what Tenure has
//! written, and what it has left alone.
//!
//! An entry may come a little later than its answer, so a test that expects a change waits, as
//! [`assert_changes`] does.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
};

use jiff::Timestamp;
use serde_json::Value;
use tenure_policy::pause::{HAND_BACK_MANAGER, SHOWN_END_MANAGER};
use tenure_testbed::{Cluster, RELEASE_NAMESPACE, eventually};

use crate::DEADLINE;

/// Returns the names of the objects of the keeper's successful requests of one verb on one resource
/// in a namespace, in the order of the log.
pub fn of_keeper(cluster: &Cluster, verb: &str, resource: &str, namespace: &str) -> Vec<String> {
    successes(cluster, "tenure-keeper", namespace)
        .filter(|entry| text(entry, "/verb") == verb && text(entry, "/objectRef/resource") == resource)
        .map(|entry| text(&entry, "/objectRef/name").to_owned())
        .collect()
}

/// Returns the names and the times of the answers to the requests of [`of_keeper`].
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

/// Returns the keeper's changes in a namespace, such as `patch deployments/test`, in the order of
/// the log. Events, fields that are handed back, and ends shown without a notice are left out.
pub fn changes_of_keeper(cluster: &Cluster, namespace: &str) -> Vec<String> {
    Trail { begin: 0 }.changes_of_keeper(cluster, namespace)
}

/// The entries from a moment on. In a long run, the whole log is too long to be read again and
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Trail {
    /// The length of the log at that moment, in bytes.
    begin: u64,
}

impl Trail {
    /// Begins now.
    pub fn begin(cluster: &Cluster) -> Self {
        let log = fs::metadata(cluster.audit_log()).expect("the audit log can be read");
        Self { begin: log.len() }
    }

    /// Returns the same as [`changes_of_keeper`], since the beginning of the trail.
    pub fn changes_of_keeper(self, cluster: &Cluster, namespace: &str) -> Vec<String> {
        let is_change = |entry: &Value| {
            ["create", "update", "patch", "delete"].contains(&text(entry, "/verb"))
                && text(entry, "/objectRef/resource") != "events"
        };
        let line = |entry: Value| {
            let [verb, resource, name] =
                ["/verb", "/objectRef/resource", "/objectRef/name"].map(|pointer| text(&entry, pointer));
            format!("{verb} {resource}/{name}")
        };
        let entries = entries_since(cluster, "tenure-keeper", namespace, self.begin);
        entries
            .into_iter()
            .filter(|entry| is_success(entry, namespace) && is_change(entry))
            .map(line)
            .collect()
    }
}

/// Waits until the keeper has made as many changes in a namespace as `expected` has, and asserts
/// that both are the same, in any order.
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

/// Returns the changes that the webhook has tried to make anywhere, with success or without: `patch
/// pods/test`.
pub fn attempts_of_webhook(cluster: &Cluster) -> Vec<String> {
    let is_change = |entry: &Value| {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&text(entry, "/verb"))
    };
    let line = |entry: Value| {
        let [verb, resource, name] =
            ["/verb", "/objectRef/resource", "/objectRef/name"].map(|pointer| text(&entry, pointer));
        format!("{verb} {resource}/{name}")
    };
    entries_since(cluster, "tenure-webhook", "", 0).into_iter().filter(is_change).map(line).collect()
}

/// Returns the same as [`all_entries_since`], but writes that hand fields back, and writes that
/// show ends without a notice: whether such a write comes before the next pause is a matter of
/// moments.
fn entries_since(cluster: &Cluster, account: &str, namespace: &str, begin: u64) -> Vec<Value> {
    let is_aside = |entry: &Value| {
        let uri = text(entry, "/requestURI");
        [HAND_BACK_MANAGER, SHOWN_END_MANAGER].iter().any(|manager| uri.contains(manager))
    };
    let mut entries = all_entries_since(cluster, account, namespace, begin);
    entries.retain(|entry| !is_aside(entry));
    entries
}

/// Returns the objects of a kind in a namespace on which the keeper has shown the end of a run, or
/// has moved it, without a notice.
pub fn shown_ends(cluster: &Cluster, resource: &str, namespace: &str) -> Vec<String> {
    let is_of = |entry: &Value| {
        is_success(entry, namespace)
            && text(entry, "/objectRef/resource") == resource
            && text(entry, "/requestURI").contains(SHOWN_END_MANAGER)
    };
    let entries = all_entries_since(cluster, "tenure-keeper", namespace, 0).into_iter().filter(is_of);
    entries.map(|entry| text(&entry, "/objectRef/name").to_owned()).collect()
}

/// Returns the answered requests of a program of Tenure, but dry runs, without the first `begin`
/// bytes of the log. Entries that don't have the text `namespace` are left out unread: most of the
/// log is of other tests.
fn all_entries_since(cluster: &Cluster, account: &str, namespace: &str, begin: u64) -> Vec<Value> {
    let user = format!("system:serviceaccount:{RELEASE_NAMESPACE}:{account}");
    let mut log = File::open(cluster.audit_log()).expect("the audit log can be read");
    log.seek(SeekFrom::Start(begin)).expect("the audit log is longer");
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes).expect("the audit log can be read");
    let log = String::from_utf8_lossy(&bytes);
    // the first line and the last one may be parts of lines
    let entries = log.lines().filter(|line| line.contains(namespace) && line.contains(&user));
    let entries = entries.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_answered = |entry: &Value| {
        text(entry, "/stage") == "ResponseComplete"
            && text(entry, "/user/username") == user
            // the keeper asks before it deletes
            && !text(entry, "/requestURI").contains("dryRun=All")
    };
    entries.filter(is_answered).collect()
}

/// Returns the requests of a program of Tenure in a namespace that were answered with success.
fn successes(cluster: &Cluster, account: &str, namespace: &str) -> impl Iterator<Item = Value> {
    let entries = entries_since(cluster, account, namespace, 0).into_iter();
    entries.filter(|entry| is_success(entry, namespace)).collect::<Vec<_>>().into_iter()
}

fn is_success(entry: &Value, namespace: &str) -> bool {
    text(entry, "/objectRef/namespace") == namespace
        && entry.pointer("/responseStatus/code").and_then(Value::as_u64).is_some_and(|code| code < 300)
}

fn text<'a>(entry: &'a Value, pointer: &str) -> &'a str {
    entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the pods whose status the webhook has patched in a namespace, in the order of the log.
pub fn patched_statuses(cluster: &Cluster, namespace: &str) -> Vec<String> {
    successes(cluster, "tenure-webhook", namespace)
        .filter(|entry| text(entry, "/verb") == "patch" && text(entry, "/objectRef/subresource") == "status")
        .map(|entry| text(&entry, "/objectRef/name").to_owned())
        .collect()
}

/// A write of a pod that was answered with success.
#[derive(Debug)]
pub struct PodWrite {
    /// The name of the pod.
    pub name: String,
    /// The verb, such as `delete`.
    pub verb: String,
    /// The subresource, such as `status`. Empty: the pod itself.
    pub subresource: String,
    /// The user who made the request.
    pub user: String,
    /// The time of the request.
    pub at: Timestamp,
}

/// True for a deletion that the API server may have made though its client was killed meanwhile.
fn is_cut_off(entry: &Value, namespace: &str) -> bool {
    text(entry, "/objectRef/namespace") == namespace
        && text(entry, "/verb") == "delete"
        && entry.pointer("/responseStatus/code").and_then(Value::as_u64) == Some(504)
}

/// Returns all writes of pods in a namespace, in the order of the log.
pub fn writes_of_pods(cluster: &Cluster, namespace: &str) -> Vec<PodWrite> {
    let log = File::open(cluster.audit_log()).expect("the audit log can be read");
    let lines = BufReader::new(log).lines().map_while(Result::ok);
    let entries = lines.filter(|line| line.contains("\"pods\"") && line.contains(namespace));
    let entries = entries.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let is_write = |entry: &Value| {
        text(entry, "/stage") == "ResponseComplete"
            && text(entry, "/objectRef/resource") == "pods"
            && ["create", "update", "patch", "delete"].contains(&text(entry, "/verb"))
            && (is_success(entry, namespace) || is_cut_off(entry, namespace))
    };
    let write = |entry: &Value| PodWrite {
        name: text(entry, "/objectRef/name").to_owned(),
        verb: text(entry, "/verb").to_owned(),
        subresource: text(entry, "/objectRef/subresource").to_owned(),
        user: text(entry, "/user/username").to_owned(),
        at: text(entry, "/requestReceivedTimestamp").parse().expect("an entry has a time"),
    };
    entries.filter(is_write).map(|entry| write(&entry)).collect()
}
