//! Acts on pods that have expired or will expire: on their topmost owner, or on the pod itself.
//!
//! The facts of a case are [gathered](gather) and [judged](tenure_policy::judge). Right before the
//! write they are brought up to date and judged again, and only the same act is done. The
//! `ExpiryController` calls `Pauser::act` for each batch of due pods.

mod act_events;
mod announce;
mod conflicts;
mod delete;
mod failure;
mod gather;
mod kept;
mod pause_events;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use serde_json::Value;
use tenure_index::{BatchCoverage, DueBatch, DuePod};
use tenure_policy::{
    climb::Action,
    expiry::Scope,
    judge::{Act, Case, MissingFact, NoticeChange, RunState, Task, judge},
    kueue::{self, Lookup},
    naming::{PausedObject, describe},
    owner_table::PauseRule,
    pause::{self, OwnerObject, Pause},
};
use tenure_service::{call::ApiError, log::with_causes};
use tenure_types::{journal::JournalAct, paused::PausedRecord, projection::WholeObject};
use tracing::warn;

pub use act_events::events_of;
pub use conflicts::ConflictRetries;
pub use failure::{ActionFailure, is_late};

use gather::CaseWork;
use kept::{ExemptOwners, ListedExtensions};

use crate::{
    api::UncertainWrite, events::EventRecord, handles::Handles, ledger::EndingPods, limit::WriteLimit,
};

/// Pauses owners, deletes pods and owners, and announces the end of runs.
pub struct Pauser {
    pub handles: Arc<Handles>,
    /// The limit of pauses and deletions.
    limit: WriteLimit,
    /// The pods that the keeper may act on.
    scope: Scope,
    /// The owners of pods that are exempt by priority, as they were a moment ago.
    exempt_owners: Mutex<ExemptOwners>,
    /// The granted extensions of namespaces, as they were a moment ago.
    extensions: Mutex<ListedExtensions>,
}

/// The act that was done, or the reason why none was, with the events to write about it.
pub struct ActResult {
    pub act: Act,
    pub events: Vec<EventRecord>,
    /// True if an owner further up has ended. The pods of the batch may then have different owners
    /// below that owner.
    is_below_ended: bool,
}

/// A pause as it is written: the patch sets the field, and notes the record and the act in the
/// journal.
struct PauseWrite {
    record: PausedRecord,
    noted: JournalAct,
    patch: Value,
}

/// The most further Workloads of a job that are deactivated with the first. A tenant may create
/// more.
const MOST_SLICES: usize = 16;

impl ActResult {
    /// Returns an act without events.
    const fn silent(act: Act) -> Self {
        Self::new(act, Vec::new())
    }

    const fn new(act: Act, events: Vec<EventRecord>) -> Self {
        Self { act, events, is_below_ended: false }
    }

    /// Returns the pods of the batch that the act serves.
    pub fn served(&self) -> BatchCoverage {
        match &self.act {
            Act::Pause(..) | Act::Command(..) | Act::DeleteOwner(_) | Act::PausedBefore
                if self.is_below_ended =>
            {
                BatchCoverage::First
            }
            Act::Leave(_, coverage) | Act::PutOff(_, coverage) => *coverage,
            Act::Announce(notice) => notice.coverage,
            Act::DeletePod(_) | Act::Exempt | Act::Forbidden(_) => BatchCoverage::First,
            Act::Pause(..)
            | Act::Command(..)
            | Act::DeleteOwner(_)
            | Act::TooEarly
            | Act::Extended
            | Act::PausedBefore => BatchCoverage::All,
        }
    }
}

impl Pauser {
    /// Creates a pauser with a write limit of its own.
    pub fn new(handles: Arc<Handles>, scope: Scope) -> Self {
        let (exempt_owners, extensions) = Default::default();
        Self { limit: handles.limit(), handles, scope, exempt_owners, extensions }
    }

