//! Pauses an owner, once.

mod ended;
mod outlived;
mod spared;
mod told;
mod turn;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_policy::{
    config::Config,
    kueue::known,
    naming::describe,
    owners::{OwnerTable, PauseRule},
    pause::{self, Alone, OwnerObject, PauseCandidate, PausePlan, PausedObject, ResumeCondition},
    requeue::Backoff,
};
use tenure_service::call::{ApiError, persist};
use tenure_types::{
    paused::PausedRecord,
    projection::{Pod, WholeObject},
};

use super::{ActionResult, Conflicts, Done, Failure, Pauser, TRIES, cause, is_last, json};
use crate::{events::EventRecord, recent::earlier};

use ended::Ended;
use told::not_paused_again;
pub use told::told_of_pause;

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

/// The parts of a pause that is about to be written.
struct Pausing {
    plan: PausePlan,
    ended: Ended,
    /// The owner, as it was read.
    object: Value,
    known: PausedObject,
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
            match self.try_to_pause((task, pod), due, &owner, table, conflicts.is_retry()).await {
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

    async fn try_to_pause(
        &self,
        why: (Task, &Pod),
        due: &DuePod,
        owner: &OwnerReference,
        table: &OwnerTable,
        is_retry: bool,
    ) -> Result<Attempt, Failure> {
        // another writer keeps changing the owner: as little as possible comes between its reading and the write
        if is_retry && let Some(attempt) = self.take_turn(why, due).await? {
            return Ok(attempt);
        }
        let failed = |source| Failure::Pause { owner: owner.clone(), source };
        let found = self.objects.get(&due.namespace, owner).await.map_err(failed)?;
        let (known, version) = (known(owner, &found.metadata), found.metadata.resource_version.clone());
        let earlier = earlier(&found.metadata, self.clock.now());
        let object = json(&found);
        if let Some(attempt) = self.spared(why, due, (owner, &found.metadata, &object), table).await? {
            return Ok(attempt);
        }
        if why.0 == Task::Expire && table.deletes(owner) {
            return self.delete_in_place(why, due, owner, (&object, version, &known), is_retry).await;
        }
        let ended = Ended { earlier, ..self.ended(why, due, OwnerObject(&object)) };
        let undone = OwnerObject(&object)
            .record()
            .filter(|_| why.0 == Task::Expire && self.deletes_pods(due, owner, table, &ended.reversals));
        if let Some(record) = undone {
            let event = not_paused_again((due, why.1), &record, &ended.reversals, &known);
            return Ok(Attempt::Undone(Box::new(event)));
        }
        if !is_retry && let Some(attempt) = self.take_turn(why, due).await? {
            return Ok(attempt);
        }
        let Some(plan) = self.plan(why, due, owner, OwnerObject(&object)) else {
            let why = "its queue doesn't wait for pods to be ready any more";
            return Ok(Attempt::Done(Done::nothing(why, BatchCoverage::All)));
        };
        if let Some(done) = self.called_off(why.0, due, why.1) {
            return Ok(Attempt::Done(done));
        }
        let ending = self.ending_below(why.0, &known);
        let (pausing, attempt) = (Pausing { plan, ended, object, known }, (why, due));
        let paused = self.pause_by_rules(attempt, owner, table, &pausing).await?;
        ending.succeeded();
        Ok(Attempt::Done(paused))
    }

    /// Deletes an owner in place of a pause, as its row says.
    async fn delete_in_place(
        &self,
        why: (Task, &Pod),
        due: &DuePod,
        owner: &OwnerReference,
        (object, version, known): (&Value, Option<String>, &PausedObject),
        is_retry: bool,
    ) -> Result<Attempt, Failure> {
        if !is_retry && let Some(attempt) = self.take_turn(why, due).await? {
            return Ok(attempt);
        }
        if let Some(done) = self.called_off(why.0, due, why.1) {
            return Ok(Attempt::Done(done));
        }
        let noticed = self.ended(why, due, OwnerObject(object)).noticed;
        self.delete_owner((due, why.1), owner, version, (known, noticed)).await.map(Attempt::Done)
    }

    /// Sets the field of the first rule that the served schema knows.
    async fn pause_by_rules(
        &self,
        (why, due): ((Task, &Pod), &DuePod),
        owner: &OwnerReference,
        table: &OwnerTable,
        Pausing { plan, ended, object, known }: &Pausing,
    ) -> Result<Done, Failure> {
        for (number, rule) in table.rules(owner).enumerate() {
            // each write takes its turn
            if number > 0 {
                self.await_turn().await;
                if let Some(done) = self.called_off(why.0, due, why.1) {
                    return Ok(done);
                }
            }
            match self.apply(plan, due, (owner, ended), rule, object).await {
                Err(Failure::Pause { source: ApiError::UnknownField(_), .. }) => {}
                Err(failure) => return Err(failure),
                Ok((returned, record)) => {
                    if !pause::took(OwnerObject(&returned), rule, &record) {
                        return Err(Failure::Dropped { owner: owner.clone(), field: rule.field.clone() });
                    }
                    let state = OwnerObject(&returned).requeue_state();
                    let mut events = told_of_pause(&record, &state, known);
                    if !self.dry_run && !matches!(plan.until, ResumeCondition::Requeued(_)) {
                        events.extend(self.held_up(due, object, known, record.at).await);
                    }
                    self.cluster.outbox.telling(known, record.at);
                    return Ok(self.paused((due, why.1), owner, &record, plan.until, events));
                }
            }
        }
        let fields: Vec<&str> = table.rules(owner).map(|rule| rule.field.as_str()).collect();
        Err(Failure::NoField { owner: owner.clone(), fields: fields.join(", ") })
    }

    /// Applies a rule, and returns the object as it is then, with the record that it should have.
    async fn apply(
        &self,
        PausePlan { reason, at, until }: &PausePlan,
        due: &DuePod,
        (owner, ended): (&OwnerReference, &Ended),
        rule: &PauseRule,
        object: &Value,
    ) -> Result<(Value, PausedRecord), Failure> {
        let failed = |source| Failure::Pause { owner: owner.clone(), source };
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
        let returned: WholeObject = match self.objects.merge(&due.namespace, owner, &patch).await {
            // it may have been applied nevertheless
            Err(error) if error.is_open() => {
                let found = match persist(async || self.objects.get(&due.namespace, owner).await).await {
                    // the API server doesn't answer at all
                    Err(none) if none.is_open() => return Err(Failure::Api(none)),
                    found => found.map_err(failed)?,
                };
                if OwnerObject(&json(&found)).record().as_ref() != Some(&record) {
                    return Err(failed(error));
                }
                found
            }
            returned => returned.map_err(failed)?,
        };
        Ok((json(&returned), record))
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
        let cause = cause(due, pod);
        for event in &mut events {
            event.cause = Some(cause.clone());
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
}

/// Returns an object as a merge patch would change it.
fn applied(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}
