//! When the ceiling of a pod is reached.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::expiry::Family;

use super::{
    due::Outcome,
    order::{Slot, Tries, Wait},
};
use crate::times::{NEVER, milliseconds_up};

const RETRY: Wait = Wait { first: SignedDuration::from_secs(5), last: SignedDuration::from_secs(40) };

/// When a pod's ceiling is reached, in which queue, and how long before that its workload is told.
#[derive(Clone, Debug)]
pub struct Ceiling {
    pub at: Timestamp,
    pub family: Family,
    pub queue: Option<ArcStr>,
    /// Zero: not at all.
    pub notice: SignedDuration,
}

/// How far the expiry of a pod has come.
#[derive(Debug)]
pub struct Expiry {
    /// When the ceiling is reached, rounded up; [`NEVER`] if there is none.
    pub at: i64,
    /// The queue whose ceiling counts.
    pub queue: Option<ArcStr>,
    pub tries: Tries,
    pub slot: Slot,
}

impl Default for Expiry {
    fn default() -> Self {
        Self { at: NEVER, queue: None, tries: Tries::default(), slot: Slot::NONE }
    }
}

impl Expiry {
    /// Takes the ceiling that applies by now. The last one is kept by name: a notice that is withdrawn names it.
    pub fn plan(&mut self, ceiling: Option<Ceiling>) {
        self.at = ceiling.as_ref().map_or(NEVER, |ceiling| milliseconds_up(ceiling.at));
        if let Some(ceiling) = ceiling {
            self.queue = ceiling.queue;
        }
    }

    /// When something is to be done.
    pub fn next(&self) -> Slot {
        Slot::new(self.tries.lane(), self.at.max(self.tries.not_before()))
    }

    pub fn settle(&mut self, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::Acted | Outcome::Paused => self.tries.count_done(now, RETRY),
            Outcome::Failed => self.tries.count_failed(now, RETRY),
            Outcome::Final => self.tries.end(),
            Outcome::Told | Outcome::Untold => {}
        }
    }
}
