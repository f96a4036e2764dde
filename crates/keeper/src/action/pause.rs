//! Pauses an owner, once.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::DynamicObject;
use serde_json::Value;
use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_policy::{
    config::Config,
    owners::{OwnerTable, PauseRule},
    pause::{
        self, Alone, Announcement, AtEnd, OwnerObject, PauseCandidate, PausePlan, PausedObject,
        ResumeCondition, Reversals, TOLD_REVERSALS,
    },
    requeue::Backoff,
};
use tenure_service::call::{ApiError, persist};
use tenure_types::{
    paused::{ExceededCeiling, GivenNotice, OwedPause, PausedRecord, RequeueState},
    projection::Pod,
};

use super::{
    ActionResult, Conflicts, Done, Failure, Pauser, TRIES, describe, is_last, json, known, of_pod, reference,
};
use crate::{
    events::{DELETING, EventRecord},
    recent::{EVENT_REPAIR, OwedEvents, earlier},
    returns::told_of_return,
};
use tracing::{info, warn};

/// The result of a try.
enum Attempt {
    Done(Done),
    /// It was paused before.
    Paused,
    /// The owner's work has ended: only the pod is left of it.
    Finished,
    /// Each of its pauses was undone, and it isn't paused another time. The event says so.
    Undone(Box<EventRecord>),
}

/// The part of a pause's record about the run that it ends, and about pauses before it.
struct Ended {
    ceiling: Option<ExceededCeiling>,
    reversals: Reversals,
    /// The pauses whose events may not have been written.
    earlier: Vec<OwedPause>,
    unannounced: bool,
    /// A notice whose event may not have been written.
    noticed: Option<GivenNotice>,
}

