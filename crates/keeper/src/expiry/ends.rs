//! Has workloads show the end of their run from its start on, so that users who may not read queues
//! know the end.
//!
//! The `ExpiryController` runs this work, and the `Pauser` writes. No work is less urgent: an end
//! or a notice that is due and wasn't tried yet comes first.

use std::{iter, time::Duration};

use jiff::Timestamp;
use tenure_index::{StaleEnd, Uid};
use tenure_policy::judge::Act;
use tenure_service::{
    call::ApiError,
    log::with_causes,
    work::{Lease, Spread, Work, WorkLimits, WorkLoop, WorkQueue},
};
use tenure_types::wait::Wait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::ExpiryController;
use crate::{action::ActionFailure, limit::WriteLimit};

/// The time between two checks, and the least time between two writes of one object.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The most pods per check, because all other readers of the index wait meanwhile. In a cluster of
/// 150,000 pods whose workloads show no end yet, each pod is checked within half a minute.
const PODS_AT_ONCE: usize = 10_000;

/// The waits after failures in a namespace. While an admission webhook is down, no object of a
/// namespace can be written.
const RETRY: Wait = Wait { first: Duration::from_secs(5), last: Duration::from_mins(5) };

/// An object that is to show the end of its run.
#[derive(Debug)]
struct EndToShow(StaleEnd);

impl Work for EndToShow {
    type Key = (String, Uid);
    /// The nearest end first.
    type Rank = Option<Timestamp>;

    fn key(&self) -> (String, Uid) {
        (self.0.namespace.to_string(), self.0.object)
    }

    fn namespace(&self) -> &str {
        &self.0.namespace
    }

    fn rank(&self) -> Option<Timestamp> {
        self.0.end
    }
}

impl ExpiryController {
    /// Works until `shutdown`. Returns at once in a dry run, which writes nothing.
    pub(super) async fn show_ends(&self, shutdown: &CancellationToken) {
        let handles = &*self.handles;
        if handles.dry_run {
            return;
        }
        let limit = handles.limit();
        let queue =
            WorkQueue::new(WorkLimits { retry: RETRY, spread: Spread::Namespace, ..WorkLimits::default() });
        let fill = || {
            let stale = handles.cluster.with(|index| index.stale_ends(handles.now(), PODS_AT_ONCE));
            if self.is_pressed() {
                queue.replace(iter::empty());
            } else {
                queue.replace(stale.into_iter().map(EndToShow));
            }
        };
        let more = async || sleep(POLL_INTERVAL).await;
        let run = WorkLoop { queue: &queue, gate: Some(&handles.gate), end: shutdown, drains: false };
        run.work(fill, more, async |lease| self.show_end(lease, &limit).await).await;
    }

    /// True if an end or a notice is due that wasn't tried yet.
    fn is_pressed(&self) -> bool {
        let Self { handles, .. } = self;
        handles.cluster.with(|index| index.is_pressed(handles.now()))
    }

    /// Has the object of one workload show the end, if it still shows another. After a failure, or
    /// an act that was put off, the index checks the workload again.
    async fn show_end(&self, lease: Lease<EndToShow>, limit: &WriteLimit) {
        let Self { handles, pauser, .. } = self;
        limit.until_ready().await;
        if self.is_pressed() {
            return lease.again(POLL_INTERVAL);
        }
        let failures = lease.failures.try_into().unwrap_or(u8::MAX);
        let taken =
            handles.cluster.with(|index| index.take_stale_end(&lease.work.0, failures, handles.now()));
        let Some(batch) = taken else { return lease.done() };
        let result = Box::pin(lease.watch(pauser.act(&batch))).await;
        let (namespace, pod) = (&batch.first.namespace, &batch.first.name);
        let doubt = || handles.cluster.with(|index| index.doubt_end(batch.first.uid));
        match result {
            Ok(done) if matches!(done.act, Act::PutOff(..) | Act::TooEarly) => {
                doubt();
                lease.again(POLL_INTERVAL);
            }
            Ok(done) => {
                debug!(%namespace, %pod, act = ?done.act, "Showed the end of its run");
                lease.done();
            }
            Err(failure) => {
                doubt();
                let error = with_causes(&failure);
                if matches!(failure, ActionFailure::Api(ApiError::NotLeading)) {
                    return lease.again(POLL_INTERVAL);
                }
                lease.degrade();
                if lease.failing_since().is_none() {
                    warn!(%namespace, %pod, error, "Failed to show the end of runs of a namespace: will try again");
                } else {
                    debug!(%namespace, %pod, error, "Failed to show the end of a run again");
                }
                lease.failed();
            }
        }
    }
}
