//! `POST /scheduler/preempt`: kube-scheduler asks which candidate nodes of a preemption remain, and
//! with which victims.
//!
//! `run.rs` creates one [`Extender`] if `--scheduler-extender` is set. `tenure_index` decides about
//! victims. This module bounds the requests, remembers grants and refusals, and wakes refused
//! preemptors.

mod caller;
mod http;
mod kept;
mod permits;
mod preemptor;
mod question;
mod waiters;
mod wake;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tenure_service::limit::write_limit;
use tokio::sync::Semaphore;

use crate::{Metrics, sight::ClusterView};

pub use http::{MAX_PREEMPTION_BYTES, router};
use kept::KeptPods;
pub use permits::{Permit, Permits};
use waiters::Waiters;
pub use wake::NominationNudger;

/// The calls to the API server for all wake-ups together: each second, and in a burst. A wake-up
/// takes three calls.
const CALLS_A_SECOND: NonZeroU32 = NonZeroU32::new(20).unwrap();
const CALLS_AT_ONCE: NonZeroU32 = NonZeroU32::new(40).unwrap();

/// The longest wait for a preemptor that the index doesn't know yet. The scheduler has just seen
/// this pod.
const PATIENCE: Duration = Duration::from_millis(500);

/// The number of answers that wait for a preemptor at the same time. Further answers don't wait.
const MOST_PATIENT: usize = 4;

/// The number of large requests that are read and answered at the same time. A scheduler sends one
/// after the other.
const LARGE_IN_FLIGHT: usize = 2;

/// The number of other requests that are read and answered at the same time.
const SMALL_IN_FLIGHT: usize = 16;

/// Answers kube-scheduler. Clones share their state.
#[derive(Clone, Debug)]
pub struct Extender {
    /// All pods and queues, and what protects them.
    pub sight: ClusterView,
    /// The recent grants, which the guard reads as well.
    pub permits: Permits,
    /// True if refused preemptors are remembered, to be woken.
    pub wakes: bool,
    /// The longest wait for a preemptor that the index doesn't know yet.
    pub patience: Duration,
    /// The turns of answers that wait for a preemptor.
    pub patient: Arc<Semaphore>,
    /// The turns of large requests.
    pub large: Arc<Semaphore>,
    /// The turns of other requests.
    pub small: Arc<Semaphore>,
    metrics: Metrics,
    /// The refused preemptors that will be woken.
    waiters: Arc<Mutex<Waiters>>,
    /// Held while victims are granted.
    granting: Arc<Mutex<()>>,
    /// The pods that floors keep from preemptors.
    kept: Arc<Mutex<KeptPods>>,
}

impl Extender {
    /// Creates an extender that wakes no preemptors. The metrics count grants and refusals.
    pub fn new(sight: ClusterView, metrics: Metrics) -> Self {
        let [patient, large, small] =
            [MOST_PATIENT, LARGE_IN_FLIGHT, SMALL_IN_FLIGHT].map(|turns| Arc::new(Semaphore::new(turns)));
        let (permits, waiters, granting, kept) = Default::default();
        Self {
            sight,
            permits,
            wakes: false,
            patience: PATIENCE,
            patient,
            large,
            small,
            metrics,
            waiters,
            granting,
            kept,
        }
    }

    /// Returns the task that wakes refused preemptors once the floors in their way end. None:
    /// wake-ups are off.
    pub fn waker(&self) -> Option<NominationNudger> {
        let limit = || write_limit(CALLS_A_SECOND, CALLS_AT_ONCE);
        self.wakes.then(|| NominationNudger { extender: self.clone(), limit: limit() })
    }
}