    /// Acts on a batch, and returns what was done. An owner that other writers keep changing is
    /// read again a few times, but not for an eviction that isn't late.
    pub async fn act(&self, batch: &DueBatch) -> Result<ActResult, ActionFailure> {
        let mut work = self.begin(batch);
        let mut conflicts = ConflictRetries::default();
        loop {
            match self.try_to_act(&mut work, conflicts.is_retry()).await {
                // the status of a Job changes as its pods get ready: the next try judges by what
                // the watches show then
                Err(failure)
                    if failure.is_stale()
                        && batch.task == Task::Evict
                        && !is_late(&batch.first, self.handles.now()) =>
                {
                    let why = "its owner has just changed";
                    return Ok(ActResult::silent(Act::PutOff(why, BatchCoverage::All)));
                }
                Err(failure) if failure.is_stale() && conflicts.may_retry() => conflicts.wait().await,
                Err(ActionFailure::NoField { owner, .. }) if work.case.answers.leave_out(&owner) => {}
                Err(failure) if failure.is_gone() => {
                    return Ok(nothing("its owner is gone", BatchCoverage::All));
                }
                Ok(done) => {
                    let climbed = work.case.answers.climbed;
                    let is_below_ended = climbed.is_some_and(|climbed| climbed.ended.is_some());
                    return Ok(ActResult { is_below_ended, ..done });
                }
                failed => return failed,
            }
        }
    }

    /// Gathers the facts, waits for the write limit, reads the object again, judges again, and
    /// writes. A retry waits first.
    async fn try_to_act(&self, work: &mut CaseWork<'_>, is_retry: bool) -> Result<ActResult, ActionFailure> {
        if is_retry || awaits_turn(work.batch.task, &self.gather(work).await?) {
            self.take_turn(work).await?;
        }
        let act = self.gather(work).await?;
        if let Act::Forbidden(owner) = act {
            return Err(ActionFailure::ForbiddenOwner(owner));
        }
        if !act.is_done() {
            return Ok(ActResult::silent(act));
        }
        match self.judge_again(work, &act) {
            Act::Pause(owner, pause) => self.pause(work, &owner, &pause).await,
            Act::Command(owner, action) => {
                self.command(work, &owner, &action).await?;
                Ok(ActResult::silent(Act::PausedBefore))
            }
            Act::DeletePod(deletion) => self.delete_pod(work, &deletion).await,
            Act::DeleteOwner(deletion) => self.delete_owner(work, &deletion).await,
            Act::Announce(notice) => self.announce(work, &notice).await,
            act => Ok(ActResult::silent(act)),
        }
    }

    /// Judges a case right before a write, by the index and the clock of this moment. Returns the
    /// same act, `TooEarly` or `Extended`, or else `PutOff`.
    fn judge_again(&self, work: &mut CaseWork<'_>, act: &Act) -> Act {
        self.refresh(work);
        match judge(&work.case, &work.state, self.handles.now()) {
            Ok(again) if again.is_same(act) => again,
            Ok(again @ (Act::TooEarly | Act::Extended)) => again,
            _ => Act::PutOff("its facts have just changed", BatchCoverage::First),
        }
    }

    /// Waits until the write limit allows the act. Before the end of a run, lists the extensions: the
    /// watch may not have shown a grant yet. Then has the object read again: other writers may have
    /// changed it, and as little as possible comes between its reading and the write.
    async fn take_turn(&self, work: &mut CaseWork<'_>) -> Result<(), ActionFailure> {
        if work.batch.task.ends_run() {
            self.await_turn().await;
            work.granted = self.granted(work).await?;
        } else if work.batch.task != Task::Note && !self.handles.dry_run {
            self.handles.announcements.until_ready().await;
        }
        work.read_again();
        Ok(())
    }

    /// Waits until the write limit allows a write. A dry run writes nothing, and doesn't wait.
    async fn await_turn(&self) {
        if !self.handles.dry_run {
            self.limit.until_ready().await;
        }
    }

