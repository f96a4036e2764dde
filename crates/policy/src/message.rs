//! Messages about the ends of runs, for receivers outside of the cluster, and which receiver gets which.

mod form;
mod receiver;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::reason::EventReason;

pub(crate) use receiver::NO_URL;

pub use receiver::{DEFAULT_SOURCE, MessageFormat, Receiver, ReceiverUrl, SecretText, check_url};

/// A message about an object. Tenants write its names and parts of its note.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The same for the same act, so that a receiver can tell a repetition.
    pub id: String,
    /// The reason, as that of the event.
    pub reason: EventReason,
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
