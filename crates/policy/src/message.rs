//! Messages about the ends of runs for receivers outside of the cluster, and the choice of their
//! receivers.
//!
//! The keeper asks [`Receiver::wants`] about each event, builds a [`Message`] from the event, and
//! posts [`Message::body`] to the URL.

mod form;
mod receiver;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::reason::EventReason;

pub(crate) use receiver::NO_URL;

pub use receiver::{DEFAULT_SOURCE, MessageFormat, Receiver, ReceiverUrl, SecretText, check_url};

/// A message about an object. Tenants write the names in it and parts of its note, so both forms
/// clean these texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The identity of the act. A message that is sent again has the same, so that a receiver can
    /// drop the repetition.
    pub id: String,
    /// The reason, which is also that of the event.
    pub reason: EventReason,
    /// The object that the message is about.
    pub object: ObjectReference,
    /// The name of the pod that caused the act. None: it isn't known.
    pub pod: Option<String>,
    /// The queue of that pod. None: it isn't known.
    pub queue: Option<String>,
    /// The text for people.
    pub note: String,
    /// The time of the act.
    pub time: Timestamp,
    /// The end of the run that the message announces. None: it announces none.
    pub deadline: Option<Timestamp>,
}

impl Message {
    /// Returns the namespace of the object; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.object.namespace.as_deref().unwrap_or_default()
    }
}
