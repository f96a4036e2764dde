//! The patch that pauses an owner, and whether it took.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tenure_types::{
    keys,
    paused::{PausedRecord, RequeueState},
};

use crate::{expiry::Family, owners::PauseRule};

/// Reason of the event and of the record when a ceiling was exceeded.
pub const MAX_DURATION_EXCEEDED: &str = "MaxDurationExceeded";

/// Reason of the event that tells beforehand.
pub const MAX_DURATION_APPROACHING: &str = "MaxDurationApproaching";

/// Reason of the event when pauses don't last.
pub const PAUSE_REVERSED: &str = "PauseReversed";

/// So many reversals of one owner's pauses are told to people: one may be a person's own doing.
pub const TOLD_REVERSALS: u32 = 2;

/// The whole object to be paused, as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'o>(pub &'o Value);

impl<'o> Owner<'o> {
    /// What the rule's field holds; null if it is absent.
    pub fn field(self, rule: &PauseRule) -> &'o Value {
        self.at(&rule.field)
    }

    fn at(self, path: &str) -> &'o Value {
        path.split('.').fold(self.0, |value, key| value.get(key).unwrap_or(&Value::Null))
    }

    /// When it was told that its run will end; none if it wasn't, or in words that can't be read.
    pub fn announced(self) -> Option<Timestamp> {
        self.annotation(keys::EXPIRES_AT_ANNOTATION)?.parse().ok()
    }

    /// Whether it is paused, by whomever.
    pub fn is_paused(self, rule: &PauseRule) -> bool {
        *self.field(rule) == rule.value
    }

    /// Whether it says that its work has ended, well or not. Pausing such a Job would be noise.
    pub fn is_finished(self) -> bool {
        let conditions = self.0.pointer("/status/conditions").and_then(Value::as_array);
        let is = |condition: &Value, key: &str, values: &[&str]| {
            condition.get(key).and_then(Value::as_str).is_some_and(|value| values.contains(&value))
        };
        let of_job = self.0.get("kind").and_then(Value::as_str) == Some("Job");
        of_job
            && conditions.into_iter().flatten().any(|condition| {
                is(condition, "type", &["Complete", "Failed"]) && is(condition, "status", &["True"])
            })
    }

    /// The record that a pause of ours left; none if there is none that can be read.
    pub fn record(self) -> Option<PausedRecord> {
        serde_json::from_str(self.annotation(keys::PAUSED_ANNOTATION)?).ok()
    }

    fn annotation(self, key: &str) -> Option<&'o str> {
        self.0.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }
}

/// The record that a pause left on an object; none if there is none that can be read.
pub fn record_on(metadata: &ObjectMeta) -> Option<PausedRecord> {
    noted(metadata, keys::PAUSED_ANNOTATION)
}

/// When an object is to be resumed by itself; none if it isn't, or can't be read.
pub fn requeue_state_on(metadata: &ObjectMeta) -> Option<RequeueState> {
    noted(metadata, keys::REQUEUE_STATE_ANNOTATION)
}

fn noted<T: DeserializeOwned>(metadata: &ObjectMeta, key: &str) -> Option<T> {
    serde_json::from_str(metadata.annotations.as_ref()?.get(key)?).ok()
}

/// The record of a pause at `at` for the ceiling of a queue, of a family and by name. One of an earlier pause that is still there shows that
/// somebody has reversed that.
pub fn record(
    owner: Owner<'_>,
    rule: &PauseRule,
    (family, queue): (Family, &str),
    at: Timestamp,
) -> PausedRecord {
    PausedRecord {
        reason: MAX_DURATION_EXCEEDED.into(),
        at,
        queue: queue.into(),
        queue_group: Some(family.group().into()),
        field: rule.field.clone(),
        value: rule.value.clone(),
        previous_value: owner.field(rule).clone(),
        reversals: owner.record().map_or(0, |before| before.reversals.saturating_add(1)),
    }
}

