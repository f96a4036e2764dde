//! The patch that pauses an owner, and whether it took.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_types::{keys, paused::PausedRecord};

use crate::owners::PauseRule;

/// Reason of the event and of the record when a ceiling was exceeded.
pub const MAX_DURATION_EXCEEDED: &str = "MaxDurationExceeded";

/// The whole object to be paused, as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'o>(pub &'o Value);

impl<'o> Owner<'o> {
    /// What the rule's field holds; null if it is absent.
    pub fn field(self, rule: &PauseRule) -> &'o Value {
        rule.field.split('.').fold(self.0, |value, key| value.get(key).unwrap_or(&Value::Null))
    }

    /// Whether it is paused, by whomever.
    pub fn is_paused(self, rule: &PauseRule) -> bool {
        *self.field(rule) == rule.value
    }

    /// The record that a pause of ours left; none if there is none that can be read.
    pub fn record(self) -> Option<PausedRecord> {
        serde_json::from_str(self.annotation()?).ok()
    }

    fn annotation(self) -> Option<&'o str> {
        self.0.get("metadata")?.get("annotations")?.get(keys::PAUSED_ANNOTATION)?.as_str()
    }
}

/// The record of a pause at `at` for the ceiling of `queue`.
pub fn record(owner: Owner<'_>, rule: &PauseRule, queue: &str, at: Timestamp) -> PausedRecord {
    PausedRecord {
        reason: MAX_DURATION_EXCEEDED.into(),
        at,
        queue: queue.into(),
        field: rule.field.clone(),
        previous_value: owner.field(rule).clone(),
    }
}

/// One merge patch that pauses and leaves the record. With the object's uid and resourceVersion as
/// preconditions it can't hit a namesake, nor happen twice, nor undo what somebody has changed since the object
/// was read.
pub fn patch(owner: Owner<'_>, rule: &PauseRule, record: &PausedRecord) -> Value {
    let metadata = |key: &str| owner.0.get("metadata").and_then(|m| m.get(key)).cloned().unwrap_or_default();
    let mut patch = nested(&rule.field, rule.value.clone());
    patch.insert(
        "metadata".into(),
        json!({
            "uid": metadata("uid"),
            "resourceVersion": metadata("resourceVersion"),
            "annotations": {keys::PAUSED_ANNOTATION: json!(record).to_string()},
        }),
    );
    Value::Object(patch)
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
pub fn message(rule: &PauseRule) -> String {
    let value = rule.value.as_str().map_or_else(|| rule.value.to_string(), str::to_owned);
    format!("Set {} to {value} because its pod's lifetime exceeded maxDuration defined in Queue", rule.field)
}

/// The message of the event on a pod that was deleted.
pub const DELETED_MESSAGE: &str = "Deleted because its lifetime exceeded maxDuration defined in Queue";

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(field: &str, value: Value) -> PauseRule {
        PauseRule { group: String::new(), kind: String::new(), field: field.into(), value }
    }

    fn deployment() -> Value {
        json!({"metadata": {"name": "d", "uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 2}})
    }

    #[test]
    fn the_patch_pauses_records_and_is_preconditioned() {
        let (object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let owner = Owner(&object);
        let record = record(owner, &rule, "demo", "2026-01-02T03:04:05Z".parse().unwrap());
        let annotation = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","field":"spec.replicas","previousValue":2}"#;
        let mut expected: Value = json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {}},
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
        let record = record(Owner(&object), &rule, "q", Timestamp::UNIX_EPOCH);
        assert_eq!(record.previous_value, Value::Null);
        let patch = patch(Owner(&object), &rule, &record);
        assert_eq!(patch["spec"], json!({"runMode": {"pause": {"enabled": true}}}));
    }

    #[test]
    fn a_pruned_field_and_a_lost_record_are_failures() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let record = record(Owner(&object), &rule, "q", Timestamp::UNIX_EPOCH);
        assert!(!took(Owner(&object), &rule, &record));
        object["spec"]["replicas"] = json!(0);
        assert!(!took(Owner(&object), &rule, &record));
        object["metadata"]["annotations"] = json!({"tenure.dev/paused": json!(record).to_string()});
        assert!(took(Owner(&object), &rule, &record));
    }

    #[test]
    fn the_message_says_which_field_was_set() {
        let of = |field, value| message(&rule(field, value));
        let rest = "because its pod's lifetime exceeded maxDuration defined in Queue";
        assert_eq!(of("spec.replicas", json!(0)), format!("Set spec.replicas to 0 {rest}"));
        assert_eq!(of("spec.suspend", json!(true)), format!("Set spec.suspend to true {rest}"));
        assert_eq!(of("spec.runMode", json!("paused")), format!("Set spec.runMode to paused {rest}"));
    }
}
