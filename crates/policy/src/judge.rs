//! Judges what to do about a pod whose task is due. The keeper calls [`judge`] for each group of
//! due pods.
//!
//! The judgement is pure. A fact that is missing is returned as a [`MissingFact`]: gather the fact,
//! add it to the [`CaseFacts`] of the case, and judge again. The keeper judges the resulting [`Act`]
//! once more right before the write, by the index and the clock of that moment, and writes only if
//! the act is [the same](Act::is_same).

mod act;
mod case;
mod notice;
mod target;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_types::{paused::PausedRecord, podgroup::PodGroupKind, projection::Pod};

use crate::{
    naming::describe,
    pause::{self, OwnerObject, Pause, PauseCandidate, PausePlan, PodDeletionCause, Reversals},
    ready::Readiness,
    requeue::Backoff,
};

pub use act::{Act, BatchCoverage, Notice, NoticeChange, OwnerDeletion, PodDeletion};
pub use case::{Case, CaseFacts, Climbed, DuePods, MissingFact, RunState, TRIES, Task};
use target::ActTarget;

/// Judges a case at `now`, a time by the API server's clock. An error names the fact that is
/// missing.
///
/// Where the facts leave a doubt, the act writes nothing: [`Act::Leave`], [`Act::PutOff`] or
/// [`Act::TooEarly`].
///
/// ```
/// use jiff::Timestamp;
/// use tenure_policy::{
///     expiry::Family,
///     judge::{Act, Case, CaseFacts, DuePods, MissingFact, RunState, Task, judge},
/// };
///
/// let deadline: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
/// let due = DuePods {
///     family: Family::Runai,
///     queue: "training".into(),
///     deadline,
///     first_deadline: deadline,
///     last_deadline: deadline,
///     handed_out: deadline,
///     first_announced_end: None,
///     announced_ends: Vec::new(),
///     attempts: 0,
/// };
/// let mut case = Case { task: Task::Expire, due, config: <_>::default(), answers: CaseFacts::default() };
/// let state = RunState { is_fresh: true, ..RunState::default() };
/// // the pod must be read first
/// assert_eq!(judge(&case, &state, deadline), Err(MissingFact::Pod));
/// // the pod is gone
/// case.answers.pod = Some(None);
/// assert!(matches!(judge(&case, &state, deadline), Ok(Act::Leave(..))));
/// ```
pub fn judge(case: &Case, state: &RunState, now: Timestamp) -> Result<Act, MissingFact> {
    let (due, task) = (&case.due, case.task);
    if matches!(task, Task::Announce | Task::Note) && due.deadline <= now {
        // the other pods may run on, and are still to be told then
        let coverage = if due.last_deadline <= now { BatchCoverage::All } else { BatchCoverage::First };
        return Ok(Act::Leave("its run has ended", coverage));
    }
    let Some(pod) = case.pod()? else {
        return Ok(Act::Leave("the pod is gone or exempt", BatchCoverage::Gone));
    };
    if task == Task::Evict && is_ready_by_itself(pod) {
        return Ok(Act::Leave("the pod is ready by now", BatchCoverage::First));
    }
    if task.ends_run()
        && let Some(act) = not_now(case, state, now)?
    {
        return Ok(act);
    }
    match case.target()? {
        ActTarget::Nothing(act) => Ok(act),
        ActTarget::Object(object, coverage) => notice::judge(case, state, now, object, coverage),
        ActTarget::Pod(alone) => Ok(delete_pod(case, state, alone, None)),
        ActTarget::Owner(owner) => end_by_owner(case, pod, state, now, owner),
    }
}

/// Returns the act that stands in place of the end of a run, if the run isn't due by the facts
/// known now. None: it is due.
fn not_now(case: &Case, state: &RunState, now: Timestamp) -> Result<Option<Act>, MissingFact> {
    let put_off = |why, coverage| Ok(Some(Act::PutOff(why, coverage)));
    if case.due.deadline >= now {
        return Ok(Some(Act::TooEarly));
    }
    if !state.is_fresh {
        return put_off("not all watches have answered", BatchCoverage::All);
    }
    if !case.is_due(state, now) {
        return put_off("the pod has changed since it was judged", BatchCoverage::First);
    }
    if case.task == Task::Evict
        && let Some(act) = ready_or_in_time(state, now)
    {
        return Ok(Some(act));
    }
    if !case.queues_are_as_known()? {
        return put_off("its queue has changed since it was judged", BatchCoverage::All);
    }
    if state.awaits_queue {
        return put_off("a queue on its way to the root is missing for a moment", BatchCoverage::All);
    }
    let is_extended = case.task == Task::Expire && state.granted_end.is_some_and(|end| end >= now);
    Ok(is_extended.then_some(Act::Extended))
}

/// Returns the act that stands in place of an eviction, if the workload has got ready or more time
/// since its pod was handed out. The other pods of the batch may have other times. None: the workload
/// isn't ready in time.
fn ready_or_in_time(state: &RunState, now: Timestamp) -> Option<Act> {
    let Some(ready_by) = state.ready_by else {
        let why = "its workload is ready by now, or may take any time";
        return Some(Act::Leave(why, BatchCoverage::First));
    };
    let why = "its workload has got more time to be ready";
    (ready_by >= now).then_some(Act::PutOff(why, BatchCoverage::First))
}

