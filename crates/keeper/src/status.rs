//! Reports the workloads of each queue of the run.ai family in its status.
//!
//! The reports are counted again after changes, at a limited rate, and compared with the statuses that the watch shows:
//! so nothing is written twice, and a field that another writer removes is restored.

mod known;
mod write;

use std::{collections::HashSet, num::NonZeroU32, time::Duration};

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;
use tenure_index::Tally;
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tenure_types::runai::QueueVersion;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    cluster::{Changes, ClusterState},
    config::Current,
    metrics::{Metrics, StatusResult},
    sleep,
};
use known::{Write, WriteOutcome};

pub use known::Statuses;
pub use write::{WriteError, Writer};

/// The least time between two counts: a busy cluster changes all the time.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// Counts take at most one part in so many of the time, because all other readers of the index wait meanwhile.
const PART_OF_TIME: u32 = 50;

/// The number of statuses that are written at the same time. The limiter sets the rate; this only hides latency.
const AT_ONCE: usize = 8;

/// The most statuses that are written a second on the average, and at once: people read them, and they must not cost the
/// API server much.
pub const WRITES_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);
pub const BURST: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);

/// Keeps the statuses of queues right.
pub struct Reporter {
    pub cluster: ClusterState,
    pub statuses: Statuses,
    pub clock: ServerClock,
    pub config: Current,
    pub writer: Writer,
    pub metrics: Metrics,
    /// The problems that were logged since a write last succeeded.
    pub complaints: Mutex<HashSet<Complaint>>,
}

/// A problem that concerns all queues, and is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Complaint {
    Forbidden,
    Schema,
}

impl Reporter {
    /// Works whenever this keeper leads, until `shutdown`. Writes in flight are dropped: the next leader repeats them.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let work = async {
            loop {
                lead.acquired().await;
                tokio::select! {
                    biased;
                    () = lead.lost() => {}
                    () = self.work() => {}
                }
                self.metrics.forget_workloads();
            }
        };
        shutdown.run_until_cancelled(work).await;
    }

    async fn work(&self) {
        let mut changes = self.cluster.changes();
        loop {
            let begun = Instant::now();
            let config = self.config.get();
            let Tally { reports, until } =
                self.cluster.with(|index| index.tally(&config.floors, self.clock.now()));
            self.metrics.count_workloads(&reports);
            let next = begun + BETWEEN_LOOKS.max(begun.elapsed().saturating_mul(PART_OF_TIME));
            let reports = reports.into_iter().map(|(name, report)| (name, report.of(self.writer.version)));
            let writes = self.statuses.to_write(reports, std::time::Instant::now());
            let is_done = self.write_all(writes, next).await;
            sleep_until(next).await;
            if is_done {
                self.wait(&mut changes, until).await;
            }
        }
    }

    /// Starts writes until `next`, when there may be newer ones; returns true if all were started.
    async fn write_all(&self, writes: Vec<Write>, next: Instant) -> bool {
        let mut left = writes.into_iter();
        let begun = std::iter::from_fn(|| if Instant::now() < next { left.next() } else { None });
        stream::iter(begun).for_each_concurrent(AT_ONCE, |write| self.write(write)).await;
        left.next().is_none()
    }

    /// Waits until the reports may have changed.
    async fn wait(&self, changes: &mut Changes, until: Option<Timestamp>) {
        let retry = async {
            match self.statuses.next_retry() {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changes.next() => {}
            () = self.reach(until) => {}
            () = retry => {}
        }
    }

    /// Returns at a time by the API server's clock.
    async fn reach(&self, until: Option<Timestamp>) {
        let Some(until) = until else { return std::future::pending().await };
        while self.clock.now() < until {
            sleep::towards(&self.clock, Some(until)).await;
        }
    }

    async fn write(&self, write: Write) {
        let queue = &write.name;
        let (outcome, result) = match self.writer.write(&write).await {
            Ok(status) => {
                self.complaints.lock().clear();
                let left = write.report.difference(&status).children;
                debug!(%queue, child_queues_left_alone = left, "Wrote the status");
                (
                    WriteOutcome::Written(status),
                    if left { StatusResult::ChildrenLeft } else { StatusResult::Written },
                )
            }
            Err(WriteError::Api(ApiError::NotLeading)) => return,
            Err(WriteError::Api(ApiError::NotFound | ApiError::Stale(_))) => {
                // the watch says it, if it is gone; an API server whose definitions are replaced answers so for a moment
                debug!(%queue, "Gone, or changed too fast, when its status was to be written");
                (WriteOutcome::Failed, StatusResult::Gone)
            }
            Err(error) => {
                self.complain(&write, &error);
                (WriteOutcome::Failed, StatusResult::Failed)
            }
        };
        self.metrics.status_written(result);
        self.statuses.settle(&write, outcome, std::time::Instant::now());
    }

    fn complain(&self, write: &Write, error: &WriteError) {
        let (queue, why) = (&write.name, with_causes(error));
        let resource = match self.writer.version {
            QueueVersion::V3alpha1 => "queues/status",
            QueueVersion::V2 => "queues",
        };
        let complaint = match error {
            WriteError::Api(ApiError::Forbidden(_)) => Complaint::Forbidden,
            WriteError::Dropped | WriteError::Api(ApiError::UnknownField(_)) => Complaint::Schema,
            WriteError::Api(_) => {
                warn!(%queue, error = why, "Failed to write the status: will try again");
                return;
            }
        };
        if !self.complaints.lock().insert(complaint) {
            return;
        }
        match complaint {
            Complaint::Forbidden => error!(
                %queue, resource, error = why,
                "Not allowed to write the status of queues: grant patch of this resource in scheduling.run.ai to the keeper"
            ),
            Complaint::Schema => error!(
                %queue, error = why,
                "The definition of queues.scheduling.run.ai lacks fields of the status: apply the one of this version's chart"
            ),
        }
    }
}