impl Pauser {
    /// Pauses the last of these owners. After all tries it deletes the pod. If the owners above have stopped, and the pod still
    /// runs, it first pauses the next owner below.
    pub(super) async fn pause(
        &self,
        task: Task,
        due: &DuePod,
        mut owners: Vec<OwnerReference>,
        pod: &Pod,
        config: &Arc<Config>,
    ) -> Result<Done, Failure> {
        let table = &config.table;
        let Some(mut owner) = owners.pop() else { return self.delete(task, due, pod, &Alone::NoOwner).await };
        if is_last(task, due) {
            match self.below_stopped(due, &owner, owners, table).await {
                Some(below) if due.attempts == TRIES => {
                    if self.has_an_exempt_pod(due, &below, config).await? {
                        return self.delete(task, due, pod, &Alone::Spared(describe(&below))).await;
                    }
                    owner = below;
                }
                _ => return self.delete_outliving(task, due, pod, Alone::Outlives(describe(&owner))).await,
            }
        }
        let mut conflicts = Conflicts::default();
        loop {
            match self.try_to_pause((task, pod), due, &owner, table).await {
                // the status of a Job changes as its pods get ready: it is judged again by what the watches show then
                Err(Failure::Pause { source: ApiError::Stale(_), .. }) if task == Task::Evict => {
                    return Ok(Done::nothing("its owner has just changed", BatchCoverage::All));
                }
                Err(
                    Failure::Pause { source: ApiError::Stale(_), .. }
                    | Failure::DeleteOwner { source: ApiError::Stale(_), .. },
                ) if conflicts.may_retry() => conflicts.wait().await,
                Err(
                    Failure::Pause { source: ApiError::NotFound, .. }
                    | Failure::DeleteOwner { source: ApiError::NotFound, .. },
                ) => {
                    return Ok(Done::nothing("its owner is gone", BatchCoverage::All));
                }
                Ok(Attempt::Finished) => {
                    return self.delete(task, due, pod, &Alone::Finished(describe(&owner))).await;
                }
                Ok(Attempt::Undone(event)) => return self.delete_undone(due, pod, &owner, *event).await,
                Ok(Attempt::Paused) => {
                    return Ok(Done::without_events(ActionResult::PausedBefore, BatchCoverage::All));
                }
                Ok(Attempt::Done(done)) => return Ok(done),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The next one below that runs, if all above it have stopped.
    async fn below_stopped(
        &self,
        due: &DuePod,
        owner: &OwnerReference,
        mut below: Vec<OwnerReference>,
        table: &OwnerTable,
    ) -> Option<OwnerReference> {
        if !self.has_stopped(due, owner, table).await {
            return None;
        }
        while let Some(next) = below.pop() {
            if !self.has_stopped(due, &next, table).await {
                return Some(next);
            }
        }
        None
    }

    /// True if an owner is paused, being deleted or gone.
    async fn has_stopped(&self, due: &DuePod, owner: &OwnerReference, table: &OwnerTable) -> bool {
        match self.objects.get(&due.namespace, owner).await {
            Ok(found) if found.metadata.uid.as_deref() != Some(&owner.uid) => true,
            Ok(found) => {
                found.metadata.deletion_timestamp.is_some() || {
                    let object = json(&found);
                    table.rules(owner).any(|rule| OwnerObject(&object).is_paused(rule))
                }
            }
            Err(error) => matches!(error, ApiError::NotFound),
        }
    }

    async fn delete_outliving(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
        alone: Alone,
    ) -> Result<Done, Failure> {
        let (namespace, name) = (&due.namespace, &due.name);
        warn!(%namespace, pod = %name, ?alone, "Runs on after all tries to pause its owner: deleting it");
        self.delete(task, due, pod, &alone).await
    }

    async fn delete_undone(
        &self,
        due: &DuePod,
        pod: &Pod,
        owner: &OwnerReference,
        event: EventRecord,
    ) -> Result<Done, Failure> {
        let (namespace, name, owner) = (&due.namespace, &due.name, describe(owner));
        info!(%namespace, pod = %name, owner, "Each pause of its owner was undone: deleting the pod");
        self.delete_and_tell(Task::Expire, due, pod, &Alone::Undone(owner), vec![event]).await
    }

    async fn try_to_pause(
        &self,
        why: (Task, &Pod),
        due: &DuePod,
        owner: &OwnerReference,
        table: &OwnerTable,
    ) -> Result<Attempt, Failure> {
        let failed = |source| Failure::Pause { owner: owner.clone(), source };
        let object = self.objects.get(&due.namespace, owner).await.map_err(failed)?;
        if object.metadata.uid.as_deref() != Some(&owner.uid) || object.metadata.deletion_timestamp.is_some()
        {
            return Ok(Attempt::Done(Done::nothing("its owner is going or gone", BatchCoverage::All)));
        }
        let (known, version) = (known(owner, &object.metadata), object.metadata.resource_version.clone());
        let earlier = earlier(&object.metadata, self.clock.now());
        let object = json(&object);
        if table.rules(owner).any(|rule| OwnerObject(&object).is_paused(rule)) {
            return Ok(Attempt::Paused);
        }
        if OwnerObject(&object).is_finished() {
            return Ok(Attempt::Finished);
        }
        // since the pod was read, a user may have paused and resumed its owner: only a pod that is there after its owner
        // was read belongs to the run that this version of the owner has
        if self.still_there(due).await?.is_none() {
            return Ok(Attempt::Done(Done::nothing("the pod is gone or exempt", BatchCoverage::Gone)));
        }
        // a sibling may have been the reason for a pause since this pod was handed out
        if why.0 == Task::Evict && self.cluster.with(|index| index.outlives(due.uid)) {
            let why = "its owner was resumed, and the pod belongs to the run that was evicted";
            return Ok(Attempt::Done(Done::nothing(why, BatchCoverage::All)));
        }
        if why.0 == Task::Expire && table.deletes(owner) {
            self.await_turn().await;
            if let Some(done) = self.held_back(why.0, due) {
                return Ok(Attempt::Done(done));
            }
            if self.is_extended(why.0, due, why.1).await? {
                return Ok(Attempt::Done(Done::extended()));
            }
            let noticed = self.ended(why, due, OwnerObject(&object)).noticed;
            let deleted = self.delete_owner((due, why.1), owner, version, (&known, noticed));
            return deleted.await.map(Attempt::Done);
        }
        let ended = Ended { earlier, ..self.ended(why, due, OwnerObject(&object)) };
        let undone = OwnerObject(&object)
            .record()
            .filter(|_| why.0 == Task::Expire && self.deletes_pods(due, owner, table, &ended.reversals));
        if let Some(record) = undone {
            let event = not_paused_again((due, why.1), &record, &ended.reversals, &known);
            return Ok(Attempt::Undone(Box::new(event)));
        }
        self.await_turn().await;
        if self.is_extended(why.0, due, why.1).await? {
            return Ok(Attempt::Done(Done::extended()));
        }
        let Some(plan) = self.plan(why, due, owner, OwnerObject(&object)) else {
            let why = "its queue doesn't wait for pods to be ready any more";
            return Ok(Attempt::Done(Done::nothing(why, BatchCoverage::All)));
        };
        if let Some(done) = self.held_back(why.0, due) {
            return Ok(Attempt::Done(done));
        }
        let ending = self.usage.ending_below(why.0, known.object.uid.as_deref(), &self.cluster);
        for (number, rule) in table.rules(owner).enumerate() {
            // each write takes its turn
            if number > 0 {
                self.await_turn().await;
            }
            match self.apply(&plan, due, (owner, &ended), rule, &object).await {
                Err(ApiError::UnknownField(_)) => {}
                Err(source) => return Err(failed(source)),
                Ok((returned, record)) => {
                    if !pause::took(OwnerObject(&returned), rule, &record) {
                        return Err(Failure::Dropped { owner: owner.clone(), field: rule.field.clone() });
                    }
                    ending.succeeded();
                    let state = OwnerObject(&returned).requeue_state();
                    let mut events = told_of_pause(&record, &state, &known);
                    if !self.dry_run && !matches!(plan.until, ResumeCondition::Requeued(_)) {
                        events.extend(self.held_up(due, &object, &known, record.at).await);
                    }
                    self.cluster.outbox.telling(&known, record.at);
                    return Ok(Attempt::Done(self.paused((due, why.1), owner, &record, plan.until, events)));
                }
            }
        }
        let fields: Vec<&str> = table.rules(owner).map(|rule| rule.field.as_str()).collect();
        Err(Failure::NoField { owner: owner.clone(), fields: fields.join(", ") })
    }

    /// Waits until the rate limit allows a write. A dry run writes nothing.
    async fn await_turn(&self) {
        if !self.dry_run {
            self.limit.until_ready().await;
        }
    }

    /// Applies a rule, and returns the object as it is then, with the record that it should have.
    async fn apply(
        &self,
        PausePlan { reason, at, until }: &PausePlan,
        due: &DuePod,
        (owner, ended): (&OwnerReference, &Ended),
        rule: &PauseRule,
        object: &Value,
    ) -> Result<(Value, PausedRecord), ApiError> {
        let (object_now, queue) = (OwnerObject(object), (due.family, due.queue.as_str()));
        let record = pause::record(object_now, rule, reason, queue, *at, ended.reversals.clone());
        let Ended { ceiling, unannounced, noticed, .. } = ended;
        let (ceiling, unannounced, noticed) = (ceiling.clone(), *unannounced, *noticed);
        let record = PausedRecord { ceiling, unannounced, noticed, ..record };
        let patch = pause::patch(OwnerObject(object), rule, &record, until);
        let patch = pause::with_owed(patch, OwnerObject(object), &ended.earlier);
        if self.dry_run {
            return Ok((applied(object, &patch), record));
        }
        let returned: DynamicObject = match self.objects.merge(&due.namespace, owner, &patch).await {
            // it may have been applied nevertheless
            Err(error) if error.is_open() => {
                let found = persist(async || self.objects.get(&due.namespace, owner).await).await?;
                if OwnerObject(&json(&found)).record().as_ref() != Some(&record) {
                    return Err(error);
                }
                found
            }
            returned => returned?,
        };
        Ok((json(&returned), record))
    }

    /// Returns the part of the record about the run that a pause ends.
    fn ended(&self, (task, pod): (Task, &Pod), due: &DuePod, object: OwnerObject<'_>) -> Ended {
        let standing = self.cluster.with(|index| index.standing(pod));
        let since = standing.and_then(|standing| standing.clocks.since(due.family));
        if task == Task::Expire {
            let reversals = Reversals::of(object, pause::MAX_DURATION_EXCEEDED, since);
            let unannounced = self.is_unannounced(due, object, since);
            let noticed = self.noticed(due, object.announcement(), since);
            Ended { ceiling: self.ceiling_of(pod), reversals, earlier: Vec::new(), unannounced, noticed }
        } else {
            let reversals = Reversals::of(object, pause::PODS_READY_TIMEOUT, since);
            Ended { ceiling: None, reversals, earlier: Vec::new(), unannounced: false, noticed: None }
        }
    }

    /// True if an owner was to get a notice of the end of a run that began at `since`, and got none. A pause that was undone
    /// has taken the notice away.
    fn is_unannounced(&self, due: &DuePod, object: OwnerObject<'_>, since: Option<Timestamp>) -> bool {
        let is_told = object.announced().is_some_and(|at| since.is_none_or(|since| at > since));
        let has_notice = self.cluster.with(|index| !index.notice(due.family, &due.queue).is_empty());
        has_notice && !is_told && object.record().is_none()
    }

    /// Returns the last notice of a run that began at `since`, if another keeper has given it a short while ago: it may have
    /// ended before it wrote the event.
    pub(super) fn noticed(
        &self,
        due: &DuePod,
        announced: Option<Announcement>,
        since: Option<Timestamp>,
    ) -> Option<GivenNotice> {
        let Announcement { end, given } = announced.filter(|Announcement { end, .. }| {
            due.told != Some(*end) && since.is_none_or(|since| *end > since)
        })?;
        let points = self.cluster.with(|index| index.notice(due.family, &due.queue));
        // a keeper that gave one notice a run didn't note when
        let first = end.checked_sub(points.iter().next()?).ok()?;
        let (at, now) = (given.unwrap_or(first), self.clock.now());
        (end <= now && now.duration_since(at) < EVENT_REPAIR).then_some(GivenNotice { end, at })
    }

    /// The ceiling of a pod.
    pub(super) fn ceiling_of(&self, pod: &Pod) -> Option<ExceededCeiling> {
        self.cluster.with(|index| {
            let standing = index.standing(pod)?;
            index.ceiling(&standing)
        })
    }

    /// True if the pods of an owner are deleted in place of another pause. What its kind's rows say comes first.
    fn deletes_pods(
        &self,
        DuePod { family, queue, .. }: &DuePod,
        owner: &OwnerReference,
        table: &OwnerTable,
        reversals: &Reversals,
    ) -> bool {
        let (of_queue, slice_delay) =
            self.cluster.with(|index| (index.on_reversal(*family, queue), index.slice_delay(*family, queue)));
        reversals.delete_pods(table.on_reversal(owner).unwrap_or(of_queue), slice_delay)
    }

    /// The event on a `CronJob` that starts no further Job while this one is paused; none if it isn't one of such a `CronJob`, or
    /// if that can't be read.
    async fn held_up(
        &self,
        due: &DuePod,
        job: &Value,
        known: &PausedObject,
        at: Timestamp,
    ) -> Option<EventRecord> {
        let metadata: ObjectMeta = serde_json::from_value(job.get("metadata")?.clone()).ok()?;
        let cron_job = pause::cron_job_of(&known.object, &metadata)?;
        let found = self.objects.get(&due.namespace, &cron_job).await.ok()?;
        let is_same = found.metadata.uid.as_deref() == Some(&cron_job.uid);
        (is_same && pause::forbids_others(OwnerObject(&json(&found)))).then(|| EventRecord {
            object: reference(&cron_job, Some(&due.namespace)),
            reason: pause::CRON_JOB_HELD_UP,
            action: "Pausing",
            note: pause::held_up(&known.object),
            at,
            cause: None,
            end: None,
        })
    }

    /// Returns the plan of a pause; none if the owner isn't to be paused after all.
    fn plan(
        &self,
        (task, pod): (Task, &Pod),
        DuePod { family, queue, .. }: &DuePod,
        owner: &OwnerReference,
        object: OwnerObject<'_>,
    ) -> Option<PausePlan> {
        let (now, state, priority) = (self.clock.now(), object.requeue_state(), pod.spec.priority);
        let candidate = PauseCandidate { now, state, priority };
        if task == Task::Evict {
            let backoff = self.cluster.with(|index| index.pods_ready(*family, queue))?.backoff;
            let random = |count| Backoff::random(&owner.uid, count);
            return Some(PausePlan::unready(&candidate, &backoff, random));
        }
        let delay = self.cluster.with(|index| index.slice_delay(*family, queue));
        Some(PausePlan::expired(&candidate, delay))
    }

    fn paused(
        &self,
        (due, pod): (&DuePod, &Pod),
        owner: &OwnerReference,
        record: &PausedRecord,
        until: ResumeCondition,
        mut events: Vec<EventRecord>,
    ) -> Done {
        let pod = reference(&of_pod(pod), Some(&due.namespace));
        for event in &mut events {
            event.cause = Some((pod.clone(), due.queue.clone()));
        }
        if self.dry_run {
            events.truncate(1);
            for event in &mut events {
                (event.note, event.at) = (pause::dry_run(&event.note), due.deadline);
            }
        }
        let result = ActionResult::Paused { owner: owner.clone(), reversals: record.reversals, until };
        Done { result, events, served: BatchCoverage::All }
    }

    /// Returns the events of recent pauses and returns that may not have been written.
    pub fn owed(&self) -> Vec<EventRecord> {
        if self.dry_run {
            return Vec::new();
        }
        let of = |owed: &OwedEvents| match owed {
            OwedEvents::OfPause(recent) => {
                told_of_pause(&recent.pause.record, &recent.pause.state, &recent.known)
            }
            OwedEvents::OfReturn(recent, returned) => {
                vec![told_of_return(&recent.pause.record, &recent.pause.state, &recent.known, *returned)]
            }
        };
        self.cluster.outbox.owed(self.clock.now()).iter().flat_map(of).collect()
    }
}

/// Returns the events of a pause, from its record.
pub fn told_of_pause(record: &PausedRecord, state: &RequeueState, known: &PausedObject) -> Vec<EventRecord> {
    let event = |reason, note| EventRecord {
        object: known.object.clone(),
        reason,
        action: "Pausing",
        note,
        at: record.at,
        cause: None,
        end: None,
    };
    let paused =
        pause::event_reason(record).map(|reason| event(reason, pause::message(record, state, known)));
    let reversed = (record.reversals == TOLD_REVERSALS)
        .then(|| event(pause::PAUSE_REVERSED, pause::reversed(record, known)));
    let in_words = pause::in_words(record, state, known).map(|note| event(pause::RUN_ENDED, note));
    let noticed = record.noticed.map(|GivenNotice { end, at }| EventRecord {
        reason: pause::MAX_DURATION_APPROACHING,
        action: "Announcing",
        at,
        end: Some(end),
        ..event("", pause::approaching(end, &record.queue, &known.object, AtEnd::of(record, state)))
    });
    paused.into_iter().chain(reversed).chain(in_words).chain(noticed).collect()
}

/// The event on an owner that isn't paused another time.
fn not_paused_again(
    (due, pod): (&DuePod, &Pod),
    record: &PausedRecord,
    reversals: &Reversals,
    known: &PausedObject,
) -> EventRecord {
    EventRecord {
        object: known.object.clone(),
        reason: pause::PAUSE_REVERSED,
        action: DELETING,
        note: pause::undone(record, reversals, known),
        at: due.deadline,
        cause: Some((reference(&of_pod(pod), Some(&due.namespace)), due.queue.clone())),
        end: None,
    }
}

/// Returns an object as a merge patch would change it.
fn applied(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}