/// One merge patch that pauses, leaves the record, and takes the announcement away.
pub fn patch(owner: Owner<'_>, rule: &PauseRule, record: &PausedRecord) -> Value {
    let mut patch = nested(&rule.field, rule.value.clone());
    let annotations = json!({
        keys::PAUSED_ANNOTATION: json!(record).to_string(),
        keys::EXPIRES_AT_ANNOTATION: null,
    });
    patch.insert("metadata".into(), preconditioned(owner, &annotations));
    Value::Object(patch)
}

/// One merge patch that takes a pause back: what the field held before, and no record.
pub fn resume(owner: Owner<'_>, record: &PausedRecord) -> Value {
    // the field may have been set to something else since: that is not ours to undo
    let ours = owner.at(&record.field) == &record.value || record.value.is_null();
    let mut patch = if ours { nested(&record.field, record.previous_value.clone()) } else { Map::new() };
    patch.insert("metadata".into(), preconditioned(owner, &json!({keys::PAUSED_ANNOTATION: null})));
    Value::Object(patch)
}

/// One merge patch that says when the run will end.
pub fn announce(owner: Owner<'_>, at: Timestamp) -> Value {
    let annotations = json!({keys::EXPIRES_AT_ANNOTATION: at.to_string()});
    json!({"metadata": preconditioned(owner, &annotations)})
}

/// One merge patch that takes away what was said of the end of the run.
pub fn withdraw(owner: Owner<'_>) -> Value {
    json!({"metadata": preconditioned(owner, &json!({keys::EXPIRES_AT_ANNOTATION: null}))})
}

/// With the object's uid and resourceVersion as preconditions a patch can't hit a namesake, nor happen twice, nor undo
/// what somebody has changed since the object was read.
fn preconditioned(owner: Owner<'_>, annotations: &Value) -> Value {
    let metadata = |key: &str| owner.0.get("metadata").and_then(|m| m.get(key)).cloned().unwrap_or_default();
    json!({
        "uid": metadata("uid"), "resourceVersion": metadata("resourceVersion"), "annotations": annotations,
    })
}

fn nested(path: &str, value: Value) -> Map<String, Value> {
    let wrap = |inner: Value, key: &str| Value::Object(Map::from_iter([(key.to_owned(), inner)]));
    match path.rsplit('.').fold(value, wrap) {
        Value::Object(fields) => fields,
        // fold wraps at least once: a split has at least one part
        _ => Map::new(),
    }
}

/// Whether the object that the server returned shows the pause and its record. A structural schema prunes
/// fields that it doesn't know, and the server still answers 200.
pub fn took(returned: Owner<'_>, rule: &PauseRule, record: &PausedRecord) -> bool {
    returned.is_paused(rule) && returned.record().as_ref() == Some(record)
}

/// The message of the event on a paused owner.
pub fn message(record: &PausedRecord) -> String {
    let PausedRecord { field, value, .. } = record;
    format!(
        "Set {field} to {} because its pod's lifetime exceeded maxDuration defined in Queue",
        plain(value)
    )
}

/// A text without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The message of the event on a pod that was deleted.
pub const DELETED_MESSAGE: &str = "Deleted because its lifetime exceeded maxDuration defined in Queue";

/// The message in a dry run, which does nothing else.
pub fn dry_run(message: &str) -> String {
    format!("Dry run, nothing was done: {message}")
}

/// The message of the event on an owner whose pause was reversed again.
pub fn reversed(record: &PausedRecord) -> String {
    format!(
        "{} was set back {} times after it was set to {}: if a controller does so (an autoscaler, Argo CD, Flux), have it ignore {0}",
        record.field,
        record.reversals,
        plain(&record.value)
    )
}

