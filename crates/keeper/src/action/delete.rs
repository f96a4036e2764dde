//! Deletes a pod that has nothing above it to pause, or an owner in place of a pause.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_policy::{
    naming::{of_pod, reference},
    pause::{self, Alone, AtEnd, OwnerObject, PausedObject},
};
use tenure_service::call::{ApiError, persist};
use tenure_types::{paused::GivenNotice, projection::Pod};

use super::{ActionResult, Done, Failure, Pauser, cause};
use crate::{
    events::{DELETING, EventRecord},
    ledger::EndingPods,
};

impl Pauser {
    pub(super) async fn delete(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
        alone: &Alone,
    ) -> Result<Done, Failure> {
        self.delete_and_tell(task, due, pod, alone, Vec::new()).await
    }

    /// Deletes a pod, and tells it with these other events.
    pub(super) async fn delete_and_tell(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
        alone: &Alone,
        also: Vec<EventRecord>,
    ) -> Result<Done, Failure> {
        let deleted = |events| Done { result: ActionResult::Deleted, events, served: BatchCoverage::First };
        let mut events = self.told_of_deletion(task, due, pod, alone);
        if self.dry_run {
            events.truncate(1);
            for event in &mut events {
                event.note = pause::dry_run(&event.note);
            }
            return Ok(deleted(events));
        }
        events.extend(also);
        self.limit.until_ready().await;
        if let Some(done) = self.goes_on(task, due, pod).await? {
            return Ok(done);
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        // nothing is left afterwards that says what is owed
        let would_delete = self.objects.would_delete_pod(&due.namespace, &due.name).await;
        let goes_on = self.goes_on_after(would_delete, &mut events, (task, due, pod)).await?;
        if let Some(done) = goes_on {
            return Ok(done);
        }
        let ending = self.usage.ending(task, [due.uid], self.clock.now());
        match self.objects.delete_pod(&due.namespace, &due.name, uid).await {
            Err(ApiError::NotFound | ApiError::Stale(_)) => {
                return Ok(Done::nothing("the pod is gone or another one", BatchCoverage::Gone));
            }
            // it may have been done all the same
            Err(error) if error.is_open() => {
                let rest = persist(async || self.still_there(due).await).await.map_err(Failure::Delete)?;
                if rest.is_some() {
                    return Err(Failure::Delete(error));
                }
            }
            result => result.map_err(Failure::Delete)?,
        }
        ending.succeeded();
        Ok(deleted(events))
    }

    /// Returns the result in place of the end of a run that goes on, or must wait.
    async fn goes_on(&self, task: Task, due: &DuePod, pod: &Pod) -> Result<Option<Done>, ApiError> {
        if let Some(done) = self.called_off(task, due, pod) {
            return Ok(Some(done));
        }
        if self.is_extended(task, due, pod).await? {
            return Ok(Some(Done::extended()));
        }
        // a list may have taken a while
        Ok(self.called_off(task, due, pod))
    }

    /// Writes the events of a deletion that a dry run has allowed, and returns the result in place of the end of a run that goes
    /// on: both may have taken a while, above all a dry run that failed.
    async fn goes_on_after(
        &self,
        would_delete: Result<(), ApiError>,
        events: &mut Vec<EventRecord>,
        (task, due, pod): (Task, &DuePod, &Pod),
    ) -> Result<Option<Done>, ApiError> {
        if would_delete.is_err() {
            // another writer may keep changing the owner: no list comes between its reading and the write
            return Ok(self.called_off(task, due, pod));
        }
        self.events.tell_first(std::mem::take(events)).await;
        self.goes_on(task, due, pod).await
    }

    /// Returns the events of the deletion of a pod. They have the time of the deadline, which is the same for each keeper
    /// that tries.
    fn told_of_deletion(&self, task: Task, due: &DuePod, pod: &Pod, alone: &Alone) -> Vec<EventRecord> {
        let object = reference(&of_pod(pod), Some(&due.namespace));
        let event = |reason, note| EventRecord {
            object: object.clone(),
            reason,
            action: DELETING,
            note,
            at: due.deadline,
            cause: Some(cause(due, pod)),
            request: None,
            end: None,
        };
        if task == Task::Evict {
            let note = pause::deleted_unready(&due.queue, alone);
            return vec![event(pause::EVICTED_DUE_TO_PODS_READY_TIMEOUT, note)];
        }
        let ceiling = self.ceiling_of(pod);
        let in_words = pause::deleted_in_words(&due.queue, ceiling.as_ref(), alone);
        // the notice of a pod with an owner is on that
        let whole = json!({"metadata": pod.metadata});
        let announced = OwnerObject(&whole).announcement().filter(|_| *alone == Alone::NoOwner);
        let noticed = self.noticed(due, announced, pod.scheduled_at().map(|time| time.0));
        let noticed = noticed.map(|GivenNotice { end, at }| EventRecord {
            reason: pause::MAX_DURATION_APPROACHING,
            action: "Announcing",
            at,
            cause: None,
            request: None,
            end: Some(end),
            ..event("", pause::approaching(end, &due.queue, &object, AtEnd::Deleted))
        });
        let ended = event(pause::MAX_DURATION_EXCEEDED, pause::DELETED_MESSAGE.to_owned());
        [ended, event(pause::RUN_ENDED, in_words)].into_iter().chain(noticed).collect()
    }

    /// Deletes an owner in place of a pause.
    pub(super) async fn delete_owner(
        &self,
        (due, pod): (&DuePod, &Pod),
        owner: &OwnerReference,
        resource_version: Option<String>,
        (known, noticed): (&PausedObject, Option<GivenNotice>),
    ) -> Result<Done, Failure> {
        let cause = Some(cause(due, pod));
        let event = |reason, note: String| EventRecord {
            object: known.object.clone(),
            reason,
            action: DELETING,
            note,
            at: due.deadline,
            cause: cause.clone(),
            request: None,
            end: None,
        };
        let (result, served) = (ActionResult::OwnerDeleted(owner.clone()), BatchCoverage::All);
        let message = pause::owner_deleted(&owner.kind);
        if self.dry_run {
            let events = vec![event(pause::MAX_DURATION_EXCEEDED, pause::dry_run(&message))];
            return Ok(Done { result, events, served });
        }
        let failed = |source| Failure::DeleteOwner { owner: owner.clone(), source };
        let ceiling = self.ceiling_of(pod);
        let note = pause::owner_deleted_in_words(&due.queue, ceiling.as_ref(), &owner.kind, &owner.name);
        let mut events = vec![event(pause::MAX_DURATION_EXCEEDED, message), event(pause::RUN_ENDED, note)];
        events.extend(noticed.map(|GivenNotice { end, at }| EventRecord {
            reason: pause::MAX_DURATION_APPROACHING,
            action: "Announcing",
            at,
            cause: None,
            request: None,
            end: Some(end),
            ..event("", pause::approaching(end, &due.queue, &known.object, AtEnd::OwnerDeleted))
        }));
        let would_delete = self.objects.would_delete_owner(&due.namespace, owner).await;
        let goes_on = self.goes_on_after(would_delete, &mut events, (Task::Expire, due, pod)).await?;
        if let Some(done) = goes_on {
            return Ok(done);
        }
        let ending = self.ending_below(Task::Expire, known);
        match self.objects.delete_owner(&due.namespace, owner, resource_version).await {
            // it may have been done all the same
            Err(error) if error.is_open() => {
                // if that can't be read, the API server doesn't answer at all
                if !persist(async || self.is_going(due, owner).await).await? {
                    return Err(failed(error));
                }
            }
            result => result.map_err(failed)?,
        }
        ending.succeeded();
        Ok(Done { result, events, served })
    }

    /// Notes that the pods below an owner are being ended.
    pub(super) fn ending_below(&self, task: Task, owner: &PausedObject) -> EndingPods {
        let uid = owner.object.uid.as_deref();
        self.usage.ending_below(task, uid, &self.cluster, self.clock.now())
    }

    /// True if an owner is being deleted or gone.
    async fn is_going(&self, due: &DuePod, owner: &OwnerReference) -> Result<bool, ApiError> {
        match self.objects.get(&due.namespace, owner).await {
            Ok(found) => Ok(found.metadata.uid.as_deref() != Some(&owner.uid)
                || found.metadata.deletion_timestamp.is_some()),
            Err(ApiError::NotFound) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
