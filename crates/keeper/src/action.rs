//! Acts on pods that have expired or will expire: on their topmost owner, or on the pod itself.
//!
//! The facts of a case are [gathered](gather), [judged](tenure_policy::judge), brought up to date, judged again, and then the act is
//! written.

mod conflicts;
mod failure;
mod gather;
mod kept;
mod told;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use parking_lot::Mutex;
use serde_json::Value;
use tenure_index::{BatchCoverage, DueBatch};
use tenure_policy::{
    expiry::Scope,
    judge::{Act, Case, Notice, NoticeChange, OwnerDeletion, PodDeletion, Question, RunState, Task, judge},
    kueue,
    naming::{PausedObject, describe, of_pod, reference},
    pause::{self, OwnerObject, Pause, ResumeCondition},
};
use tenure_service::call::{ApiError, persist};
use tenure_types::{
    extension::Extension,
    journal::{GivenNotice, JournalAct},
    paused::PausedRecord,
    projection::WholeObject,
};
use tracing::warn;

pub use conflicts::Conflicts;
pub use failure::{Failure, LATE_AFTER};
pub use kept::{ExemptOwners, ListedExtensions};
pub use told::events_of;

use crate::{api::WriteError, events::EventRecord, handles::Handles, ledger::EndingPods, limit::WriteLimit};

/// Pauses owners, deletes pods, and announces the end of runs.
pub struct Pauser {
    pub handles: Arc<Handles>,
    pub limit: WriteLimit,
    pub scope: Scope,
    /// The owners of pods that are exempt by priority.
    pub exempt_owners: Mutex<ExemptOwners>,
    /// The extensions of namespaces, as they were a moment ago.
    pub extensions: Mutex<ListedExtensions>,
}

/// The result of an action, with the events to write about it.
pub struct Done {
    pub result: ActionResult,
    pub events: Vec<EventRecord>,
    pub served: BatchCoverage,
}

/// The action that was taken.
pub enum ActionResult {
    /// This owner was paused, and so often its earlier pauses were reversed.
    Paused { owner: OwnerReference, reversals: u32, until: ResumeCondition },
    /// The pod was deleted.
    Deleted,
    /// This owner was deleted, in place of a pause.
    OwnerDeleted(OwnerReference),
    /// The end of the run was announced on the workload, or withdrawn.
    Announced { owner: OwnerReference, end: Timestamp },
    /// Nothing, ever: its controller exempts it.
    Exempt,
    /// Nothing: its run was granted more time.
    Extended,
    /// Nothing: its owner is paused.
    PausedBefore,
    /// Nothing yet: the API server's clock was set back.
    TooEarly,
    /// Nothing yet: its basis may be out of date, for this reason.
    PutOff(&'static str),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

/// A case that is being worked on.
struct Work<'b> {
    batch: &'b DueBatch,
    case: Case,
    state: RunState,
    /// The granted extensions of the namespace, listed a moment ago.
    granted: Option<Arc<Vec<Extension>>>,
}

impl Done {
    const fn nothing(why: &'static str, served: BatchCoverage) -> Self {
        Self { result: ActionResult::Nothing(why), events: Vec::new(), served }
    }
}

impl Pauser {
    /// Acts on a group. An owner that other writers keep changing is read again a few times.
    pub async fn act(&self, batch: &DueBatch) -> Result<Done, Failure> {
        let mut work = self.begin(batch);
        let mut conflicts = Conflicts::default();
        loop {
            match self.try_to_act(&mut work, conflicts.is_retry()).await {
                // the status of a Job changes as its pods get ready: it is judged again by what the watches show then
                Err(failure) if failure.is_stale() && batch.task == Task::Evict => {
                    return Ok(Done::nothing("its owner has just changed", BatchCoverage::All));
                }
                Err(failure) if failure.is_stale() && conflicts.may_retry() => {
                    conflicts.wait().await;
                    (work.case.answers.object, work.case.answers.is_still_there) = (None, None);
                }
                Err(failure) if failure.is_gone() => {
                    return Ok(Done::nothing("its owner is gone", BatchCoverage::All));
                }
                result => return result,
            }
        }
    }

    async fn try_to_act(&self, work: &mut Work<'_>, is_retry: bool) -> Result<Done, Failure> {
        // another writer keeps changing the owner: as little as possible comes between its reading and the write
        if is_retry {
            self.take_turn(work).await?;
        }
        let act = self.gather(work).await?;
        if act.is_done() && !is_retry {
            self.take_turn(work).await?;
        }
        if let Act::Forbidden(owner) = act {
            return Err(Failure::ForbiddenOwner(owner));
        }
        if !act.is_done() {
            return Ok(idle(&act));
        }
        match self.judge_again(work, &act) {
            Act::Pause(owner, pause) => self.pause(work, &owner, &pause).await,
            Act::DeletePod(deletion) => self.delete_pod(work, &deletion).await,
            Act::DeleteOwner(deletion) => self.delete_owner(work, &deletion).await,
            Act::Announce(notice) => self.announce(work, &notice).await,
            act => Ok(idle(&act)),
        }
    }

