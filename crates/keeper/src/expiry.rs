//! Hands due pods to the [`Pauser`], and turns its results into events, metrics and a line of log.
//!
//! `Args::act` runs the [`ExpiryController`] while this keeper leads, in a dry run as well. The
//! index says which pods are due. The outcome of each try goes back to the index, which sets the
//! time of the next try.

mod ends;
mod owed;
mod task;

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{CeilingIndex, DueBatch, DuePod, Task, TaskSet};
use tenure_policy::{
    judge::{Act, NoticeChange},
    naming::describe,
    pause::ResumeCondition,
};
use tenure_service::{
    leadership::Leadership,
    log::with_causes,
    spans::Span,
    work::{Lease, WorkLoop, WorkQueue},
};
use tenure_types::paused::RequeueState;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    action::{ActResult, ActionFailure, Pauser, is_late},
    events::EventRecord,
    handles::Handles,
    metrics::{ExpiryResult, label},
    sleep,
};
use owed::record_owed;
use task::{PodTask, outcome};

/// The rest after a check for due pods, as a multiple of the time that the check took.
const REST: u32 = 10;

/// The number of tries, about a minute and a half, after which a pod that outlives the pause of its
/// owner is worth a warning.
const OUTLIVED: u8 = 5;

/// The controller of expiries: handles pods whose ceiling is exceeded, or will be.
pub struct ExpiryController {
    pub handles: Arc<Handles>,
    /// Decides and writes.
    pub pauser: Pauser,
    /// Runs that must end.
    pub ends: WorkQueue<PodTask>,
    /// Ends of runs that must be announced.
    pub notices: WorkQueue<PodTask>,
}

