//! Hands due pods to the [`Pauser`], and turns its results into events, metrics and a line of log.

mod outcome;
mod own;

use std::{sync::Arc, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{CeilingIndex, DueBatch, Task};
use tenure_policy::{naming::describe, pause::ResumeCondition};
use tenure_service::{leadership::Leadership, log::with_causes};
use tenure_types::paused::RequeueState;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    action::{ActionResult, Failure, LATE_AFTER, Pauser, told_of_pause},
    events::EventRecord,
    handles::Handles,
    metrics::ExpiryResult,
    recent::{OwedEvents, RecentPause},
    returns::told_of_return,
    sleep,
    slots::{FairSlots, TakenSlot},
};
use outcome::outcome;
use own::without_effect;

/// The time between two looks for pauses whose event may not have been written.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// After so many tries, about a minute and a half, a pod that outlives the pause of its owner is worth a warning.
const OUTLIVED: u8 = 5;

/// The controller of expiries: handles pods whose ceiling is exceeded, or will be.
pub struct ExpiryController {
    pub handles: Arc<Handles>,
    pub pauser: Pauser,
    /// The slots of owners that are handled at the same time. The limiter sets the rate; this only hides latency.
    pub slots: FairSlots,
}

impl ExpiryController {
    /// Works whenever this keeper leads, until `shutdown`; then finishes what is in flight.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let lost = || {
            self.handles.cluster.with(CeilingIndex::release_all);
            self.handles.metrics.in_flight(0);
            self.handles.cluster.outbox.interrupted();
        };
        lead.work(shutdown, async || self.work(shutdown).await, lost).await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let Handles { cluster, events, gate, metrics, .. } = &*self.handles;
        let mut changes = cluster.changes();
        let mut deeds = FuturesUnordered::new();
        let mut looks = tokio::time::interval(BETWEEN_LOOKS);
        loop {
            let open = !shutdown.is_cancelled();
            let is_fresh = gate.is_open();
            // runs are planned by each change of a queue as it comes, also while nothing is done: what a later change
            // shortens is known by that
            cluster.with(CeilingIndex::next_due);
            let now = self.handles.now();
            while open
                && is_fresh
                && let Some((group, slot)) = self.claim(now)
            {
                deeds.push(self.handle(group, slot));
            }
            metrics.in_flight(deeds.len());
            if !open && deeds.is_empty() {
                return;
            }
            tokio::select! {
                Some(happenings) = deeds.next() => events.extend(happenings),
                _ = looks.tick() => {
                    // what has no room stays owed: it would be dropped, or another in its place
                    if events.has_room() {
                        events.repair(self.owed());
                        events.extend(without_effect(cluster, self.handles.now()));
                    }
                }
                () = self.slots.changed(), if open && is_fresh => {}
                () = self.next_due_after(now), if open && is_fresh => {}
                () = gate.opened(), if open && !is_fresh => {}
                () = changes.next(), if open => {}
                () = shutdown.cancelled(), if open => {}
            }
        }
    }

    /// Claims what is due most in a namespace that has a slot.
    fn claim(&self, now: Timestamp) -> Option<(DueBatch, TakenSlot)> {
        let mut slot = None;
        let mut may = |namespace: &str| {
            slot = self.slots.take(namespace);
            slot.is_some()
        };
        let group = self.handles.cluster.with(|index| index.claim_where(now, &mut may))?;
        Some((group, slot?))
    }

    /// Returns when more is due than at `now`, when all was claimed that could be.
    async fn next_due_after(&self, now: Timestamp) {
        let Handles { cluster, clock, .. } = &*self.handles;
        sleep::towards(clock, cluster.with(|index| index.next_due_after(now))).await;
    }

    /// Acts on a group, and gives the result to the index; returns the events to write.
    async fn handle(&self, group: DueBatch, slot: TakenSlot) -> Vec<EventRecord> {
        let result = Box::pin(slot.watch(self.pauser.act(&group))).await;
        let now = self.handles.now();
        let served = result.as_ref().map_or_else(Failure::serves, |done| done.served);
        let is_late = now.duration_since(group.first.deadline) >= LATE_AFTER;
        let how = (self.handles.dry_run, is_late);
        let outcome = outcome(group.task, how, result.as_ref().map(|done| &done.result));
        self.handles.cluster.with(|index| index.settle(&group, served, outcome, now));
        match result {
            Ok(done) => {
                self.record(&group, &done.result, now);
                done.events
            }
            Err(failure) => {
                self.fail(&group, &failure, is_late);
                Vec::new()
            }
        }
    }

    /// Returns the events of recent pauses and returns that may not have been written. A dry run writes neither.
    fn owed(&self) -> Vec<EventRecord> {
        if self.handles.dry_run {
            return Vec::new();
        }
        let of = |owed: &OwedEvents| match owed {
            OwedEvents::OfPause(RecentPause { known, pause }) => {
                told_of_pause(&pause.record, &pause.state, known)
            }
            OwedEvents::OfReturn(RecentPause { known, pause }, returned) => {
                vec![told_of_return(&pause.record, &pause.state, known, *returned)]
            }
        };
        self.handles.cluster.outbox.owed(self.handles.now()).iter().flat_map(of).collect()
    }

    fn fail(&self, group: &DueBatch, failure: &Failure, is_late: bool) {
        let first = &group.first;
        let (queue, namespace, pod) = (&first.queue, &first.namespace, &first.name);
        let of = (first.family, queue.as_str());
        let error = with_causes(failure);
        match group.task {
            Task::Evict => {
                if let Some(kind) = failure.refused(is_late) {
                    self.handles.metrics.refused(of, kind);
                }
                error!(%queue, %namespace, %pod, error, "Failed to make room: will try again");
            }
            Task::Expire => {
                let kind = failure.refused(is_late);
                if let Some(kind) = kind {
                    self.handles.metrics.refused(of, kind);
                }
                self.handles.metrics.expired(of, kind.unwrap_or_default(), ExpiryResult::Failed);
                error!(%queue, %namespace, %pod, error, "Failed to expire: will try again");
            }
            Task::Announce | Task::Withdraw if first.attempts > 0 => {
                debug!(%queue, %namespace, %pod, error, "Failed again to tell of the end of its run");
            }
            Task::Announce | Task::Withdraw => {
                warn!(%queue, %namespace, %pod, error, "Failed to tell of the end of its run: will try again");
            }
        }
    }

    fn record(&self, group: &DueBatch, result: &ActionResult, now: Timestamp) {
        match result {
            ActionResult::Paused { .. } | ActionResult::Deleted if group.task == Task::Evict => {
                self.record_eviction(group, result);
            }
            ActionResult::Paused { .. } | ActionResult::Deleted | ActionResult::OwnerDeleted(_) => {
                self.record_end(group, result, now);
            }
            ActionResult::Announced { owner, end } => self.record_notice(group, owner, *end),
            ActionResult::Extended => self.left_alone(group, "its run was granted more time"),
            ActionResult::PausedBefore => self.left_alone(group, "its owner is paused"),
            ActionResult::Exempt => self.left_alone(group, "its controller exempts it"),
            ActionResult::TooEarly => self.put_off(group, "the API server's clock was set back"),
            ActionResult::PutOff(why) => self.put_off(group, why),
            ActionResult::Nothing(why) => self.left_alone(group, why),
        }
    }

    fn record_eviction(&self, group: &DueBatch, result: &ActionResult) {
        let first = &group.first;
        let (queue, namespace, pod) = (&first.queue, &first.namespace, &first.name);
        let (of, dry_run) = ((first.family, queue.as_str()), self.handles.dry_run);
        let ActionResult::Paused { owner, until, reversals } = result else {
            if !dry_run {
                self.handles.metrics.evicted(of, first.cause.name());
            }
            info!(%queue, %namespace, %pod, dry_run, "Deleted: not ready in time, and nothing that could come back");
            return;
        };
        if *reversals > 0 && !dry_run {
            self.handles.metrics.reversed(of, &owner.kind);
        }
        let (owner, cause) = (describe(owner), first.cause.name());
        match until {
            _ if dry_run => {
                info!(%queue, %namespace, owner, cause, "Dry run: would pause: not ready in time");
            }
            ResumeCondition::Requeued(RequeueState { count, requeue_at: Some(at), .. }) => {
                self.handles.metrics.evicted(of, cause);
                info!(%queue, %namespace, owner, cause, count, requeue_at = %at, "Paused: not ready in time");
            }
            _ => {
                self.handles.metrics.evicted(of, cause);
                self.handles.metrics.deactivated(of);
                info!(%queue, %namespace, owner, cause, "Deactivated: not ready in time, and came back too often");
            }
        }
    }

    fn record_end(&self, group: &DueBatch, result: &ActionResult, now: Timestamp) {
        let first = &group.first;
        let (queue, namespace, pod) = (&first.queue, &first.namespace, &first.name);
        let (of, dry_run) = ((first.family, queue.as_str()), self.handles.dry_run);
        self.handles.metrics.late(now.duration_since(first.deadline).as_secs_f64());
        match result {
            ActionResult::Paused { owner, reversals, .. } => {
                let (owner, kind, pods) = (describe(owner), &owner.kind, group.pods().count());
                self.handles.metrics.expired(
                    of,
                    kind,
                    if dry_run { ExpiryResult::WouldPause } else { ExpiryResult::Paused },
                );
                if *reversals > 0 && !dry_run {
                    self.handles.metrics.reversed(of, kind);
                }
                if dry_run {
                    info!(%queue, %namespace, owner, pods, "Dry run: would pause");
                } else {
                    info!(%queue, %namespace, owner, pods, reversals, "Paused");
                }
            }
            ActionResult::OwnerDeleted(owner) => {
                let (owner, kind, pods) = (describe(owner), &owner.kind, group.pods().count());
                self.handles.metrics.expired(
                    of,
                    kind,
                    if dry_run { ExpiryResult::WouldDelete } else { ExpiryResult::Deleted },
                );
                let what = if dry_run { "Dry run: would delete the owner" } else { "Deleted the owner" };
                info!(%queue, %namespace, owner, pods, "{what}");
            }
            _ => {
                self.handles.metrics.expired(
                    of,
                    "Pod",
                    if dry_run { ExpiryResult::WouldDelete } else { ExpiryResult::Deleted },
                );
                info!(%queue, %namespace, %pod, "{}", if dry_run { "Dry run: would delete" } else { "Deleted" });
            }
        }
    }

    fn record_notice(&self, group: &DueBatch, owner: &OwnerReference, end: Timestamp) {
        let (queue, namespace, owner) = (&group.first.queue, &group.first.namespace, describe(owner));
        if group.task == Task::Withdraw {
            info!(%queue, %namespace, owner, "Told that no end of its run is set any more");
        } else if self.handles.dry_run {
            info!(%queue, %namespace, owner, %end, "Dry run: would tell of the end of its run");
        } else {
            info!(%queue, %namespace, owner, %end, "Told of the end of its run");
        }
    }

    fn put_off(&self, group: &DueBatch, why: &str) {
        let first = &group.first;
        let (queue, namespace, pod) = (&first.queue, &first.namespace, &first.name);
        if group.task == Task::Expire {
            self.handles.metrics.expired((first.family, queue.as_str()), "", ExpiryResult::PutOff);
        }
        info!(%queue, %namespace, %pod, why, "Put off: will look again");
    }

    fn left_alone(&self, group: &DueBatch, why: &str) {
        let first = &group.first;
        let (queue, namespace, pod) = (&first.queue, &first.namespace, &first.name);
        let of = (first.family, queue.as_str());
        let outlived = first.attempts == OUTLIVED;
        match group.task {
            Task::Expire => {
                self.handles.metrics.expired(of, "", ExpiryResult::Nothing);
                if outlived {
                    warn!(%queue, %namespace, %pod, why, "Runs on beyond its ceiling, and nothing can be done");
                } else {
                    debug!(%queue, %namespace, %pod, why, "Left alone");
                }
            }
            Task::Evict if outlived => {
                warn!(%queue, %namespace, %pod, why, "Takes room and isn't ready, and nothing can be done");
            }
            Task::Evict => debug!(%queue, %namespace, %pod, why, "Left alone"),
            Task::Announce | Task::Withdraw => debug!(%queue, %namespace, %pod, why, "Not told"),
        }
    }
}