    /// Pauses an owner by the first rule whose field the served schema has. Then sends the Command
    /// of the rule, and deactivates the further Workloads of the job.
    ///
    /// Fails with [`ActionFailure::NoField`] if the schema has none of the fields, with
    /// [`ActionFailure::Dropped`] if the returned object lacks the pause, with [`ActionFailure::Pause`] if the
    /// API server refuses the patch, and with [`ActionFailure::Api`] if the API server doesn't answer at
    /// all.
    async fn pause(
        &self,
        work: &mut CaseWork<'_>,
        owner: &OwnerReference,
        pause: &Pause,
    ) -> Result<ActResult, ActionFailure> {
        let Some(found) = work.found().cloned() else { return Ok(unread()) };
        let known = kueue::known(owner, &found.metadata);
        let ending = self.ending_below(work.batch.task, &known);
        let (config, first) = (Arc::clone(&work.case.config), &work.batch.first);
        let mut act = pause.clone();
        for (number, rule) in config.table.rules(owner).enumerate() {
            // each write takes its turn
            if number > 0 {
                self.await_turn().await;
                match self.judge_again(work, &Act::Pause(owner.clone(), Box::new(act))) {
                    Act::Pause(_, again) => act = *again,
                    other => return Ok(ActResult::silent(other)),
                }
            }
            let PauseWrite { record, noted, patch } = self.pause_of(&found, rule, first, &act);
            let is_done = |found: &WholeObject| OwnerObject(&found.value).record().as_ref() == Some(&record);
            let returned = if self.handles.dry_run {
                Ok(applied(&found.value, &patch))
            } else {
                let written = self.handles.objects.write(&first.namespace, owner, &patch, is_done).await;
                written.map(|written| written.value)
            };
            match returned {
                Err(UncertainWrite { source: ApiError::UnknownField(_), .. }) => {}
                Err(UncertainWrite { source, answers: false }) => return Err(ActionFailure::Api(source)),
                Err(UncertainWrite { source, .. }) => {
                    return Err(ActionFailure::Pause { owner: owner.clone(), source });
                }
                Ok(returned) if !pause::took(OwnerObject(&returned), &record) => {
                    return Err(ActionFailure::Dropped { owner: owner.clone(), field: rule.field.clone() });
                }
                Ok(_) => {
                    ending.succeeded();
                    if let Some(command) = &rule.command {
                        self.await_turn().await;
                        // the next try sends the Command again
                        if let Err(failure) = self.command(work, owner, &command.pause).await {
                            let (owner, error) = (describe(owner), with_causes(&failure));
                            warn!(owner, error, "Failed to send the Command of a pause");
                        }
                    }
                    self.pause_slices(work, owner, rule, &act).await;
                    let mut events = events_of(&noted, &known);
                    self.complete_pause_events(work, &record, &known, &act.plan.until, &mut events).await;
                    return Ok(ActResult::new(Act::Pause(owner.clone(), Box::new(act)), events));
                }
            }
        }
        let fields: Vec<&str> = config.table.rules(owner).map(|rule| rule.field.as_str()).collect();
        Err(ActionFailure::NoField { owner: owner.clone(), fields: fields.join(", ") })
    }

    /// Creates a Command of Volcano for an owner, as the owner was read. A dry run creates none.
    async fn command(
        &self,
        work: &CaseWork<'_>,
        owner: &OwnerReference,
        action: &str,
    ) -> Result<(), ActionFailure> {
        let Some(found) = work.found().filter(|_| !self.handles.dry_run) else { return Ok(()) };
        let command = pause::command(OwnerObject(&found.value), action);
        let sent = self.handles.objects.command(&work.batch.first.namespace, &command).await;
        sent.map_err(|source| ActionFailure::Pause { owner: owner.clone(), source })
    }

    /// Builds the record, the act for the journal, and the patch of a pause by a rule.
    fn pause_of(&self, found: &WholeObject, rule: &PauseRule, due: &DuePod, act: &Pause) -> PauseWrite {
        let object = OwnerObject(&found.value);
        let record = pause::record(object, rule, (due.family, &due.queue), act.clone());
        let patch = pause::patch(object, &record, &act.plan.until);
        let state = OwnerObject(&applied(&found.value, &patch)).requeue_state();
        let noted = JournalAct::Paused { record: record.clone(), state };
        let patch = pause::with_act(patch, &found.metadata, Some(noted.clone()), self.handles.now());
        PauseWrite { record, noted, patch }
    }

