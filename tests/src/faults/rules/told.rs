//! The rule that everything is told once.

use tenure_policy::pause::{
    DEACTIVATED_DUE_TO_LIMIT, EVICTED_DUE_TO_PODS_READY_TIMEOUT, MAX_DURATION_APPROACHING,
    MAX_DURATION_EXCEEDED, PODS_READY_TIMEOUT, REQUEUED, RUN_ENDED, WORKLOAD_INACTIVE,
};

use super::Evidence;
use crate::faults::{
    observer::OwnerState,
    scene::{Actor, Fate},
};

impl Evidence<'_> {
    /// The events of which there are too many or too few.
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
                (MAX_DURATION_EXCEEDED, ended),
                (RUN_ENDED, ended),
                (EVICTED_DUE_TO_PODS_READY_TIMEOUT, paused(PODS_READY_TIMEOUT)),
                (DEACTIVATED_DUE_TO_LIMIT, paused(WORKLOAD_INACTIVE)),
                (REQUEUED, returns),
                (MAX_DURATION_APPROACHING, usize::from(actor.is_told && ended > 0)),
            ] {
                let found = self.seen.events(actor.name, reason);
                if is_wrong(found, expected) && !self.says_that_it_came_unannounced(actor, reason) {
                    wrong.push(format!("{found} events {reason} of {}, not {expected}", actor.name));
                }
            }
        }
        wrong
    }

    /// True if there was no notice of an end, and the event of the end says so: of a run that ended while no keeper
    /// could give notice.
    fn says_that_it_came_unannounced(&self, actor: &Actor, reason: &str) -> bool {
        let message = self.seen.message(actor.name, RUN_ENDED).unwrap_or_default();
        reason == MAX_DURATION_APPROACHING && message.contains("notice")
    }
}
