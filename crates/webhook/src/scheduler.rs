//! `POST /scheduler/preempt`: kube-scheduler asks its extender which of the candidate nodes of a preemption hold, and
//! with which victims.

mod http;
mod permits;
mod question;
mod waiters;
mod wake;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tenure_policy::floor::Floors;
use tenure_service::{clock::ServerClock, readiness::Readiness};

use crate::{KnownQueues, Metrics, placement::Placement};

pub use http::{MAX_PREEMPTION_BYTES, router};
pub use permits::{Permit, Permits};
pub(crate) use question::Counts;
use waiters::Waiters;
pub use wake::Waker;

/// Answers kube-scheduler. Clones are one.
#[derive(Clone, Debug)]
pub struct Extender {
    /// All pods and what protects them.
    pub placement: Placement,
    /// All queues.
    pub queues: KnownQueues,
    /// By which floors are over.
    pub clock: ServerClock,
    /// As configured.
    pub floors: Arc<RwLock<Floors>>,
    /// Whether all that is there is known.
    pub readiness: Readiness,
    /// What was granted of late.
    pub permits: Permits,
    /// What was granted and refused is counted here.
    pub metrics: Metrics,
    waiters: Arc<Mutex<Waiters>>,
}

impl Extender {
    /// One that has been asked nothing yet.
    pub fn new(
        placement: Placement,
        queues: KnownQueues,
        clock: ServerClock,
        readiness: Readiness,
        metrics: Metrics,
    ) -> Self {
        Self {
            placement,
            queues,
            clock,
            floors: Arc::default(),
            readiness,
            permits: Permits::default(),
            metrics,
            waiters: Arc::default(),
        }
    }

    /// Goes by other floors from now on.
    pub fn configure(&self, floors: Floors) {
        *self.floors.write() = floors;
    }

    /// What wakes those who were refused, once the floors end that were in their way.
    pub fn waker(&self) -> Waker {
        Waker { clock: self.clock.clone(), waiters: Arc::clone(&self.waiters), metrics: self.metrics.clone() }
    }
}
