//! Resumes workloads that were paused for a time: after a backoff, after the pause between two time
//! slices, and when a person has activated them.
//!
//! `Args::write` runs the [`Requeuer`] while this keeper leads. The workloads of a queue come back
//! one by one, in the order of the queue.

mod attempt;

use std::{cell::Cell, sync::Arc, time::Duration};

use tenure_index::{DueReturn, ReturnRank, Uid};
use tenure_policy::{
    naming::describe,
    pause::{self, Return},
    reason::EventReason,
};
use tenure_service::{
    leadership::Leadership,
    log::with_causes,
    work::{Lease, Work, WorkLimits, WorkQueue},
};
use tenure_types::{journal::JournalAct, wait::Wait};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::{
    action::events_of, api::refer, events::EventRecord, handles::Handles, limit::WriteLimit, poller::Poller,
    sleep,
};
use attempt::{Attempt, ReturnReport, is_refusal};

/// The least time between two checks for owners that are due: a busy cluster changes all the time.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Checks take at most one part in this number of the time, because all other readers of the index
/// wait meanwhile.
const PART_OF_TIME: u32 = 20;

/// The wait before the next try of a return that has failed, or that the watches haven't shown yet.
const RETRY: Duration = Duration::from_secs(5);

/// The waits after refusals of a return.
const REFUSED: Wait = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };

/// The waits before the next check of a record that can't be followed: it may have been corrected.
/// Any tenant can write such records.
const FOREIGN: Wait = Wait { first: Duration::from_mins(5), last: Duration::from_mins(40) };

/// The number of refusals in a row after which an event is emitted: an API server that has just
/// started refuses everything for a moment.
const REPORTED_REFUSAL: u32 = 2;

/// An owner, as the index has returned it.
#[derive(Debug)]
struct ReturningOwner(DueReturn);

/// Owners of a queue come back one by one, in an order across all namespaces.
impl Work for ReturningOwner {
    type Key = Uid;
    type Rank = ReturnRank;

    fn key(&self) -> Uid {
        Uid::of(&self.0.paused.uid)
    }

    fn namespace(&self) -> &str {
        &self.0.paused.namespace
    }

    fn rank(&self) -> ReturnRank {
        self.0.turn.clone()
    }

    fn line(&self) -> Option<String> {
        let paused = &self.0.paused;
        // the records of queues that don't exist have no order: any user may write some
        (!paused.queue.is_empty()).then(|| format!("{:?}/{}", paused.rules_of(), paused.queue))
    }

    /// True for the return from another pause or for another time, and for a return whose record was
    /// only checked before.
    fn replaces(&self, known: &Self) -> bool {
        let of = |Self(of): &Self| (of.paused.at, of.paused.returns, of.is_due);
        of(self) != of(known)
    }
}

/// The controller of returns.
pub struct Requeuer {
    pub handles: Arc<Handles>,
    /// The limit of returns.
    pub limit: WriteLimit,
}

impl Requeuer {
    /// Resumes owners that are due whenever this keeper leads, until `shutdown`. Looks again after
    /// changes of the index, and when the next owner is due.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let poller = Poller { handles: &self.handles, lead, shutdown, limits: WorkLimits::default() };
        let Handles { cluster, clock, .. } = &*self.handles;
        let (mut changes, rest, next) = (cluster.changes(), Cell::new(POLL_INTERVAL), Cell::new(None));
        let fill = |queue: &WorkQueue<_>| {
            let (begun, now) = (Instant::now(), clock.now());
            let due = cluster.with(|index| {
                let due = index.due_returns(now);
                next.set(index.next_return(now));
                due
            });
            queue.replace(due.into_iter().map(ReturningOwner));
            rest.set(POLL_INTERVAL.max(begun.elapsed().saturating_mul(PART_OF_TIME)));
        };
        let more = async || {
            tokio::time::sleep(rest.get()).await;
            tokio::select! {
                () = changes.next() => {}
                () = sleep::towards(clock, next.get()) => {}
            }
        };
        poller.run(fill, more, async |lease| self.bring_back(lease).await, || {}).await;
    }

    /// Resumes an owner, logs and counts the result, and has the events written.
    async fn bring_back(&self, lease: Lease<ReturningOwner>) {
        let Handles { cluster, metrics, events, .. } = &*self.handles;
        let paused = &lease.work.0.paused;
        let Some(resource) = cluster.kind(paused.source) else { return lease.again(RETRY) };
        let owner = refer(&resource.api_version, &resource.kind, &paused.name, &paused.uid);
        let result = self.resume(paused, &owner, &lease).await;
        let (queue, namespace, name) = (&paused.queue, &paused.namespace, describe(&owner));
        // a record may name any queue: tenants can write it
        let exists = cluster.with(|index| index.has_queue(queue));
        let (family, counted) = (paused.rules_of().row().name, if exists { queue.as_str() } else { "" });
        match result {
            Ok(Attempt::Done(report)) if report.back == Return::Deactivate => {
                info!(%queue, %namespace, owner = name, "Doesn't come back: a person has deactivated it");
            }
            Ok(Attempt::Done(report)) => {
                let ReturnReport { known, record, state, back, returned } = *report;
                let (count, early) = (state.count, returned.early);
                info!(%queue, %namespace, owner = name, count, early, "Resumed");
                if back != Return::Reactivate {
                    metrics.queues.returns.inc([family, counted]);
                }
                cluster.outbox.note_written(&known, returned.at);
                events.extend(events_of(&JournalAct::Returned { record, state, returned }, &known));
            }
            Ok(Attempt::NotNow) => debug!(%queue, %namespace, owner = name, "Doesn't come back now"),
            Ok(Attempt::NotOurs) => return lease.failed_with(FOREIGN),
            Ok(Attempt::Refused(report, error)) => {
                metrics.queues.refused_returns.inc([family, counted, &owner.kind]);
                let error = with_causes(&error);
                error!(%queue, %namespace, owner = name, error, "May not resume: will try again");
                if report.back.comes_back() && lease.failures.saturating_add(1) == REPORTED_REFUSAL {
                    let note = pause::return_refused(&report.record, &error, &report.known);
                    let (object, reason) = (&report.known.object, EventReason::ReturnRefused);
                    let now = self.handles.now();
                    events.extend([EventRecord::new(object, reason, "Resuming", note, now)]);
                }
                return lease.failed_with(REFUSED);
            }
            Err(failure) => {
                let error = with_causes(&failure);
                error!(%queue, %namespace, owner = name, error, "Failed to resume: will try again");
                if is_refusal(&failure) {
                    metrics.queues.refused_returns.inc([family, counted, &owner.kind]);
                    return lease.failed_with(REFUSED);
                }
            }
        }
        lease.again(RETRY);
    }
}

#[cfg(test)]
mod tests;
