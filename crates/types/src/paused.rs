//! The record that a pause leaves on the paused object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The value of annotation [`crate::keys::PAUSED_ANNOTATION`], as JSON. It is written by the very patch that
/// pauses, so that neither is ever there without the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedRecord {
    /// Why, in one CamelCase word, the same as the event's reason.
    pub reason: String,
    /// When, by the API server's clock (RFC 3339, UTC).
    pub at: Timestamp,
    /// Name of the queue whose ceiling was exceeded.
    pub queue: String,
    /// Path of the field that was set, with dots: `spec.replicas`.
    pub field: String,
    /// What the field held before; null when it was absent.
    pub previous_value: Value,
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
            field: "spec.replicas".into(),
            previous_value: 2.into(),
        };
        let text = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","field":"spec.replicas","previousValue":2}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        assert_eq!(serde_json::from_str::<PausedRecord>(text).unwrap(), record);
    }
}
