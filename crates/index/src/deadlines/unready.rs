//! The time by which the workload of a pod must be ready.

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{expiry::Family, ready::Cause};

use super::order::{Lane, Slot, Step};
use crate::times::milliseconds_up;

/// The time by which a pod's workload must be ready, the cause why it isn't, and the queue that sets the time.
#[derive(Clone, Debug)]
pub struct ReadyUntil {
    pub at: Timestamp,
    pub cause: Cause,
    pub family: Family,
    pub queue: ArcStr,
}

/// The progress of the eviction of a pod whose workload isn't ready. Most workloads are.
#[derive(Debug, Default)]
pub struct Unready {
    /// None if its workload may take any time.
    pub until: Option<ReadyUntil>,
    /// Its workload was paused for it.
    pub paused: bool,
    pub step: Step,
}

impl Unready {
    /// Sets the time by which it must be ready, and keeps the tries so far.
    pub fn plan(known: Option<Box<Self>>, until: Option<ReadyUntil>) -> Option<Box<Self>> {
        let mut unready = if until.is_some() { known.unwrap_or_default() } else { known? };
        unready.until = until;
        Some(unready)
    }

    /// The time of the next task.
    pub fn next(&self) -> Slot {
        let at = self.until.as_ref().map(|until| milliseconds_up(until.at));
        at.map_or(Slot::NONE, |at| Slot::new(Lane::First, at.max(self.step.tries.not_before())))
    }
}
