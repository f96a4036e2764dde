//! The record that a pause leaves on the paused object, and the annotations beside it.
//!
//! The keeper writes them, and reads the record when the object runs again; the command line shows
//! them. Fields that records of earlier versions don't have are optional, so that such records can
//! still be read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The value of annotation [`crate::keys::PAUSED_ANNOTATION`], as JSON. The patch that pauses also
/// writes the record, so neither exists without the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedRecord {
    /// The reason, in one CamelCase word. The event's reason may be a longer one.
    pub reason: String,
    /// The time of the pause, by the API server's clock (RFC 3339, UTC).
    pub at: Timestamp,
    /// The name of the queue whose rules caused the pause; empty if the workload was in no queue.
    pub queue: String,
    /// The API group of that queue: those of both groups may share a name. None in records of
    /// versions without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_group: Option<String>,
    /// The uid of the object that was paused: controllers copy annotations to other objects. None
    /// in records of versions without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The ceiling that was exceeded. None: the pause has another reason, or the record is of a
    /// version without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<ExceededCeiling>,
    /// The path of the field that was set, with dots: `spec.replicas`.
    pub field: String,
    /// The value that the field was set to. Null in records of versions that didn't write it.
    #[serde(default)]
    pub value: Value,
    /// The value of the field before the pause; null if it was absent.
    pub previous_value: Value,
    /// Other fields that the pause has set, and that are set back once the object runs again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldField>,
    /// The managers of each field that the pause has set, as they were before it. Empty in records
    /// of versions without it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub managers: BTreeMap<String, Vec<FieldManager>>,
    /// The number of times that a user or controller has set the field back since the record was
    /// first made. `kubectl tenure resume` doesn't count: it removes the record.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reversals: u32,
    /// The number of these reversals that gave the owner another run of a full ceiling after a
    /// pause for the ceiling.
    #[serde(default, skip_serializing_if = "is_default")]
    pub full_reversals: u32,
    /// The last writer of the field before this pause. None: this is the first pause, or no writer
    /// is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversed_by: Option<FieldManager>,
    /// True if the workload was to get a notice before the end of its run, and got none: the keeper
    /// didn't run then, or could not reach the API server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unannounced: bool,
}

/// A further field that a pause sets: otherwise the pause would destroy data that a resume needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldField {
    /// The path of the field, with dots.
    pub field: String,
    /// The value that the field was set to.
    pub value: String,
    /// The value of the field before the pause.
    pub previous_value: String,
}

/// A ceiling that was exceeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExceededCeiling {
    /// The length of the ceiling, as the queue has it: `2h30m`.
    pub max_duration: String,
    /// The queue that sets the ceiling, which may be an ancestor of the workload's queue. None: the
    /// workload has set the ceiling itself, by annotation [`crate::keys::MAX_DURATION_ANNOTATION`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The time that the run was granted beyond the ceiling, for people. None: no time was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended: Option<String>,
}

/// The writer of a field, as recorded in `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldManager {
    /// The name that the client gives itself.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// The subresource that was written, such as `scale`. None: the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// The time of the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

/// The value of annotation [`crate::keys::HAND_BACK_ANNOTATION`], as JSON. The write that sets
/// fields back adds the annotation, and the write that hands the fields back to their managers
/// removes it. One write can't do both: a write that changes a value makes its own manager the
/// manager of the field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandBack {
    /// The uid of the object. Controllers copy annotations to other objects.
    pub uid: String,
    /// The managers of each field before Tenure set it.
    pub fields: BTreeMap<String, Vec<FieldManager>>,
}

/// The value of annotation [`crate::keys::REQUEUE_STATE_ANNOTATION`], as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequeueState {
    /// The number of pauses because pods didn't get ready, since the workload was last activated.
    pub count: u32,
    /// The time at which the workload is to be resumed (RFC 3339, UTC). None: no return is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Timestamp>,
    /// The priority of the workload's pods. Of workloads to be resumed, those of higher priority
    /// come first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// True for the default value, which isn't written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_stable_on_the_wire() {
        let record = PausedRecord {
            reason: "MaxDurationExceeded".into(),
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
            queue: "demo".into(),
            queue_group: Some("scheduling.run.ai".into()),
            uid: Some("u".into()),
            ceiling: None,
            field: "spec.replicas".into(),
            value: 0.into(),
            previous_value: 2.into(),
            held: Vec::new(),
            managers: BTreeMap::new(),
            reversals: 0,
            full_reversals: 0,
            reversed_by: None,
            unannounced: false,
        };
        let text = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","queueGroup":"scheduling.run.ai","uid":"u","field":"spec.replicas","value":0,"previousValue":2}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        assert_eq!(serde_json::from_str::<PausedRecord>(text).unwrap(), record);
    }

    #[test]
    fn a_pause_that_follows_another_says_how_often_and_by_whom_that_was_undone() {
        let text = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","field":"spec.replicas","value":0,"previousValue":2,"reversals":2,"fullReversals":1,"reversedBy":{"manager":"argocd","operation":"Apply","time":"2026-01-02T03:00:00Z"}}"#;
        let record: PausedRecord = serde_json::from_str(text).unwrap();
        assert_eq!((record.reversals, record.full_reversals), (2, 1));
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }

    #[test]
    fn a_record_says_which_ceiling_was_exceeded() {
        let text = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"leaf","ceiling":{"maxDuration":"2h 30m","queue":"root"},"field":"spec.replicas","value":0,"previousValue":2}"#;
        let record: PausedRecord = serde_json::from_str(text).unwrap();
        assert_eq!(record.ceiling.as_ref().and_then(|ceiling| ceiling.queue.as_deref()), Some("root"));
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }

    #[test]
    fn a_record_says_which_other_fields_are_to_be_set_back() {
        let text = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","field":"spec.replicas","value":0,"previousValue":2,"held":[{"field":"spec.a","value":"Retain","previousValue":"Delete"}]}"#;
        let record: PausedRecord = serde_json::from_str(text).unwrap();
        assert_eq!(record.held.len(), 1);
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }

    #[test]
    fn a_record_says_who_managed_the_fields_before() {
        let text = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","field":"spec.replicas","value":0,"previousValue":2,"managers":{"spec.replicas":[{"manager":"helm","operation":"Apply"},{"manager":"kubectl","operation":"Update","subresource":"scale"}]}}"#;
        let record: PausedRecord = serde_json::from_str(text).unwrap();
        assert_eq!(record.managers["spec.replicas"].len(), 2);
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }

    #[test]
    fn records_without_the_newer_fields_can_be_read() {
        let text = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","field":"spec.replicas","previousValue":2}"#;
        let record: PausedRecord = serde_json::from_str(text).unwrap();
        assert_eq!((record.value, record.reversals, record.queue_group), (Value::Null, 0, None));
        assert_eq!(record.uid, None);
        assert_eq!((record.full_reversals, record.reversed_by, record.ceiling), (0, None, None));
        assert!(!record.unannounced);
    }
}
