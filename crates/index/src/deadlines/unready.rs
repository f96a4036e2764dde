//! Until when the workload of a pod must be ready.

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{expiry::Family, ready::Cause};

use super::order::{Lane, Slot, Step};
use crate::times::milliseconds_up;

/// Until when a pod's workload must be ready, and why it isn't; and the queue that says so.
#[derive(Clone, Debug)]
pub struct ReadyUntil {
    pub at: Timestamp,
    pub cause: Cause,
    pub family: Family,
    pub queue: ArcStr,
}

/// How far the eviction of a pod has come whose workload isn't ready. Most are.
#[derive(Debug, Default)]
pub struct Unready {
    /// None if its workload may take as long as it likes.
    pub until: Option<ReadyUntil>,
    /// Its workload was paused for it.
    pub paused: bool,
    pub step: Step,
}

impl Unready {
    /// Takes until when it must be ready by now, and keeps what was tried.
    pub fn plan(known: Option<Box<Self>>, until: Option<ReadyUntil>) -> Option<Box<Self>> {
        let mut unready = if until.is_some() { known.unwrap_or_default() } else { known? };
        unready.until = until;
        Some(unready)
    }

    /// When something is to be done.
    pub fn next(&self) -> Slot {
        let at = self.until.as_ref().map(|until| milliseconds_up(until.at));
        at.map_or(Slot::NONE, |at| Slot::new(Lane::First, at.max(self.step.tries.not_before())))
    }
}
