//! Deletes pods and owners, and writes the events about it first.
//!
//! The `Pauser` deletes pods that no pause can end, and owners whose rule says so. The journal of
//! an object goes with the object, so its events can't be repaired after the deletion.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DeleteParams;
use tenure_policy::{
    judge::{OwnerDeletion, PodDeletion},
    kueue,
    naming::{PausedObject, of_pod, reference},
    pause::{self, PodDeletionCause},
    reason::EventReason,
};
use tenure_service::call::{ApiError, persist};
use tracing::warn;

use super::{
    Act, ActResult, ActionFailure, BatchCoverage, CaseWork, EventRecord, Handles, Pauser, Task, act_events,
    nothing, unread,
};

impl Pauser {
    /// Deletes a pod, after its events were written. A grace period beyond the longest is
    /// shortened. A dry run only returns the first event. Fails with [`ActionFailure::Delete`] if the API
    /// server refuses, or doesn't answer and still has the pod.
    pub(super) async fn delete_pod(
        &self,
        work: &mut CaseWork<'_>,
        deletion: &PodDeletion,
    ) -> Result<ActResult, ActionFailure> {
        let act = Act::DeletePod(Box::new(deletion.clone()));
        let Some(found) = work.pod().cloned() else { return Ok(unread()) };
        let mut events = act_events::of_pod_deletion(work.batch, &found, deletion);
        if self.handles.dry_run {
            act_events::of_dry_run(&mut events, None);
            return Ok(ActResult::new(act, events));
        }
        if let Some((owner, record, reversals)) = &deletion.undone {
            let metadata = work.found().map(|found| found.metadata.clone()).unwrap_or_default();
            let known = kueue::known(owner, &metadata);
            let notes = [(EventReason::PauseReversed, pause::undone(record, reversals, &known))];
            events.extend(act_events::of_deletion(work.batch, &known.object, &work.cause(), notes));
        }
        let (pod, metadata) = (of_pod(&found), found.metadata.clone());
        let first = &work.batch.first;
        if let alone @ (PodDeletionCause::Outlives(_) | PodDeletionCause::Undone(_)) = &deletion.alone {
            let (namespace, pod) = (&first.namespace, &pod.name);
            warn!(%namespace, pod, ?alone, "Its owner can't be stopped: deleting the pod");
        }
        let known = PausedObject { object: reference(&pod, Some(&first.namespace)), workload: None };
        let recorded =
            self.record_first(work, act, &pod, (&known, &metadata), events, ActionFailure::Delete).await;
        let (act, unrecorded) = recorded?;
        if !act.is_done() {
            return Ok(ActResult::silent(act));
        }
        let ending = self.handles.usage.ending(work.batch.task, [first.uid], self.handles.now());
        let grace_period_seconds = self.handles.shortened_grace(&found);
        let how = DeleteParams { grace_period_seconds, ..DeleteParams::default() };
        match self.handles.objects.delete(&first.namespace, &pod, None, how).await {
            Err(ApiError::NotFound | ApiError::Stale(_)) => {
                return Ok(nothing("the pod is gone or another one", BatchCoverage::Gone));
            }
            // the deletion may have been done without an answer
            Err(error) if error.is_open() => {
                let rest = persist(async || self.pod(first).await).await.map_err(ActionFailure::Delete)?;
                if rest.is_some() {
                    return Err(ActionFailure::Delete(error));
                }
            }
            result => result.map_err(ActionFailure::Delete)?,
        }
        ending.succeeded();
        Ok(ActResult::new(act, self.with_owed(unrecorded, &known, &metadata)))
    }

    /// Returns the events that weren't written before a deletion, after those that the journal of
    /// the deleted object owes. Empty: all were written before.
    fn with_owed(
        &self,
        unrecorded: Vec<EventRecord>,
        known: &PausedObject,
        metadata: &ObjectMeta,
    ) -> Vec<EventRecord> {
        if unrecorded.is_empty() {
            return unrecorded;
        }
        let owed = self.handles.cluster.outbox.owed_on(known, metadata, self.handles.now());
        owed.into_iter().chain(unrecorded).collect()
    }