    /// Deactivates the other Workloads of a job that Kueue runs in slices: Kueue would go on with
    /// the next slice. A Workload whose write fails is left for the next ceiling, and so are all
    /// that are left once a user has resumed the first. The job is the owner of the pod, because a
    /// user may write any label on a Workload.
    async fn pause_slices(
        &self,
        work: &CaseWork<'_>,
        paused: &OwnerReference,
        rule: &PauseRule,
        act: &Pause,
    ) {
        let Some(Action::Pause(job)) = work.case.answers.climbed.as_ref().map(|climbed| &climbed.action)
        else {
            return;
        };
        if self.handles.dry_run || !kueue::is_workload(paused) {
            return;
        }
        let (due, job) = (&work.batch.first, job.uid.as_str());
        let namespace = &due.namespace;
        let others = |found: &[WholeObject]| -> Vec<Option<String>> {
            let slices = kueue::slices(found.iter().map(|found| &found.value), job, &paused.uid);
            slices.into_iter().take(MOST_SLICES).collect()
        };
        let slices = match self.handles.objects.workloads(namespace, Lookup::Labelled(job), others).await {
            Ok(found) => found.chosen,
            Err(error) => {
                let (owner, error) = (describe(paused), with_causes(&error));
                warn!(%namespace, owner, error, "Other Workloads of Kueue can't be read: they stay active");
                return;
            }
        };
        for slice in &slices {
            self.await_turn().await;
            let owner = kueue::refer_to(OwnerObject(&slice.value));
            if let Err(error) = self.pause_slice(work, paused, &owner, rule, act).await {
                let (owner, error) = (describe(&owner), with_causes(&error));
                warn!(%namespace, owner, error, "Failed to deactivate another Workload of the job");
            }
        }
    }

    /// Deactivates a Workload as it is now: Kueue may have written its status while it waited for
    /// its turn. Does nothing if the Workload is gone or was deactivated, or if a user has resumed
    /// the one that was paused first.
    async fn pause_slice(
        &self,
        work: &CaseWork<'_>,
        paused: &OwnerReference,
        workload: &OwnerReference,
        rule: &PauseRule,
        act: &Pause,
    ) -> Result<(), ApiError> {
        let due = &work.batch.first;
        if !self.has_stopped(due, paused, &work.case.config.table).await? {
            return Ok(());
        }
        let found = self.handles.objects.live(&due.namespace, workload).await?;
        let found = found.filter(|found| kueue::is_active(OwnerObject(&found.value)));
        let Some(found) = found else { return Ok(()) };
        let PauseWrite { record, patch, .. } = self.pause_of(&found, rule, due, act);
        let is_done = |found: &WholeObject| OwnerObject(&found.value).record().as_ref() == Some(&record);
        Ok(self.handles.objects.write(&due.namespace, workload, &patch, is_done).await.map(drop)?)
    }

    /// Notes in the ledger that the pods below an owner are being ended. The note is taken back
    /// unless `succeeded` is called on the result.
    fn ending_below(&self, task: Task, owner: &PausedObject) -> EndingPods {
        let Handles { usage, cluster, .. } = &*self.handles;
        let owner = owner.object.namespace.as_deref().zip(owner.object.uid.as_deref());
        usage.ending_below(task, owner, cluster, self.handles.now())
    }
}

/// True if an act waits for a write limit. The caller of a [`Task::Note`] has waited already.
fn awaits_turn(task: Task, act: &Act) -> bool {
    match act {
        Act::Announce(notice) => task != Task::Note && notice.change != NoticeChange::Keep,
        act => act.is_done(),
    }
}

/// Returns that nothing is done, with the reason.
const fn nothing(why: &'static str, coverage: BatchCoverage) -> ActResult {
    ActResult::silent(Act::Leave(why, coverage))
}

/// Returns that nothing is done for want of the object. A judgement asks for an object before it
/// returns an act on it, so this is a fallback.
const fn unread() -> ActResult {
    nothing("it was not read", BatchCoverage::First)
}

/// Returns an object as a merge patch would change it.
fn applied(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}

#[cfg(test)]
mod tests;