    /// Brings a case up to date from the index and the clock, and judges it right before a write: the same act, or nothing for now.
    fn judge_again(&self, work: &mut Work<'_>, act: &Act) -> Act {
        self.refresh(work);
        match judge(&work.case, &work.state, self.handles.now()) {
            Ok(again) if again.is_same(act) => again,
            Ok(again @ (Act::TooEarly | Act::Extended)) => again,
            _ => Act::PutOff("what it rests on has just changed", BatchCoverage::First),
        }
    }

    /// Waits until the rate limit allows a write, and lists the extensions: a grant may not have come by the watch yet.
    async fn take_turn(&self, work: &mut Work<'_>) -> Result<(), Failure> {
        if work.batch.task.ends_run() {
            self.await_turn().await;
            work.granted = self.granted(work).await?;
        }
        Ok(())
    }

    /// Waits until the rate limit allows a write. A dry run writes nothing.
    async fn await_turn(&self) {
        if !self.handles.dry_run {
            self.limit.until_ready().await;
        }
    }

    /// Sets the field of the first rule that the served schema knows.
    async fn pause(
        &self,
        work: &mut Work<'_>,
        owner: &OwnerReference,
        pause: &Pause,
    ) -> Result<Done, Failure> {
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
                    other => return Ok(idle(&other)),
                }
            }
            let object = OwnerObject(&found.value);
            let record = pause::record(object, rule, (first.family, &first.queue), act.clone());
            let patch = pause::patch(object, rule, &record, &act.plan.until);
            let state = OwnerObject(&applied(&found.value, &patch)).requeue_state();
            let noted = JournalAct::Paused { record: record.clone(), state };
            let patch = pause::with_act(patch, &found.metadata, Some(noted.clone()), self.handles.now());
            let is_done = |found: &WholeObject| OwnerObject(&found.value).record().as_ref() == Some(&record);
            let returned = if self.handles.dry_run {
                Ok(applied(&found.value, &patch))
            } else {
                let written = self.handles.objects.write(&first.namespace, owner, &patch, is_done).await;
                written.map(|written| written.value)
            };
            match returned {
                Err(WriteError { source: ApiError::UnknownField(_), .. }) => {}
                Err(WriteError { source, answers: false }) => return Err(Failure::Api(source)),
                Err(WriteError { source, .. }) => {
                    return Err(Failure::Pause { owner: owner.clone(), source });
                }
                Ok(returned) if !pause::took(OwnerObject(&returned), rule, &record) => {
                    return Err(Failure::Dropped { owner: owner.clone(), field: rule.field.clone() });
                }
                Ok(_) => {
                    ending.succeeded();
                    let events = events_of(&noted, &known);
                    return Ok(self.paused(work, (owner, &act), &record, &known, events).await);
                }
            }
        }
        let fields: Vec<&str> = config.table.rules(owner).map(|rule| rule.field.as_str()).collect();
        Err(Failure::NoField { owner: owner.clone(), fields: fields.join(", ") })
    }

    async fn paused(
        &self,
        work: &Work<'_>,
        (owner, pause): (&OwnerReference, &Pause),
        record: &PausedRecord,
        known: &PausedObject,
        mut events: Vec<EventRecord>,
    ) -> Done {
        if !self.handles.dry_run && !matches!(pause.plan.until, ResumeCondition::Requeued(_)) {
            let cron_job = pause::cron_job_of(
                &known.object,
                &work.found().map(|of| of.metadata.clone()).unwrap_or_default(),
            );
            if let Some(cron_job) = cron_job
                && let Ok(found) = self.handles.objects.get(&work.batch.first.namespace, &cron_job).await
            {
                events.extend(told::held_up(&cron_job, &found, known, record.at));
            }
        }
        self.handles.cluster.outbox.telling(known, record.at);
        told::caused_by(&mut events, &work.cause());
        if self.handles.dry_run {
            told::of_dry_run(&mut events, Some(work.batch.first.deadline));
        }
        let (owner, reversals, until) = (owner.clone(), record.reversals, pause.plan.until);
        Done { result: ActionResult::Paused { owner, reversals, until }, events, served: BatchCoverage::All }
    }

    async fn delete_pod(&self, work: &mut Work<'_>, deletion: &PodDeletion) -> Result<Done, Failure> {
        let deleted = |events| Done { result: ActionResult::Deleted, events, served: BatchCoverage::First };
        let Some(pod) = work.pod().map(of_pod) else { return Ok(unread()) };
        let mut events = told::of_pod_deletion(work.batch, &pod, deletion);
        if self.handles.dry_run {
            told::of_dry_run(&mut events, None);
            return Ok(deleted(events));
        }
        if let Some((owner, record, reversals)) = &deletion.undone {
            let metadata = work.found().map(|found| found.metadata.clone()).unwrap_or_default();
            let known = kueue::known(owner, &metadata);
            events.push(told::not_paused_again(work.batch, &pod, record, reversals, &known));
        }
        match &deletion.alone {
            pause::Alone::Outlives(_) | pause::Alone::Undone(_) => {
                let (namespace, pod, alone) = (&work.batch.first.namespace, &pod.name, &deletion.alone);
                warn!(%namespace, pod, ?alone, "Its owner can't be stopped: deleting the pod");
            }
            _ => {}
        }
        let namespace = work.batch.first.namespace.clone();
        let metadata = work.pod().map(|pod| pod.metadata.clone()).unwrap_or_default();
        let known = PausedObject { object: reference(&pod, Some(&namespace)), workload: None };
        let would_delete = self.handles.objects.would_delete_pod(&namespace, &pod.name).await;
        let act = Act::DeletePod(Box::new(deletion.clone()));
        let again =
            self.tell_first(work, &act, would_delete.is_ok().then_some((&known, &metadata)), events).await?;
        if !again.is_done() {
            return Ok(idle(&again));
        }
        let ending = self.handles.usage.ending(work.batch.task, [work.batch.first.uid], self.handles.now());
        match self.handles.objects.delete_pod(&namespace, &pod.name, &pod.uid).await {
            Err(ApiError::NotFound | ApiError::Stale(_)) => {
                return Ok(Done::nothing("the pod is gone or another one", BatchCoverage::Gone));
            }
            // it may have been done all the same
            Err(error) if error.is_open() => {
                let rest =
                    persist(async || self.pod(&work.batch.first).await).await.map_err(Failure::Delete)?;
                if rest.is_some() {
                    return Err(Failure::Delete(error));
                }
            }
            result => result.map_err(Failure::Delete)?,
        }
        ending.succeeded();
        Ok(deleted(Vec::new()))
    }

    async fn delete_owner(&self, work: &mut Work<'_>, deletion: &OwnerDeletion) -> Result<Done, Failure> {
        let owner = &deletion.owner;
        let deleted = |events| Done {
            result: ActionResult::OwnerDeleted(owner.clone()),
            events,
            served: BatchCoverage::All,
        };
        let Some(metadata) = work.found().map(|found| found.metadata.clone()) else { return Ok(unread()) };
        let known = kueue::known(owner, &metadata);
        let mut events = told::of_owner_deletion(work.batch, work.pod(), &known, deletion);
        if self.handles.dry_run {
            told::of_dry_run(&mut events, None);
            return Ok(deleted(events));
        }
        let namespace = work.batch.first.namespace.clone();
        let would_delete = self.handles.objects.would_delete_owner(&namespace, owner).await;
        let act = Act::DeleteOwner(Box::new(deletion.clone()));
        let again =
            self.tell_first(work, &act, would_delete.is_ok().then_some((&known, &metadata)), events).await?;
        if !again.is_done() {
            return Ok(idle(&again));
        }
        let ending = self.ending_below(Task::Expire, &known);
        match self.handles.objects.delete_owner(&namespace, owner, metadata.resource_version).await {
            // it may have been done all the same; if that can't be read, the API server doesn't answer at all
            Err(error) if error.is_open() => {
                if !persist(async || self.is_going(&namespace, owner).await).await? {
                    return Err(Failure::DeleteOwner { owner: owner.clone(), source: error });
                }
            }
            result => result.map_err(|source| Failure::DeleteOwner { owner: owner.clone(), source })?,
        }
        ending.succeeded();
        Ok(deleted(Vec::new()))
    }

    /// Writes the events of a deletion before the deletion, after those that the journal of the object owes: the object takes its
    /// journal with it. `allowed` has the object if a dry run of the deletion succeeded. None: no event is written.
    ///
    /// The events take a while, so that the case is judged again. After a dry run that failed, no extensions are listed: the list
    /// would come between the reading of an owner and the write.
    async fn tell_first(
        &self,
        work: &mut Work<'_>,
        act: &Act,
        allowed: Option<(&PausedObject, &ObjectMeta)>,
        events: Vec<EventRecord>,
    ) -> Result<Act, Failure> {
        if let Some((known, metadata)) = allowed {
            let owed = self.handles.cluster.outbox.owed_on(known, metadata, self.handles.now());
            self.handles.events.tell_first(owed, events).await;
            work.granted = self.granted(work).await?;
        }
        Ok(self.judge_again(work, act))
    }

    /// Notes the end of a run on an owner, or on a pod that has no such owner.
    async fn announce(&self, work: &Work<'_>, notice: &Notice) -> Result<Done, Failure> {
        let Some(found) = work.found() else { return Ok(unread()) };
        let (first, object) = (&work.batch.first, OwnerObject(&found.value));
        let noticed = |at| {
            JournalAct::Noticed(GivenNotice {
                queue: first.queue.clone(),
                end: notice.end,
                at,
                then: notice.then,
            })
        };
        let act = notice.told.map(noticed);
        let (patch, noted) = match notice.change {
            NoticeChange::Keep => (None, None),
            NoticeChange::Clear => (Some(pause::withdraw(object)), None),
            NoticeChange::Set(noted) => (Some(pause::announce(object, noted)), Some(noted)),
        };
        let result = if patch.is_some() {
            ActionResult::Announced { owner: notice.object.clone(), end: notice.end }
        } else {
            ActionResult::Nothing("it has been told")
        };
        if let Some(patch) = patch.filter(|_| !self.handles.dry_run) {
            self.handles.announcements.until_ready().await;
            let patch = pause::with_act(patch, &found.metadata, act.clone(), self.handles.now());
            // its event must be written if it was applied nevertheless
            let is_done = |found: &WholeObject| OwnerObject(&found.value).announcement() == noted;
            let written = self.handles.objects.write(&first.namespace, &notice.object, &patch, is_done).await;
            written.map_err(ApiError::from)?;
        }
        self.show_on_pods(work, notice);
        let object = reference(&notice.object, found.metadata.namespace.as_deref());
        let known = PausedObject { object, workload: None };
        let mut events: Vec<EventRecord> = act.iter().flat_map(|act| events_of(act, &known)).collect();
        if self.handles.dry_run {
            // a dry run notes nothing: after a restart the time of the point tells that the event has been written
            let now = self.handles.now().max(first.handed_out);
            told::of_dry_run(&mut events, work.state.notice.last(notice.end, now).or(Some(notice.end)));
        } else if let Some(at) = notice.told {
            self.handles.cluster.outbox.telling(&known, at);
        }
        Ok(Done { result, events, served: notice.coverage })
    }

    /// Has the pods of an owner show the end that the owner was told, where that is turned on.
    fn show_on_pods(&self, work: &Work<'_>, notice: &Notice) {
        let is_pod = notice.object.api_version == "v1" && notice.object.kind == "Pod";
        if !work.case.config.notice_on_pods || self.handles.dry_run || is_pod {
            return;
        }
        let (end, is_news) = match notice.change {
            NoticeChange::Keep if work.batch.task == Task::Withdraw => return,
            NoticeChange::Keep => (Some(notice.end), false),
            NoticeChange::Clear => (None, true),
            NoticeChange::Set(_) => (Some(notice.end), true),
        };
        let owner = (work.batch.first.namespace.as_str(), tenure_index::Uid::of(&notice.object.uid));
        self.handles.told.tell(owner, end, is_news, work.batch.pods());
    }

    /// Notes that the pods below an owner are being ended.
    fn ending_below(&self, task: Task, owner: &PausedObject) -> EndingPods {
        let Handles { usage, cluster, .. } = &*self.handles;
        usage.ending_below(task, owner.object.uid.as_deref(), cluster, self.handles.now())
    }
}

/// Returns the result of an act that writes nothing.
const fn idle(act: &Act) -> Done {
    let (result, served) = match act {
        Act::Leave(why, coverage) => (ActionResult::Nothing(why), *coverage),
        Act::PutOff(why, coverage) => (ActionResult::PutOff(why), *coverage),
        Act::TooEarly => (ActionResult::TooEarly, BatchCoverage::All),
        Act::Extended => (ActionResult::Extended, BatchCoverage::All),
        Act::Exempt => (ActionResult::Exempt, BatchCoverage::First),
        Act::PausedBefore => (ActionResult::PausedBefore, BatchCoverage::All),
        Act::Forbidden(_) | Act::Pause(..) | Act::DeletePod(_) | Act::DeleteOwner(_) | Act::Announce(_) => {
            return unread();
        }
    };
    Done { result, events: Vec::new(), served }
}

/// An object that a judgement asks for is there when it is judged.
const fn unread() -> Done {
    Done::nothing("it was not read", BatchCoverage::First)
}

/// Returns an object as a merge patch would change it.
fn applied(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}

#[cfg(test)]
mod tests;
