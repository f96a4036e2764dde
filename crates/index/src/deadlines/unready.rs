//! Until when the workload of a pod must be ready.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{expiry::Family, ready::Cause};

use super::{
    due::Outcome,
    order::{Lane, Slot, Tries, Wait},
};
use crate::times::milliseconds_up;

const RETRY: Wait = Wait { first: SignedDuration::from_secs(5), last: SignedDuration::from_secs(40) };

/// Until when a pod's workload must be ready, and why it isn't; and the queue that says so.
#[derive(Clone, Debug)]
pub struct ReadyUntil {
    pub at: Timestamp,
    pub cause: Cause,
    pub family: Family,
    pub queue: ArcStr,
}

/// How far the eviction of a pod has come whose workload isn't ready. Most are.
#[derive(Debug)]
pub struct Unready {
    pub until: i64,
    pub cause: Cause,
    /// The queue that says so, of a family.
    pub family: Family,
    pub queue: ArcStr,
    /// Its workload was paused for it.
    pub paused: bool,
    pub tries: Tries,
    pub slot: Slot,
}

impl Unready {
    /// Takes until when it must be ready by now, and keeps what was tried.
    pub fn plan(known: Option<&Self>, until: ReadyUntil) -> Self {
        let ReadyUntil { at, cause, family, queue } = until;
        Self {
            until: milliseconds_up(at),
            cause,
            family,
            queue,
            paused: known.is_some_and(|known| known.paused),
            tries: known.map(|known| known.tries).unwrap_or_default(),
            slot: known.map(|known| known.slot).unwrap_or_default(),
        }
    }

    /// When something is to be done.
    pub fn next(&self) -> Slot {
        Slot::new(Lane::First, self.until.max(self.tries.not_before()))
    }

    pub fn settle(&mut self, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::Acted | Outcome::Paused => self.tries.count_done(now, RETRY),
            Outcome::Failed => self.tries.count_failed(now, RETRY),
            Outcome::Final => self.tries.end(),
            Outcome::Told | Outcome::Untold => {}
        }
        self.paused |= outcome == Outcome::Paused;
    }
}