/// The message of the event on a workload whose run will end at `at`.
pub fn approaching(at: Timestamp, queue: &str) -> String {
    format!("Its run in Queue {queue} ends at {at}: save what is needed to go on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(field: &str, value: Value) -> PauseRule {
        PauseRule { group: String::new(), kind: String::new(), field: field.into(), value }
    }

    const QUEUE: (Family, &str) = (Family::Runai, "q");

    fn deployment() -> Value {
        json!({"metadata": {"name": "d", "uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 2}})
    }

    #[test]
    fn the_patch_pauses_records_and_is_preconditioned() {
        let (object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let owner = Owner(&object);
        let record =
            record(owner, &rule, (Family::Tensorstack, "demo"), "2026-01-02T03:04:05Z".parse().unwrap());
        let annotation = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","queueGroup":"scheduler.tensorstack.dev","field":"spec.replicas","value":0,"previousValue":2}"#;
        let mut expected: Value = json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {"tenure.dev/expires-at": null}},
            "spec": {"replicas": 0},
        });
        expected["metadata"]["annotations"]["tenure.dev/paused"] =
            serde_json::from_str::<PausedRecord>(annotation)
                .map(|record| json!(record).to_string().into())
                .unwrap();
        assert_eq!(patch(owner, &rule, &record), expected);
    }

    #[test]
    fn deep_fields_are_set_without_touching_their_siblings() {
        let object = json!({"metadata": {}});
        let rule = rule("spec.runMode.pause.enabled", json!(true));
        let record = record(Owner(&object), &rule, QUEUE, Timestamp::UNIX_EPOCH);
        assert_eq!(record.previous_value, Value::Null);
        let patch = patch(Owner(&object), &rule, &record);
        assert_eq!(patch["spec"], json!({"runMode": {"pause": {"enabled": true}}}));
    }

    #[test]
    fn a_pause_of_what_was_paused_before_counts_as_reversed() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        for expected in 0..3 {
            let record = record(Owner(&object), &rule, QUEUE, Timestamp::UNIX_EPOCH);
            assert_eq!(record.reversals, expected);
            object["metadata"]["annotations"] = json!({"tenure.dev/paused": json!(record).to_string()});
        }
    }

    #[test]
    fn a_pause_is_taken_back_with_its_record() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let record = record(Owner(&object), &rule, QUEUE, Timestamp::UNIX_EPOCH);
        object["spec"]["replicas"] = json!(0);
        let metadata =
            json!({"uid": "u", "resourceVersion": "7", "annotations": {"tenure.dev/paused": null}});
        let expected = json!({"metadata": metadata, "spec": {"replicas": 2}});
        assert_eq!(resume(Owner(&object), &record), expected);
        object["spec"]["replicas"] = json!(5);
        assert_eq!(resume(Owner(&object), &record), json!({"metadata": metadata}), "not ours to undo");
    }

    #[test]
    fn a_job_that_has_ended_is_finished() {
        let job = |kind: &str, condition: &str, status: &str| json!({"kind": kind, "status": {"conditions": [{"type": condition, "status": status}]}});
        assert!(Owner(&job("Job", "Complete", "True")).is_finished());
        assert!(Owner(&job("Job", "Failed", "True")).is_finished());
        assert!(!Owner(&job("Job", "Failed", "False")).is_finished());
        assert!(!Owner(&job("Job", "Suspended", "True")).is_finished());
        assert!(!Owner(&job("Deployment", "Failed", "True")).is_finished());
        assert!(!Owner(&json!({"kind": "Job"})).is_finished());
    }

    #[test]
    fn a_pruned_field_and_a_lost_record_are_failures() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let record = record(Owner(&object), &rule, QUEUE, Timestamp::UNIX_EPOCH);
        assert!(!took(Owner(&object), &rule, &record));
        object["spec"]["replicas"] = json!(0);
        assert!(!took(Owner(&object), &rule, &record));
        object["metadata"]["annotations"] = json!({"tenure.dev/paused": json!(record).to_string()});
        assert!(took(Owner(&object), &rule, &record));
    }

    #[test]
    fn the_message_says_which_field_was_set() {
        let owner = deployment();
        let record = |field, value| record(Owner(&owner), &rule(field, value), QUEUE, Timestamp::UNIX_EPOCH);
        let of = |field, value| message(&record(field, value));
        let rest = "because its pod's lifetime exceeded maxDuration defined in Queue";
        assert_eq!(of("spec.replicas", json!(0)), format!("Set spec.replicas to 0 {rest}"));
        assert_eq!(of("spec.suspend", json!(true)), format!("Set spec.suspend to true {rest}"));
        assert_eq!(of("spec.runMode", json!("paused")), format!("Set spec.runMode to paused {rest}"));
    }
}