/// Judges the end of a run by the pause or the deletion of `owner`.
///
/// The object must be the one that the reference names, by uid, and neither paused, finished nor
/// being deleted.
fn end_by_owner(
    case: &Case,
    pod: &Pod,
    state: &RunState,
    now: Timestamp,
    owner: OwnerReference,
) -> Result<Act, MissingFact> {
    let table = &case.config.table;
    let Some(found) = case.object(&owner)? else {
        return Ok(Act::Leave("its owner is gone", BatchCoverage::All));
    };
    if found.metadata.uid.as_deref() != Some(&owner.uid) || found.metadata.deletion_timestamp.is_some() {
        return Ok(Act::Leave("its owner is being deleted or gone", BatchCoverage::All));
    }
    let object = OwnerObject(&found.value);
    if table.rules(&owner).any(|rule| object.is_paused(rule)) {
        return Ok(Act::PausedBefore);
    }
    if object.is_finished() {
        return Ok(delete_pod(case, state, PodDeletionCause::Finished(describe(&owner)), None));
    }
    if let Some(action) = pause::awaited(object, &owner, table, state.since) {
        return Ok(Act::Command(owner, action));
    }
    // since the pod was read, a user may have paused and resumed its owner: only a pod that still
    // exists after its owner was read belongs to the run that this version of the owner has
    if !case.is_still_there()? {
        return Ok(Act::Leave("the pod is gone or exempt", BatchCoverage::Gone));
    }
    // since this pod was handed out, a sibling may have been the reason for a pause
    if case.task == Task::Evict && state.outlives {
        let why = "its owner was resumed, and the pod belongs to the run that was evicted";
        return Ok(Act::Leave(why, BatchCoverage::All));
    }
    // the ceiling of the queue counts as before, so no change of the owner can put off the end
    // again and again
    if case.task == Task::Expire && state.end_below.is_none_or(|end| end >= now) {
        let why = "its owner's ceiling has changed since it was judged";
        return Ok(Act::PutOff(why, BatchCoverage::All));
    }
    let candidate = PauseCandidate { now, state: object.requeue_state(), priority: pod.spec.priority };
    if case.task == Task::Evict {
        let reversals = Reversals::of(object, pause::PODS_READY_TIMEOUT, state.since);
        return Ok(evict(state, &candidate, owner, reversals));
    }
    let ceiling = state.ceiling.clone();
    if table.deletes(&owner) {
        return Ok(Act::DeleteOwner(Box::new(OwnerDeletion { owner, ceiling })));
    }
    let reversals = Reversals::of(object, pause::MAX_DURATION_EXCEEDED, state.since);
    let on_reversal = table.on_reversal(&owner).unwrap_or(state.on_reversal);
    let deletes = reversals.delete_pods(on_reversal, state.slice_delay);
    if let Some(record) = object.last_record().filter(|_| deletes) {
        let alone = PodDeletionCause::Undone(describe(&owner));
        return Ok(delete_pod(case, state, alone, Some((owner, record, reversals))));
    }
    let plan = PausePlan::expired(&candidate, state.slice_delay);
    let unannounced = is_unannounced(state, object);
    Ok(Act::Pause(owner, Box::new(Pause { plan, ceiling, reversals, unannounced })))
}

/// Returns the pause of a workload that isn't ready in time. [`Act::Leave`] if its queue no longer
/// evicts such workloads.
fn evict(state: &RunState, candidate: &PauseCandidate, owner: OwnerReference, reversals: Reversals) -> Act {
    let Some(backoff) = &state.backoff else {
        return Act::Leave("its queue doesn't wait for pods to be ready any more", BatchCoverage::All);
    };
    let plan = PausePlan::unready(candidate, backoff, |count| Backoff::random(&owner.uid, count));
    Act::Pause(owner, Box::new(Pause::new(plan, reversals)))
}

/// True if a pod is ready and isn't part of a `PodGroup`. A group needs more than one ready pod.
fn is_ready_by_itself(pod: &Pod) -> bool {
    let is_grouped = PodGroupKind::ALL.into_iter().any(|kind| kind.named_by(pod).is_some());
    !is_grouped && Readiness::of(pod) == Readiness::Ready
}

/// True if an owner was due a notice of the end of its run, and got none. After a pause that was
/// undone the answer is false: the pause has removed the notice.
fn is_unannounced(state: &RunState, object: OwnerObject<'_>) -> bool {
    let is_announced = object.announcement().is_some_and(|of| of.given_since(state.since).is_some());
    !state.notice.is_empty() && !is_announced && object.last_record().is_none()
}

fn delete_pod(
    case: &Case,
    state: &RunState,
    alone: PodDeletionCause,
    undone: Option<(OwnerReference, PausedRecord, Reversals)>,
) -> Act {
    let is_for_ceiling = case.task == Task::Expire;
    let ceiling = state.ceiling.clone().filter(|_| is_for_ceiling);
    Act::DeletePod(Box::new(PodDeletion { alone, ceiling, undone }))
}
