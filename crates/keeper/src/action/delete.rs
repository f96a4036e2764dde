//! Deletes a pod that has nothing above it to pause.

use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_policy::pause::{self, Alone};
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
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
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
        let now = self.clock.now();
        let mut events = vec![event(reason, message, now)];
        if task != Task::Evict {
            let ceiling = self.ceiling_of(pod);
            let note = pause::deleted_in_words(&due.queue, ceiling.as_ref(), alone);
            events.push(event(pause::RUN_ENDED, note, now));
        }
        Ok(Done { result: ActionResult::Deleted, events, served: BatchCoverage::First })
    }
}
