//! What an owner says of itself and of its pauses.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_types::{
    keys,
    paused::{PausedRecord, RequeueState},
};

use super::INACTIVE;
use crate::owners::PauseRule;

/// The whole object to be paused, as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'o>(pub &'o Value);

impl<'o> Owner<'o> {
    /// What the rule's field holds; null if it is absent.
    pub fn field(self, rule: &PauseRule) -> &'o Value {
        self.at(&rule.field)
    }

    /// What the field at a path holds, as in `spec.replicas`; null if it is absent.
    pub fn at(self, path: &str) -> &'o Value {
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
        read(self.annotation(keys::PAUSED_ANNOTATION)?)
    }

    /// How often it has come back, and when it does so; by default if it never had to, or if that can't be read.
    pub fn requeue_state(self) -> RequeueState {
        self.annotation(keys::REQUEUE_STATE_ANNOTATION).and_then(read).unwrap_or_default()
    }

    /// Whether somebody has deactivated it.
    pub fn is_inactive(self) -> bool {
        self.annotation(keys::ACTIVE_ANNOTATION) == Some(INACTIVE)
    }

    fn annotation(self, key: &str) -> Option<&'o str> {
        self.0.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }
}

/// The record that a pause left on an object; none if there is none that can be read.
pub fn record_on(metadata: &ObjectMeta) -> Option<PausedRecord> {
    noted(metadata, keys::PAUSED_ANNOTATION)
}

/// How often an object has come back, and when it does so; by default if it never had to, or if that can't be read.
pub fn requeue_state_on(metadata: &ObjectMeta) -> RequeueState {
    noted(metadata, keys::REQUEUE_STATE_ANNOTATION).unwrap_or_default()
}

/// Whether somebody has deactivated an object.
pub fn is_inactive(metadata: &ObjectMeta) -> bool {
    metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(keys::ACTIVE_ANNOTATION))
        .is_some_and(|text| text == INACTIVE)
}

fn noted<T: DeserializeOwned>(metadata: &ObjectMeta, key: &str) -> Option<T> {
    read(metadata.annotations.as_ref()?.get(key)?)
}

/// What a pause writes is shorter by far. Anybody who may write the object may write more.
const LONGEST_NOTE: usize = 16 * 1024;

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok().filter(|_| text.len() <= LONGEST_NOTE)
}
