//! Deletes a pod that has nothing above it to pause, or an owner in place of a pause.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_policy::pause::{self, Alone, PausedObject};
use tenure_service::call::{ApiError, persist};
use tenure_types::projection::Pod;

use super::{ActionResult, Done, Failure, Pauser, of_pod, reference};
use crate::events::EventRecord;

impl Pauser {
    pub(super) async fn delete(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
        alone: &Alone,
    ) -> Result<Done, Failure> {
        let object = reference(&of_pod(pod), Some(&due.namespace));
        let (reason, message) = match task {
            Task::Evict => {
                (pause::EVICTED_DUE_TO_PODS_READY_TIMEOUT, pause::deleted_unready(&due.queue, alone))
            }
            Task::Expire | Task::Announce | Task::Withdraw => {
                (pause::MAX_DURATION_EXCEEDED, pause::DELETED_MESSAGE.to_owned())
            }
        };
        let event = |reason, note: String, at| EventRecord {
            object: object.clone(),
            reason,
            action: "Deleting",
            note,
            at,
            cause: Some((object.clone(), due.queue.clone())),
        };
        if self.dry_run {
            let events = vec![event(reason, pause::dry_run(&message), due.deadline)];
            return Ok(Done { result: ActionResult::Deleted, events, served: BatchCoverage::First });
        }
        self.limit.until_ready().await;
        if let Some(done) = self.held_back(task, due) {
            return Ok(done);
        }
        if self.is_extended(task, due, pod).await? {
            return Ok(Done::extended());
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let ending = self.usage.ending(task, [due.uid]);
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
        let now = self.clock.now();
        let mut events = vec![event(reason, message, now)];
        if task != Task::Evict {
            let ceiling = self.ceiling_of(pod);
            let note = pause::deleted_in_words(&due.queue, ceiling.as_ref(), alone);
            events.push(event(pause::RUN_ENDED, note, now));
        }
        Ok(Done { result: ActionResult::Deleted, events, served: BatchCoverage::First })
    }

    /// Deletes an owner in place of a pause.
    pub(super) async fn delete_owner(
        &self,
        (due, pod): (&DuePod, &Pod),
        owner: &OwnerReference,
        resource_version: Option<String>,
        known: &PausedObject,
    ) -> Result<Done, Failure> {
        let cause = Some((reference(&of_pod(pod), Some(&due.namespace)), due.queue.clone()));
        let event = |reason, note: String, at| EventRecord {
            object: known.object.clone(),
            reason,
            action: "Deleting",
            note,
            at,
            cause: cause.clone(),
        };
        let (result, served) = (ActionResult::OwnerDeleted(owner.clone()), BatchCoverage::All);
        let message = pause::owner_deleted(&owner.kind);
        if self.dry_run {
            let events = vec![event(pause::MAX_DURATION_EXCEEDED, pause::dry_run(&message), due.deadline)];
            return Ok(Done { result, events, served });
        }
        let failed = |source| Failure::DeleteOwner { owner: owner.clone(), source };
        let below = known.object.uid.as_deref();
        let ending = self.usage.ending_below(Task::Expire, below, &self.cluster);
        match self.objects.delete_owner(&due.namespace, owner, resource_version).await {
            // it may have been done all the same
            Err(error) if error.is_open() => {
                if !persist(async || self.is_going(due, owner).await).await.map_err(failed)? {
                    return Err(failed(error));
                }
            }
            result => result.map_err(failed)?,
        }
        ending.succeeded();
        let now = self.clock.now();
        let ceiling = self.ceiling_of(pod);
        let note = pause::owner_deleted_in_words(&due.queue, ceiling.as_ref(), &owner.kind, &owner.name);
        let events =
            vec![event(pause::MAX_DURATION_EXCEEDED, message, now), event(pause::RUN_ENDED, note, now)];
        Ok(Done { result, events, served })
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
