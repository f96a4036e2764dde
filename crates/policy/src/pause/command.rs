//! Commands of Volcano, by which a controller pauses and resumes an object.
//!
//! The keeper and the plugin create them. The record of such a pause is written before the Command
//! is sent, so a Command that was lost can be sent again.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::owner::OwnerObject;
use crate::owner_table::{OwnerTable, is_shown};

const VERSION: &str = "bus.volcano.sh/v1alpha1";

/// Returns the API server's path of the Commands in a namespace.
pub fn commands_path(namespace: &str) -> String {
    format!("/apis/{VERSION}/namespaces/{namespace}/commands")
}

/// Returns the Command that has the controller of an object do `action`, such as `AbortJob`.
///
/// The name of the Command depends on the object's uid and the action alone, so the API server
/// refuses a second one before the first was carried out. The object owns the Command.
pub fn command(object: OwnerObject<'_>, action: &str) -> Value {
    let [version, kind] = ["apiVersion", "kind"].map(|path| object.at(path));
    let [name, namespace, uid] = ["name", "namespace", "uid"].map(|key| object.at("metadata").get(key));
    let own = format!("tenure-{}-{}", action.to_lowercase(), uid.and_then(Value::as_str).unwrap_or_default());
    let target = json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid});
    json!({
        "apiVersion": VERSION, "kind": "Command",
        "metadata": {"name": own, "namespace": namespace, "ownerReferences": [target]},
        "action": action, "target": target, "reason": "PausedByTenure",
    })
}

/// Returns the action of a Command that an owner hasn't obeyed yet. None: no Command is outstanding
/// for this run.
///
/// A Command is outstanding if the pause in the record isn't older than the run that began at
/// `since`, and the owner's status doesn't show the pause. `since` None: the beginning isn't known,
/// and the record counts.
pub fn awaited(
    object: OwnerObject<'_>,
    owner: &OwnerReference,
    table: &OwnerTable,
    since: Option<Timestamp>,
) -> Option<String> {
    let record = object.record().filter(|record| is_shown(&record.field))?;
    let rule = table.rule(owner, &record.field).filter(|rule| !object.is_paused(rule))?;
    // a run begins in whole seconds
    let is_of_run = since.is_none_or(|since| since.as_second() <= record.at.as_second());
    Some(rule.command.as_ref().filter(|_| is_of_run)?.pause.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(phase: &str) -> Value {
        let record = json!({
            "reason": "MaxDurationExceeded", "at": "2026-01-02T03:04:05.678Z", "queue": "q", "uid": "u",
            "field": "status.state.phase", "value": "Aborted", "previousValue": "Running",
        });
        json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "status": {"state": {"phase": phase}},
            "metadata": {"name": "train", "namespace": "team", "uid": "u", "annotations": {"tenure.dev/paused": record.to_string()}},
        })
    }

    fn reference(kind: &str) -> OwnerReference {
        let api_version = "batch.volcano.sh/v1alpha1".into();
        OwnerReference {
            api_version,
            kind: kind.into(),
            name: "train".into(),
            uid: "u".into(),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn a_command_names_its_action_and_its_target() {
        let target =
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "u"});
        let expected = json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
            "metadata": {"name": "tenure-abortjob-u", "namespace": "team", "ownerReferences": [target]},
            "action": "AbortJob", "target": target, "reason": "PausedByTenure",
        });
        assert_eq!(command(OwnerObject(&job("Running")), "AbortJob"), expected);
    }

    #[test]
    fn a_command_is_awaited_until_the_status_shows_it_or_another_run_has_begun() {
        let table = OwnerTable::default();
        for (phase, since, expected) in [
            ("Running", "2026-01-02T03:00:00Z", true),
            ("Running", "2026-01-02T03:04:05Z", true),
            ("Aborting", "2026-01-02T03:00:00Z", true),
            ("Aborted", "2026-01-02T03:00:00Z", false),
            ("Running", "2026-01-02T03:04:06Z", false),
        ] {
            let object = job(phase);
            let of = |kind| awaited(OwnerObject(&object), &reference(kind), &table, since.parse().ok());
            assert_eq!(of("Job").as_deref(), expected.then_some("AbortJob"), "{phase} {since}");
            assert_eq!(of("CronJob"), None, "no rule sets that field");
        }
    }
}
