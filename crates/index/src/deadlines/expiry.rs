//! The time at which the ceiling of a pod is reached.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::expiry::Family;

use super::order::{Slot, Step};
use crate::times::{NEVER, milliseconds_up};

/// The time at which a pod's ceiling is reached, the queue that sets it, and the length of the notice before it.
#[derive(Clone, Debug)]
pub struct Ceiling {
    pub at: Timestamp,
    pub family: Family,
    pub queue: Option<ArcStr>,
    /// Zero: no notice.
    pub notice: SignedDuration,
}

/// The progress of a pod's expiry.
#[derive(Debug)]
pub struct Expiry {
    /// The time at which the ceiling is reached, rounded up; [`NEVER`] if there is none.
    pub at: i64,
    /// The queue whose ceiling counts.
    pub queue: Option<ArcStr>,
    pub step: Step,
}

impl Default for Expiry {
    fn default() -> Self {
        Self { at: NEVER, queue: None, step: Step::default() }
    }
}

impl Expiry {
    /// Sets the ceiling that applies now. The queue of the last one is kept: a notice that is withdrawn names it.
    pub fn plan(&mut self, ceiling: Option<Ceiling>) {
        self.at = ceiling.as_ref().map_or(NEVER, |ceiling| milliseconds_up(ceiling.at));
        if let Some(ceiling) = ceiling {
            self.queue = ceiling.queue;
        }
    }

    /// The time of the next task.
    pub fn next(&self) -> Slot {
        Slot::new(self.step.tries.lane(), self.at.max(self.step.tries.not_before()))
    }
}
