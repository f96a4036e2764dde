//! `POST /scheduler/preempt`: kube-scheduler asks which candidate nodes of a preemption remain, and with which victims.

mod caller;
mod http;
mod kept;
mod permits;
mod preemptor;
mod question;
mod recent_grants;
mod waiters;
mod wake;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tenure_service::{clock::ServerClock, limit::write_limit, readiness::ProcessReadiness};
use tokio::sync::Semaphore;

use crate::{CurrentConfig, KnownQueues, Metrics, placement::Placement};

pub use http::{MAX_PREEMPTION_BYTES, router};
use kept::KeptPods;
pub use permits::{Permit, Permits};
use recent_grants::RecentGrants;
use waiters::Waiters;
pub use wake::NominationNudger;

/// The calls to the API server a second, and in a burst, for all wake-ups together. A wake-up takes three.
const CALLS_A_SECOND: NonZeroU32 = NonZeroU32::new(20).unwrap();
const CALLS_AT_ONCE: NonZeroU32 = NonZeroU32::new(40).unwrap();

/// The longest wait of an answer for a preemptor that the index doesn't know yet. Its scheduler has just seen it.
const PATIENCE: Duration = Duration::from_millis(500);

/// The number of answers that wait so at the same time. Beyond that, answers come at once.
const MOST_PATIENT: usize = 4;

/// The number of large questions that are read and answered at the same time. A scheduler asks one after the other.
const LARGE_IN_FLIGHT: usize = 2;

/// The number of other questions that are read and answered at the same time.
const SMALL_IN_FLIGHT: usize = 16;

/// Answers kube-scheduler. Clones share their state.
#[derive(Clone, Debug)]
pub struct Extender {
    /// All pods and what protects them.
    pub placement: Placement,
    /// All queues.
    pub queues: KnownQueues,
    /// The clock by which floors end.
    pub clock: ServerClock,
    /// The configuration.
    pub config: CurrentConfig,
    /// The readiness of the watches and the clock.
    pub readiness: ProcessReadiness,
    /// The recent grants.
    pub permits: Permits,
    /// Counts grants and refusals.
    pub metrics: Metrics,
    /// True if refused preemptors are remembered, to be woken.
    wakes: bool,
    /// The turns of large questions, and of others.
    large: Arc<Semaphore>,
    small: Arc<Semaphore>,
    patience: Duration,
    patient: Arc<Semaphore>,
    waiters: Arc<Mutex<Waiters>>,
    recent_grants: Arc<Mutex<RecentGrants>>,
    kept: Arc<Mutex<KeptPods>>,
}

impl Extender {
    /// Creates an extender.
    pub fn new(
        placement: Placement,
        queues: KnownQueues,
        clock: ServerClock,
        readiness: ProcessReadiness,
        metrics: Metrics,
    ) -> Self {
        Self {
            placement,
            queues,
            clock,
            config: CurrentConfig::default(),
            readiness,
            permits: Permits::default(),
            metrics,
            wakes: false,
            large: Arc::new(Semaphore::new(LARGE_IN_FLIGHT)),
            small: Arc::new(Semaphore::new(SMALL_IN_FLIGHT)),
            patience: PATIENCE,
            patient: Arc::new(Semaphore::new(MOST_PATIENT)),
            waiters: Arc::default(),
            recent_grants: Arc::default(),
            kept: Arc::default(),
        }
    }

    /// Turns the [`NominationNudger`] of refused preemptors on or off.
    #[must_use]
    pub const fn waking(mut self, wakes: bool) -> Self {
        self.wakes = wakes;
        self
    }

    /// Sets the longest wait of an answer for a preemptor that isn't known yet.
    #[must_use]
    pub const fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The number of questions that are being read or answered.
    pub fn in_progress(&self) -> usize {
        let left = self.small.available_permits().saturating_add(self.large.available_permits());
        (SMALL_IN_FLIGHT + LARGE_IN_FLIGHT).saturating_sub(left)
    }

    /// The number of answers that wait for a preemptor that isn't known yet.
    pub fn awaiting_preemptors(&self) -> usize {
        MOST_PATIENT.saturating_sub(self.patient.available_permits())
    }

    /// Counts what floors keep from preemptors. Never ends.
    pub async fn count_kept(self) {
        let Self { kept, placement, queues, clock, metrics, .. } = self;
        kept::run(&kept, &placement, &queues, &clock, &metrics).await;
    }

    /// Returns the task that wakes refused preemptors once the floors end that were in their way; none if it is off.
    pub fn waker(&self) -> Option<NominationNudger> {
        self.wakes.then(|| NominationNudger {
            clock: self.clock.clone(),
            placement: self.placement.clone(),
            waiters: Arc::clone(&self.waiters),
            metrics: self.metrics.clone(),
            limit: write_limit(CALLS_A_SECOND, CALLS_AT_ONCE),
        })
    }
}
