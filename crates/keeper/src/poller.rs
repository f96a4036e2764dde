//! The loop of the controllers that look for objects to handle, at intervals.

use std::time::Duration;

use tenure_service::{
    leadership::Leadership,
    work::{Lease, Spread, Work, WorkLimits, WorkLoop, WorkQueue},
};
use tenure_types::wait::Wait;
use tokio_util::sync::CancellationToken;

use crate::handles::Handles;

/// The loop of a controller that looks for objects to handle, at intervals.
pub struct Poller<'p> {
    pub handles: &'p Handles,
    pub lead: &'p Leadership,
    /// The end of the loop. Once cancelled, calls in flight are finished.
    pub shutdown: &'p CancellationToken,
    /// The limits of the queue.
    pub limits: WorkLimits,
}

impl Poller<'_> {
    /// Returns limits by which a failure delays all work of its namespace. While an admission
    /// webhook is down, no pod of a namespace can be written.
    pub fn limits_by_namespace() -> WorkLimits {
        let retry = Wait { first: Duration::from_secs(5), last: Duration::from_mins(1) };
        WorkLimits { retry, spread: Spread::Namespace, ..WorkLimits::default() }
    }

    /// Works whenever this keeper leads, each time with an empty queue, until the end. `fill`
    /// replaces the work, at the beginning and each time that `more` returns. `act` handles one
    /// object, and ends the lease. `lost` cleans up after a lost lead.
    pub async fn run<W: Work, A: Future<Output = ()>>(
        &self,
        fill: impl Fn(&WorkQueue<W>),
        mut more: impl AsyncFnMut(),
        act: impl Fn(Lease<W>) -> A,
        lost: impl Fn(),
    ) {
        let work = async || {
            let queue = WorkQueue::new(self.limits);
            let (gate, end) = (Some(&self.handles.gate), self.shutdown);
            let run = WorkLoop { queue: &queue, gate, end, drains: false };
            run.work(|| fill(&queue), &mut more, &act).await;
        };
        self.lead.work(self.shutdown, work, lost).await;
    }
}
