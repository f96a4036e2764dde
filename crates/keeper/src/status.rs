//! Reports the workloads of each queue of the run.ai family in its status.
//!
//! `Args::write` runs the [`StatusController`] while this keeper leads. The reports are counted again after
//! changes, at a limited rate, and compared with the statuses that the watch shows: so nothing is
//! written twice, and a field that another writer removes is restored.

mod known;
mod write;

use std::{cell::Cell, collections::HashSet, num::NonZeroU32, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    log::with_causes,
    work::{Lease, WorkLimits, WorkLoop, WorkQueue},
};
use tenure_types::{projection::ObservedStatus, runai::QueueVersion};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    handles::Handles,
    limit::WriteLimit,
    metrics::{StatusResult, label},
    sleep,
};
use known::{StaleStatus, Write};
use write::StatusWriteError;

pub use known::Statuses;

/// The least time between two counts: a busy cluster changes all the time.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Counts take at most one part in this number of the time, because all other readers of the index
/// wait meanwhile.
const PART_OF_TIME: u32 = 50;

/// The number of statuses that are written at the same time. The limit sets the rate, and this
/// number only hides latency.
const AT_ONCE: usize = 8;

/// The most statuses that are written a second, on average: people read statuses, which must not
/// cost the API server much.
pub const WRITES_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);
/// The most statuses that are written at once.
pub const BURST: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);

/// The controller of statuses.
pub struct StatusController {
    pub handles: Arc<Handles>,
    /// The version in which queues are read, and therefore written.
    pub version: QueueVersion,
    /// The limit of status writes.
    pub limit: WriteLimit,
    /// The problems that were logged since a write last succeeded.
    pub complaints: Mutex<HashSet<Complaint>>,
}

/// A problem that concerns all queues, and is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Complaint {
    /// The keeper lacks the right to write statuses.
    Forbidden,
    /// The served schema lacks fields of the status.
    Schema,
}

impl StatusController {
    /// Works whenever this keeper leads, until `shutdown`; then finishes the writes that are in flight.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let lost = || self.handles.metrics.workloads.lock().clear();
        lead.work(shutdown, async || self.work(shutdown).await, lost).await;
    }

    /// Counts and writes until `shutdown`. Counts again after changes of the index, and when a
    /// count is no longer right by the clock.
    async fn work(&self, shutdown: &CancellationToken) {
        let queue = WorkQueue::new(WorkLimits { at_once: AT_ONCE, ..WorkLimits::default() });
        let Handles { cluster, config, .. } = &*self.handles;
        let mut changes = cluster.changes();
        let (next, until) = (Cell::new(Instant::now()), Cell::new(None));
        let fill = || {
            let begun = Instant::now();
            let (config, now) = (config.get(), self.handles.now());
            let statuses = &self.handles.statuses;
            let (tally, generations) =
                cluster.with(|index| (index.tally(&config.floors, now), statuses.generations()));
            let workloads = tally.reports.iter().map(|(queue, report)| (queue.clone(), report.workloads));
            *self.handles.metrics.workloads.lock() = workloads.collect();
            let reports = tally.reports.into_iter().map(|(name, report)| (name, report.of(self.version)));
            queue.replace(statuses.report(reports, &generations));
            until.set(tally.until);
            next.set(begun + POLL_INTERVAL.max(begun.elapsed().saturating_mul(PART_OF_TIME)));
        };
        let more = async || {
            sleep_until(next.get()).await;
            tokio::select! {
                () = changes.next() => {}
                () = self.reach(until.get()) => {}
            }
        };
        let run = WorkLoop { queue: &queue, gate: None, end: shutdown, drains: false };
        run.work(fill, more, async |lease| self.write(&queue, lease).await).await;
    }

    /// Returns at a time by the API server's clock. None: never returns.
    async fn reach(&self, until: Option<Timestamp>) {
        let Some(until) = until else { return std::future::pending().await };
        while self.handles.now() < until {
            sleep::towards(&self.handles.clock, Some(until)).await;
        }
    }

    /// Writes one status, and adds the result to the known statuses.
    async fn write(&self, queue: &WorkQueue<StaleStatus>, lease: Lease<StaleStatus>) {
        let Some(write) = self.handles.statuses.write(&lease.work) else { return lease.done() };
        let result = self.put(&write).await;
        if matches!(result, Err(StatusWriteError::Api(ApiError::NotLeading))) {
            return lease.again(POLL_INTERVAL);
        }
        self.handles.metrics.statuses.inc([&label(self.log_result(&write, &result))]);
        let status = result.ok();
        let has_failed = status.is_none();
        self.handles.statuses.written(&write, status);
        if has_failed {
            return lease.failed();
        }
        // a count may have shown another report during the write
        if self.handles.statuses.write(&lease.work).is_some() {
            queue.push(StaleStatus::clone(&lease.work));
        }
        lease.done();
    }

    /// Logs the result of a write, and returns the result for the metric.
    fn log_result(&self, write: &Write, result: &Result<ObservedStatus, StatusWriteError>) -> StatusResult {
        let queue = &write.name;
        match result {
            Ok(status) => {
                self.complaints.lock().clear();
                let left = write.report.difference(status, write.generation).children;
                debug!(%queue, child_queues_left_alone = left, "Wrote the status");
                if left { StatusResult::ChildrenLeft } else { StatusResult::Written }
            }
            Err(StatusWriteError::Api(ApiError::NotFound | ApiError::Stale(_))) => {
                // if the queue is gone, the watch shows that; an API server whose definitions are
                // replaced answers so for a moment
                debug!(%queue, "Gone, or changed too fast, when its status was to be written");
                StatusResult::Gone
            }
            Err(error) => {
                self.complain(write, error);
                StatusResult::Failed
            }
        }
    }

    /// Logs a failed write. A problem that concerns all queues is logged once until a write
    /// succeeds.
    fn complain(&self, write: &Write, error: &StatusWriteError) {
        let (queue, why) = (&write.name, with_causes(error));
        let is_new = |complaint| self.complaints.lock().insert(complaint);
        match error {
            StatusWriteError::Api(ApiError::Forbidden(_)) => {
                let is_v2 = self.version == QueueVersion::V2;
                let resource = if is_v2 { "queues" } else { "queues/status" };
                if is_new(Complaint::Forbidden) {
                    error!(
                        %queue, resource, error = why,
                        "Not allowed to write the status of queues: grant patch of this resource in scheduling.run.ai to the keeper"
                    );
                }
            }
            StatusWriteError::Dropped | StatusWriteError::Api(ApiError::UnknownField(_)) => {
                if is_new(Complaint::Schema) {
                    error!(
                        %queue, error = why,
                        "The definition of queues.scheduling.run.ai lacks fields of the status: apply the one of this version's chart"
                    );
                }
            }
            StatusWriteError::Api(_) => {
                warn!(%queue, error = why, "Failed to write the status: will try again");
            }
        }
    }
}
