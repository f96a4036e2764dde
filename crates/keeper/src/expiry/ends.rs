//! Has workloads show the end of their run from its start on, so that users who may not read queues
//! know the end.
//!
//! The `ExpiryController` runs this work, and the `Pauser` writes. No work is less urgent: while an
//! end or a notice is due that wasn't tried yet, this work has a quarter of its write limit. This
//! work never stops, because one namespace may have ends due all the time.

use std::time::Duration;

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

/// The number of writes that one write counts for while an end or a notice is due.
const COST_UNDER_PRESSURE: usize = 4;

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
            queue.replace(stale.into_iter().map(EndToShow));
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
        let cost = if self.is_pressed() { COST_UNDER_PRESSURE } else { 1 };
        for _ in 0..cost {
            limit.until_ready().await;
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_policy::expiry::Scope;
    use tenure_types::tensorstack::v1beta1::QueueSpec;

    use super::*;
    use crate::{
        action::Pauser,
        testing::{Keeper, until},
    };

    #[tokio::test(start_paused = true)]
    async fn while_a_namespace_always_has_ends_due_the_workloads_of_others_show_the_end_of_their_runs() {
        let keeper = Keeper::new();
        let long = QueueSpec { max_duration: Some("9h".into()), ..QueueSpec::default() };
        keeper.handles.cluster.with(|index| index.apply_queue("long", &long));
        keeper.add_pod("busy", "busy-0", &json!({}));
        for number in 0..10 {
            let labels = json!({"labels": {"scheduler.tensorstack.dev/queue": "long"}});
            keeper.add_pod(&format!("fine-{number}"), &format!("fine-{number}-0"), &labels);
        }
        let Keeper { handles, server } = keeper;
        let pauser = Pauser::new(handles.clone(), Scope::default());
        let (ends, notices) = (WorkQueue::default(), WorkQueue::default());
        let expiry = ExpiryController { handles, pauser, ends, notices };
        until(expiry.show_ends(&CancellationToken::new()), server.written("fine-", 10)).await;
        assert!(expiry.is_pressed(), "no end was worked off");
        assert_eq!((server.writes("fine-"), server.writes("busy")), (10, 0));
    }
}
