//! The reasons of events and messages.

use serde::Deserialize;

/// What tells an event from others of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventIdentity {
    /// The time of the act, and this letter after it.
    Time(&'static str),
    /// The note: the event is about an annotation.
    Note,
}

/// The properties of a reason.
#[derive(Clone, Copy, Debug)]
pub struct ReasonProperties {
    /// What tells an event from others of its object.
    pub identity: EventIdentity,
    /// True for an event of type Normal, not Warning.
    pub is_normal: bool,
    /// True for a message that a receiver gets only if it names the reason.
    pub is_on_request: bool,
}

/// A warning whose name ends with this letter.
const fn warning(letter: &'static str) -> ReasonProperties {
    ReasonProperties { identity: EventIdentity::Time(letter), is_normal: false, is_on_request: false }
}

const fn normal(letter: &'static str) -> ReasonProperties {
    ReasonProperties { is_normal: true, ..warning(letter) }
}

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
    /// A run will end.
    MaxDurationApproaching: warning("a");
    /// A run has ended: in plain words, with the action on the workload and the remedies.
    RunEnded: warning("w");
    /// A ceiling was exceeded. `RunEnded` says the same in words.
    MaxDurationExceeded: ReasonProperties { is_on_request: true, ..warning("") };
    /// A `CronJob` starts no `Job` because one is paused.
    HeldUpByPausedJob: warning("");
    /// A `CronJob` starts further Jobs while one is paused.
    PausedJobKept: ReasonProperties { is_on_request: true, ..warning("") };
    /// A paused Job of a `CronJob` was deleted, because too many of its Jobs are.
    PausedJobDeleted: warning("");
    /// Pauses don't last.
    PauseReversed: warning("r");
    /// More time was asked for.
    ExtensionRequested: normal("");
    /// A workload gets more time.
    ExtensionGranted: normal("");
    /// A workload gets no more time.
    ExtensionDenied: warning("");
    /// A run has ended with the time that it was granted.
    ExtensionUsed: normal("");
    /// A run has ended before a decision.
    ExtensionExpired: warning("");
    /// Pods weren't ready in time.
    EvictedDueToPodsReadyTimeout: warning("");
    /// A workload has come back too often.
    DeactivatedDueToRequeuingLimitExceeded: warning("");
    /// A workload comes back by itself.
    Requeued: normal("b");
    /// A workload comes back because it was activated.
    Reactivated: normal("b");
    /// A workload should come back, and the API server refuses the write.
    ReturnRefused: warning("f");
    /// An object's own ceiling is no duration.
    InvalidMaxDuration: OF_ANNOTATION;
    /// An object's own ceiling is longer than that of its queue.
    MaxDurationIgnored: OF_ANNOTATION;
    /// The queue that a workload names doesn't exist.
    QueueNotFound: OF_ANNOTATION;
    /// The pods of an object with the label of a queue have no queue.
    QueueLabelUnused: OF_ANNOTATION;
}

impl EventReason {
    /// Returns the reason of a name.
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
