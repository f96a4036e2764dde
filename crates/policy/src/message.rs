//! Messages about the ends of runs, for receivers outside of the cluster, and which receiver gets which.

mod form;
mod receiver;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    extension::{
        EXTENSION_DENIED, EXTENSION_EXPIRED, EXTENSION_GRANTED, EXTENSION_REQUESTED, EXTENSION_USED,
    },
    pause::{
        CRON_JOB_HELD_UP, DEACTIVATED_DUE_TO_LIMIT, EVICTED_DUE_TO_PODS_READY_TIMEOUT, INVALID_MAX_DURATION,
        MAX_DURATION_APPROACHING, MAX_DURATION_EXCEEDED, MAX_DURATION_IGNORED, PAUSE_REVERSED, REACTIVATED,
        REQUEUED, RETURN_REFUSED, RUN_ENDED,
    },
};

pub use receiver::{DEFAULT_SOURCE, MessageFormat, Receiver, ReceiverUrl, SecretText, check_url};

/// The reasons of messages: those of all events.
pub const REASONS: [&str; 17] = [
    MAX_DURATION_APPROACHING,
    RUN_ENDED,
    MAX_DURATION_EXCEEDED,
    CRON_JOB_HELD_UP,
    PAUSE_REVERSED,
    EXTENSION_REQUESTED,
    EXTENSION_GRANTED,
    EXTENSION_DENIED,
    EXTENSION_USED,
    EXTENSION_EXPIRED,
    EVICTED_DUE_TO_PODS_READY_TIMEOUT,
    DEACTIVATED_DUE_TO_LIMIT,
    REQUEUED,
    REACTIVATED,
    RETURN_REFUSED,
    INVALID_MAX_DURATION,
    MAX_DURATION_IGNORED,
];

/// Reasons that a receiver gets only if it names them: [`RUN_ENDED`] says in words what the first says, and the others are
/// about annotations.
const ON_REQUEST: [&str; 3] = [MAX_DURATION_EXCEEDED, INVALID_MAX_DURATION, MAX_DURATION_IGNORED];

/// A message about an object. Tenants write its names and parts of its note.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The same for the same act, so that a receiver can tell a repetition.
    pub id: String,
    /// The reason, as that of the event.
    pub reason: &'static str,
    /// The object that the message is about.
    pub object: ObjectReference,
    /// The name of the pod that caused the act, if it is known.
    pub pod: Option<String>,
    /// The queue of that pod.
    pub queue: Option<String>,
    /// The text for people.
    pub note: String,
    /// The time of the act.
    pub time: Timestamp,
    /// The end of the run, if the message announces that.
    pub deadline: Option<Timestamp>,
}

impl Message {
    /// The namespace of the object; that of a cluster-scoped one is empty.
    pub fn namespace(&self) -> &str {
        self.object.namespace.as_deref().unwrap_or_default()
    }
}
