//! The reasons of events and messages, with all that depends on the reason alone.
//!
//! The keeper names events by a reason, receivers of messages choose by it, and the documentation
//! lists all of them. A name is part of the interface: users filter events by it.

use serde::Deserialize;

/// The fact that distinguishes an event from others about the same object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventIdentity {
    /// The time of the act, followed by this letter.
    Time(&'static str),
    /// The note, since the event is about an annotation.
    Note,
}

/// The properties of a reason.
#[derive(Clone, Copy, Debug)]
pub struct ReasonProperties {
    /// The fact that distinguishes an event from others about the same object.
    pub identity: EventIdentity,
    /// True for an event of type `Normal`. False for type `Warning`.
    pub is_normal: bool,
    /// True for a message that a receiver gets only if its configuration names the reason.
    pub is_on_request: bool,
}

/// Returns the properties of a `Warning` whose identity ends with this letter.
const fn warning(letter: &'static str) -> ReasonProperties {
    ReasonProperties { identity: EventIdentity::Time(letter), is_normal: false, is_on_request: false }
}

/// Returns the properties of an event of type `Normal`.
const fn normal(letter: &'static str) -> ReasonProperties {
    ReasonProperties { is_normal: true, ..warning(letter) }
}

/// The properties of a `Warning` about an annotation or a label that has no effect.
const OF_ANNOTATION: ReasonProperties =
    ReasonProperties { identity: EventIdentity::Note, is_on_request: true, ..warning("") };

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident: $properties:expr;)*) => {
        /// The reason of an event, and of the message about the same act.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        pub enum EventReason {
            $($(#[$doc])* $name,)*
        }

        impl EventReason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the name, a CamelCase word.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// Returns the properties.
            pub const fn properties(self) -> ReasonProperties {
                match self { $(Self::$name => $properties),* }
            }
        }
    };
}

reasons! {
    /// The run of a workload will end.
    MaxDurationApproaching: warning("a");
    /// A run has ended: in plain words, with the action on the workload and the remedies.
    RunEnded: warning("w");
    /// A ceiling was exceeded. `RunEnded` says the same in words.
    MaxDurationExceeded: ReasonProperties { is_on_request: true, ..warning("") };
    /// A `CronJob` starts no further Job because one of its Jobs is paused.
    HeldUpByPausedJob: warning("");
    /// A `CronJob` starts further Jobs while one is paused.
    PausedJobKept: ReasonProperties { is_on_request: true, ..warning("") };
    /// A paused Job of a `CronJob` was deleted, because the `CronJob` has too many paused Jobs.
    PausedJobDeleted: warning("");
    /// The pauses of an owner were undone by another writer.
    PauseReversed: warning("r");
    /// A user has requested more time for a run.
    ExtensionRequested: normal("");
    /// A workload gets more time.
    ExtensionGranted: normal("");
    /// A workload gets no more time.
    ExtensionDenied: warning("");
    /// A run has ended with the time that it was granted.
    ExtensionUsed: normal("");
    /// A run has ended before its request for more time was decided.
    ExtensionExpired: warning("");
    /// A pod was deleted, because it has no room for the evidence that bounds its run.
    EvidenceRefused: warning("");
    /// Pods weren't ready in time.
    EvictedDueToPodsReadyTimeout: warning("");
    /// A workload has come back as often as it may, and stays paused.
    DeactivatedDueToRequeuingLimitExceeded: warning("");
    /// A workload comes back by itself.
    Requeued: normal("b");
    /// A workload comes back because it was activated.
    Reactivated: normal("b");
    /// A workload should come back, and the API server refuses the write.
    ReturnRefused: warning("f");
    /// A workload's own ceiling is no duration.
    InvalidMaxDuration: OF_ANNOTATION;
    /// A workload's own ceiling is longer than that of its queue.
    MaxDurationIgnored: OF_ANNOTATION;
    /// The queue that a workload names doesn't exist.
    QueueNotFound: OF_ANNOTATION;
    /// An owner has the label of a queue, and its pods have no queue.
    QueueLabelUnused: OF_ANNOTATION;
}

impl EventReason {
    /// Returns the reason of this name. None: there is no such reason.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_by_its_name() {
        for reason in EventReason::ALL.iter().copied() {
            assert_eq!(EventReason::named(reason.name()), Some(reason));
        }
        assert_eq!(EventReason::named("Deactivated"), None);
    }
}
