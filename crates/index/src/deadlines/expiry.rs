//! When the ceiling of a pod is reached.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::expiry::Family;

use super::order::{Slot, Step};
use crate::times::{NEVER, milliseconds_up};

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
    pub step: Step,
}

impl Default for Expiry {
    fn default() -> Self {
        Self { at: NEVER, queue: None, step: Step::default() }
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
        Slot::new(self.step.tries.lane(), self.at.max(self.step.tries.not_before()))
    }
}
