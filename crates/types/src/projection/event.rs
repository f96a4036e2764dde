//! An Event, reduced to the fields that Tenure reads. Only the plugin reads events: for workloads
//! that have ended, for `status`, and for the page of `ui`.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{self as core, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

use super::slim;

/// An Event, reduced to the fields that Tenure reads. Any user may create events, with any time.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = core::Event)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// The metadata, without the parts that no decision needs.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The object that the event is about.
    pub involved_object: ObjectReference,
    /// The time of the event. None: the time is absent, or can't be read.
    #[serde(deserialize_with = "readable")]
    pub event_time: Option<Timestamp>,
    /// The reason, in one word.
    pub reason: Option<String>,
    /// The message, for people.
    pub message: Option<String>,
    /// The action, in one word.
    pub action: Option<String>,
}

/// Reads a time. None: the time is absent, or can't be read.
fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_that_cannot_be_read_make_no_event_unreadable() {
        let late = "9999-12-31T23:59:59.000000Z";
        let event = |time: &str| {
            serde_json::from_value::<Event>(json!({
                "metadata": {"name": "e", "managedFields": [{"time": late}]}, "eventTime": time,
                "firstTimestamp": late, "lastTimestamp": late, "series": {"count": 1, "lastObservedTime": late},
                "reason": "RunEnded",
            }))
            .unwrap()
        };
        assert_eq!(event(late).event_time, None);
        let read = event("2026-01-01T00:00:00.000000Z");
        assert_eq!(read.event_time.map(|at| at.to_string()).as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(read.reason.as_deref(), Some("RunEnded"));
    }
}