    /// Deletes an owner in place of a pause, after its events were written. Deletes only the
    /// version that was read, and its pods follow in the background. A dry run only returns the
    /// first event.
    pub(super) async fn delete_owner(
        &self,
        work: &mut CaseWork<'_>,
        deletion: &OwnerDeletion,
    ) -> Result<ActResult, ActionFailure> {
        let (owner, act) = (&deletion.owner, Act::DeleteOwner(Box::new(deletion.clone())));
        let Some(metadata) = work.found().map(|found| found.metadata.clone()) else { return Ok(unread()) };
        let known = kueue::known(owner, &metadata);
        let (queue, ceiling) = (&work.batch.first.queue, deletion.ceiling.as_ref());
        let in_words = pause::owner_deleted_in_words(queue, ceiling, &owner.kind, &owner.name);
        let ended = (EventReason::MaxDurationExceeded, pause::owner_deleted(&owner.kind));
        let notes = [ended, (EventReason::RunEnded, in_words)];
        let mut events = act_events::of_deletion(work.batch, &known.object, &work.cause(), notes);
        if self.handles.dry_run {
            act_events::of_dry_run(&mut events, None);
            return Ok(ActResult::new(act, events));
        }
        let failed = |source| ActionFailure::DeleteOwner { owner: owner.clone(), source };
        let recorded = self.record_first(work, act, owner, (&known, &metadata), events, failed).await;
        let (act, unrecorded) = recorded?;
        if !act.is_done() {
            return Ok(ActResult::silent(act));
        }
        let (objects, namespace) = (&self.handles.objects, &work.batch.first.namespace);
        let ending = self.ending_below(Task::Expire, &known);
        let how = DeleteParams::background();
        match objects.delete(namespace, owner, metadata.resource_version.clone(), how).await {
            // the deletion may have been done without an answer; if the owner can't be read, the
            // API server doesn't answer at all
            Err(error) if error.is_open() => {
                if persist(async || objects.live(namespace, owner).await).await?.is_some() {
                    return Err(failed(error));
                }
            }
            result => result.map_err(failed)?,
        }
        ending.succeeded();
        Ok(ActResult::new(act, self.with_owed(unrecorded, &known, &metadata)))
    }

    /// Writes the events that the journal of an object owes, then those of its deletion. Both come
    /// before the deletion, which removes the journal. Judges the case again, because the events
    /// take a while.
    ///
    /// Returns the act of that judgement, and the events that weren't written. A dry run of the
    /// deletion decides about them. If the API server refuses it, it will refuse the deletion, too:
    /// then no event is written, and the caller writes the events if the deletion succeeds
    /// nevertheless. While the API server doesn't answer, nothing is deleted.
    ///
    /// After a refused dry run, no extensions are listed: the list would come between the reading
    /// of an owner and the write.
    async fn record_first(
        &self,
        work: &mut CaseWork<'_>,
        act: Act,
        object: &OwnerReference,
        (known, metadata): (&PausedObject, &ObjectMeta),
        events: Vec<EventRecord>,
        failed: impl Fn(ApiError) -> ActionFailure,
    ) -> Result<(Act, Vec<EventRecord>), ActionFailure> {
        let Handles { objects, cluster, .. } = &*self.handles;
        let unrecorded = match objects.would_delete(&work.batch.first.namespace, object).await {
            Ok(()) => {
                let owed = cluster.outbox.owed_on(known, metadata, self.handles.now());
                self.handles.events.record_first(owed, events).await;
                work.granted = self.granted(work).await?;
                Vec::new()
            }
            Err(error) if error.is_open() => return Err(failed(error)),
            Err(_) => events,
        };
        Ok((self.judge_again(work, &act), unrecorded))
    }
}