impl ExpiryController {
    /// Works whenever this keeper leads, until `shutdown`; then finishes what is in flight. Plans
    /// runs also while another keeper leads.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let lost = || {
            self.ends.clear();
            self.notices.clear();
            self.handles.metrics.in_flight.store(0, Relaxed);
            self.handles.cluster.with(|index| {
                index.forget_notices();
                index.forget_ends();
            });
            self.handles.cluster.outbox.interrupted();
        };
        let work = async || {
            let ends = self.work(TaskSet::Ends, &self.ends, shutdown);
            let notices = self.work(TaskSet::Notices, &self.notices, shutdown);
            let shown = self.show_ends(shutdown);
            tokio::join!(ends, notices, shown, shutdown.run_until_cancelled(record_owed(&self.pauser)));
        };
        tokio::join!(lead.work(shutdown, work, lost), shutdown.run_until_cancelled(self.plan()));
    }

    /// Has the index plan runs after each change, also while another keeper leads. A run that a
    /// change of a queue shortens goes on for a grace, which counts from that change: so no change
    /// may be left for a later look.
    async fn plan(&self) {
        let mut changes = self.handles.cluster.changes();
        loop {
            self.handles.cluster.with(CeilingIndex::reschedule);
            changes.next().await;
        }
    }

    /// Hands out the due pods of a set of tasks until `shutdown`. Looks again after changes of the
    /// index, and when the next task is due.
    async fn work(&self, tasks: TaskSet, queue: &WorkQueue<PodTask>, shutdown: &CancellationToken) {
        let Handles { cluster, clock, gate, .. } = &*self.handles;
        let (mut changes, rest, next) = (cluster.changes(), Cell::new(Duration::ZERO), Cell::new(None));
        let fill = || {
            let (begun, now) = (Instant::now(), self.handles.now());
            let due = cluster.with(|index| {
                next.set(index.next_due_after(now));
                index.due(tasks, now)
            });
            queue.replace(due.into_iter().map(|due| PodTask { due }));
            rest.set(begun.elapsed().saturating_mul(REST));
        };
        let more = async || {
            tokio::time::sleep(rest.get()).await;
            tokio::select! {
                () = changes.next() => {}
                () = sleep::towards(clock, next.get()) => {}
            }
        };
        let run = WorkLoop { queue, gate: Some(gate), end: shutdown, drains: false };
        run.work(fill, more, async |lease| self.handle(tasks, lease).await).await;
    }

    /// Acts on a batch, gives the outcome to the index, and has the events written.
    async fn handle(&self, tasks: TaskSet, lease: Lease<PodTask>) {
        let Handles { cluster, events, dry_run, .. } = &*self.handles;
        let batch = cluster.with(|index| index.batch(tasks, &lease.work.due.key, self.handles.now()));
        let Some(batch) = batch else { return lease.done() };
        self.count_in_flight();
        let begun = self.handles.now();
        let result = Box::pin(lease.watch(self.pauser.act(&batch))).await;
        let now = self.handles.now();
        let served = result.as_ref().map_or_else(ActionFailure::serves, ActResult::served);
        let is_late = is_late(&batch.first, now);
        let outcome = outcome(batch.task, (*dry_run, is_late), result.as_ref().map(|done| &done.act));
        // other pods of the key may be due
        cluster.change(|index| index.record_outcome(&batch, served, outcome, now));
        lease.done();
        self.count_in_flight();
        match result {
            Ok(done) => {
                self.record(&batch, &done.act, now);
                let span = if *dry_run { Span::default() } else { span(&batch, &done.act, begun, now) };
                events
                    .extend(done.events.into_iter().map(|event| EventRecord { span: span.clone(), ..event }));
            }
            Err(failure) => self.fail(&batch, &failure, is_late),
        }
    }

    /// Sets the number of notices in flight in the metrics.
    fn count_in_flight(&self) {
        // pods whose end is in flight count as overdue
        self.handles.metrics.in_flight.store(self.notices.in_flight(), Relaxed);
    }

    /// Logs and counts an act that failed.
    fn fail(&self, group: &DueBatch, failure: &ActionFailure, is_late: bool) {
        let DuePod { family, queue, namespace, name: pod, attempts, .. } = &group.first;
        let error = with_causes(failure);
        let kind = failure.refused(is_late).filter(|_| group.task.ends_run());
        if let Some(kind) = kind {
            self.handles.metrics.queues.refused_pauses.inc([family.row().name, queue, kind]);
        }
        match group.task {
            Task::Evict => error!(%queue, %namespace, %pod, error, "Failed to make room: will try again"),
            Task::Expire => {
                self.expired(group, kind.unwrap_or_default(), ExpiryResult::Failed);
                error!(%queue, %namespace, %pod, error, "Failed to expire: will try again");
            }
            Task::Announce | Task::Withdraw | Task::Note if *attempts > 0 => {
                debug!(%queue, %namespace, %pod, error, "Failed again to announce the end of its run");
            }
            Task::Announce | Task::Withdraw | Task::Note => {
                warn!(%queue, %namespace, %pod, error, "Failed to announce the end of its run: will try again");
            }
        }
    }

    /// Logs and counts an act that was done, or the reason why none was.
    fn record(&self, group: &DueBatch, act: &Act, now: Timestamp) {
        match act {
            Act::Pause(owner, pause) => {
                if pause.reversals.count > 0 && !self.handles.dry_run {
                    let of = [group.first.family.row().name, &group.first.queue, &owner.kind];
                    self.handles.metrics.queues.reversed_pauses.inc(of);
                }
                if group.task == Task::Evict {
                    self.record_eviction(group, owner, &pause.plan.until);
                } else {
                    self.record_end(group, act, now);
                }
            }
            Act::DeletePod(_) if group.task == Task::Evict => self.record_deleted_unready(group),
            Act::DeletePod(_) | Act::DeleteOwner(_) => self.record_end(group, act, now),
            Act::Announce(notice) if notice.change == NoticeChange::Keep => {
                self.left_alone(group, "it has been told");
            }
            Act::Announce(notice) => self.record_notice(group, &notice.object, notice.end),
            Act::Extended => self.left_alone(group, "its run was granted more time"),
            Act::PausedBefore | Act::Command(..) => self.left_alone(group, "its owner is paused"),
            Act::Exempt => self.left_alone(group, "its controller exempts it"),
            Act::TooEarly => self.put_off(group, "the API server's clock was set back"),
            Act::PutOff(why, _) => self.put_off(group, why),
            Act::Leave(why, _) => self.left_alone(group, why),
            Act::Forbidden(_) => self.left_alone(group, "its owner may not be read"),
        }
    }

    /// Logs and counts the pause of a workload that wasn't ready in time. `until` says whether the
    /// workload comes back, or has been deactivated because it came back too often.
    fn record_eviction(&self, group: &DueBatch, owner: &OwnerReference, until: &ResumeCondition) {
        let DuePod { family, queue, namespace, cause, .. } = &group.first;
        let (owner, cause, family) = (describe(owner), cause.name(), family.row().name);
        let Handles { metrics, dry_run, .. } = &*self.handles;
        if *dry_run {
            info!(%queue, %namespace, owner, cause, "Dry run: would pause: not ready in time");
            return;
        }
        metrics.queues.evictions.inc([family, queue, cause]);
        if let ResumeCondition::Requeued(RequeueState { count, requeue_at: Some(at), .. }) = until {
            info!(%queue, %namespace, owner, cause, count, requeue_at = %at, "Paused: not ready in time");
        } else {
            metrics.queues.deactivations.inc([family, queue]);
            info!(%queue, %namespace, owner, cause, "Deactivated: not ready in time, and came back too often");
        }
    }

    /// Logs and counts the deletion of a pod that wasn't ready in time.
    fn record_deleted_unready(&self, group: &DueBatch) {
        let DuePod { family, queue, namespace, name: pod, cause, .. } = &group.first;
        let dry_run = self.handles.dry_run;
        if !dry_run {
            self.handles.metrics.queues.evictions.inc([family.row().name, queue, cause.name()]);
        }
        info!(%queue, %namespace, %pod, dry_run, "Deleted: not ready in time, and without an owner that could come back");
    }

    /// Logs and counts the end of a run, and measures the time from its deadline.
    fn record_end(&self, group: &DueBatch, act: &Act, now: Timestamp) {
        let DuePod { queue, namespace, name: pod, deadline, .. } = &group.first;
        let (dry_run, pods) = (self.handles.dry_run, group.pods().count());
        self.handles.metrics.lateness.observe(now.duration_since(*deadline).as_secs_f64());
        let deleted = if dry_run { ExpiryResult::WouldDelete } else { ExpiryResult::Deleted };
        match act {
            Act::Pause(owner, pause) => {
                let result = if dry_run { ExpiryResult::WouldPause } else { ExpiryResult::Paused };
                self.expired(group, &owner.kind, result);
                let (owner, reversals) = (describe(owner), pause.reversals.count);
                if dry_run {
                    info!(%queue, %namespace, owner, pods, "Dry run: would pause");
                } else {
                    info!(%queue, %namespace, owner, pods, reversals, "Paused");
                }
            }
            Act::DeleteOwner(deletion) => {
                self.expired(group, &deletion.owner.kind, deleted);
                let what = if dry_run { "Dry run: would delete the owner" } else { "Deleted the owner" };
                info!(%queue, %namespace, owner = describe(&deletion.owner), pods, "{what}");
            }
            _ => {
                self.expired(group, "Pod", deleted);
                info!(%queue, %namespace, %pod, "{}", if dry_run { "Dry run: would delete" } else { "Deleted" });
            }
        }
    }

    /// Logs the notice of the end of a run, or its withdrawal.
    fn record_notice(&self, group: &DueBatch, owner: &OwnerReference, end: Timestamp) {
        let (queue, namespace, owner) = (&group.first.queue, &group.first.namespace, describe(owner));
        if group.task == Task::Withdraw {
            info!(%queue, %namespace, owner, "Withdrew the announced end of its run");
        } else if self.handles.dry_run {
            info!(%queue, %namespace, owner, %end, "Dry run: would announce the end of its run");
        } else {
            info!(%queue, %namespace, owner, %end, "Announced the end of its run");
        }
    }

    /// Logs that an act was put off. Counts only expiries.
    fn put_off(&self, group: &DueBatch, why: &str) {
        let DuePod { queue, namespace, name: pod, .. } = &group.first;
        if group.task == Task::Expire {
            self.expired(group, "", ExpiryResult::PutOff);
        }
        info!(%queue, %namespace, %pod, why, "Put off: will look again");
    }

    /// Logs that nothing was done. Warns once about a pod that runs on after `OUTLIVED` tries.
    fn left_alone(&self, group: &DueBatch, why: &str) {
        let DuePod { queue, namespace, name: pod, attempts, .. } = &group.first;
        if group.task == Task::Expire {
            self.expired(group, "", ExpiryResult::Nothing);
        }
        match group.task {
            Task::Expire if *attempts == OUTLIVED => {
                warn!(%queue, %namespace, %pod, why, "Runs on beyond its ceiling, and nothing can be done");
            }
            Task::Evict if *attempts == OUTLIVED => {
                warn!(%queue, %namespace, %pod, why, "Takes room and isn't ready, and nothing can be done");
            }
            Task::Expire | Task::Evict => debug!(%queue, %namespace, %pod, why, "Left alone"),
            Task::Announce | Task::Withdraw | Task::Note => {
                debug!(%queue, %namespace, %pod, why, "Not told");
            }
        }
    }

    /// Counts the result for a pod whose ceiling is exceeded. `kind` is that of the object that was
    /// acted on. Empty: nothing was done, or a try failed without a refusal.
    fn expired(&self, group: &DueBatch, kind: &str, result: ExpiryResult) {
        let DuePod { family, queue, .. } = &group.first;
        self.handles.metrics.queues.expirations.inc([family.row().name, queue, kind, &label(result)]);
    }
}

/// Returns the span of an act that ended a run, from the time at which the run was due. Its part is
/// the work of this keeper. Other acts have no span of their own.
fn span(batch: &DueBatch, act: &Act, begun: Timestamp, now: Timestamp) -> Span {
    let name = match act {
        Act::Pause(..) if batch.task.ends_run() => "pause",
        Act::DeletePod(_) | Act::DeleteOwner(_) if batch.task.ends_run() => "delete",
        _ => return Span::default(),
    };
    let DuePod { queue, namespace, name: pod, deadline, .. } = &batch.first;
    let attributes = [("queue", queue.as_str()), ("namespace", namespace), ("pod", pod)];
    let due = Span::whole(name, (*deadline, now), &attributes);
    due.part("act", (begun, now), &[]);
    due
}
