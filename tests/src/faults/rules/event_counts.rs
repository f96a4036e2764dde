//! The rule that each act has its events exactly once.

use tenure_policy::{
    pause::{MAX_DURATION_EXCEEDED, PODS_READY_TIMEOUT, WORKLOAD_INACTIVE},
    reason::EventReason,
};

use super::Evidence;
use crate::faults::{
    observer::OwnerState,
    scene::{Actor, Fate},
};

impl Evidence<'_> {
    /// Returns the events whose number is wrong. `is_wrong` gets the number found and the number
    /// expected.
    pub(super) fn events(&self, is_wrong: fn(usize, usize) -> bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for actor in self.actors {
            let paused = |reason: &str| {
                let of_reason =
                    |pause: &&OwnerState| pause.record.as_ref().is_some_and(|r| r.reason == reason);
                self.seen.pauses(actor.name).filter(of_reason).count()
            };
            let ended = if actor.kind == "Pod" {
                usize::from(self.deleted(actor.name).is_some())
            } else {
                paused(MAX_DURATION_EXCEEDED)
            };
            let returns =
                if actor.fate == Fate::Requeued { self.seen.resumptions(actor.name).count() } else { 0 };
            for (reason, expected) in [
                (EventReason::MaxDurationExceeded, ended),
                (EventReason::RunEnded, ended),
                (EventReason::EvictedDueToPodsReadyTimeout, paused(PODS_READY_TIMEOUT)),
                (EventReason::DeactivatedDueToRequeuingLimitExceeded, paused(WORKLOAD_INACTIVE)),
                (EventReason::Requeued, returns),
                (EventReason::MaxDurationApproaching, usize::from(actor.is_notified && ended > 0)),
            ] {
                let (found, name) = (self.seen.events(actor.name, reason.name()), reason.name());
                if is_wrong(found, expected) && !self.says_that_it_came_unannounced(actor, reason) {
                    wrong.push(format!("{found} events {name} of {}, not {expected}", actor.name));
                }
            }
        }
        wrong
    }

    /// True if there was no notice of an end, and the event of the end says so: the run ended while
    /// no keeper could give notice.
    fn says_that_it_came_unannounced(&self, actor: &Actor, reason: EventReason) -> bool {
        let message = self.seen.message(actor.name, EventReason::RunEnded.name()).unwrap_or_default();
        reason == EventReason::MaxDurationApproaching && message.contains("notice")
    }
}
