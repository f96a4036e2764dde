//! Notes on bound pods the facts that end their run, where no other object of the cluster will show
//! them: the queue that their `PodGroup` named, a ceiling of their own that was removed, the start
//! of a pod that controlled them, an earlier one that they showed themselves, and that of a
//! `PodGroup` that they joined late.
//!
//! `Args::write` runs the [`EvidenceWriter`] while this keeper leads. The index remembers these
//! facts as long as a pod runs, and the annotation hands them to the next keeper. The API server
//! lets no tenant change the annotation of a bound pod. A tenant may make a pod so large that the
//! annotation has no room: after all tries, such a pod is deleted if the annotation bounds its run and
//! no controller exempts the pod from ceilings. If the pod's `PodGroup` is gone, it is deleted at the
//! next try: a keeper that started now would know no end of its run. A pod that was deleted before it
//! was annotated, with a grace period beyond the longest, is annotated while it terminates.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DeleteParams;
use serde_json::json;
use tenure_index::{MissingEvidence, ObjectFacts};
use tenure_policy::{
    climb::{self, Action, Climb},
    expiry::claimed,
    judge::TRIES,
    naming::reference,
    pause::DELETED_FULL,
    reason::EventReason,
};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    work::{Lease, WorkLimits, WorkQueue},
};
use tenure_types::{keys, wait::Wait};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    api::refer,
    events::{DELETING, EventRecord},
    handles::Handles,
    limit::WriteLimit,
    object_work::ObjectWork,
    poller::Poller,
};

/// The time between two checks for pods that lack their evidence.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The time until a pod that couldn't be annotated is tried again.
const RETRY: Duration = Duration::from_mins(1);

/// The time until a pod is tried again whose annotation the API server has refused.
const RETRY_REFUSED: Duration = Duration::from_hours(1);

/// The controller of evidence.
pub struct EvidenceWriter {
    pub handles: Arc<Handles>,
    /// The limit of annotations and deletions.
    pub limit: WriteLimit,
    /// The waits after tries to annotate a pod that has no room.
    pub retry_full: Wait,
}

impl EvidenceWriter {
    /// Looks for such pods every two seconds whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let poller = Poller { handles: &self.handles, lead, shutdown, limits: WorkLimits::default() };
        let fill = |queue: &WorkQueue<_>| {
            let missing = self.handles.cluster.with(|index| {
                let terminating = index.unnoted_terminations(self.handles.longest_termination);
                index.missing_evidence().into_iter().chain(terminating)
            });
            queue.replace(missing.map(ObjectWork));
        };
        let more = async || sleep(POLL_INTERVAL).await;
        poller.run(fill, more, async |lease| self.note(lease).await, || {}).await;
    }

    /// Annotates a pod. If the write has worked, the index won't name the pod any more.
    async fn note(&self, lease: Lease<ObjectWork<MissingEvidence>>) {
        let ObjectFacts { uid, namespace, name, facts } = &lease.work.0;
        let MissingEvidence { evidence, bounds_run, may_not_wait } = facts;
        self.limit.until_ready().await;
        let pod = refer("v1", "Pod", name, &uid.text());
        let evidence = json!(evidence).to_string();
        let patch =
            json!({"metadata": {"uid": pod.uid, "annotations": {keys::EVIDENCE_ANNOTATION: evidence}}});
        if !self.handles.gate.is_open() {
            return lease.again(POLL_INTERVAL);
        }
        let result = lease.watch(self.handles.objects.merge(namespace, &pod, &patch)).await;
        let Err(api_error) = result else {
            self.handles.cluster.with(|index| index.forget_full(*uid));
            info!(%namespace, pod = %name, %evidence, "Noted on a pod what ends its run");
            return lease.again(POLL_INTERVAL);
        };
        let Some(error) = lease.failure(&api_error) else { return lease.again(POLL_INTERVAL) };
        let has_no_room = *bounds_run && matches!(api_error, ApiError::TooLarge(_));
        if has_no_room && lease.watch(Box::pin(self.is_exempt(&lease))).await {
            debug!(%namespace, pod = %name, error, "Not noted: no ceiling applies");
            return lease.again(RETRY);
        }
        warn!(%namespace, pod = %name, %evidence, error, "Failed to note on a pod what ends its run: will try again");
        match api_error {
            _ if has_no_room => {
                // the queue forgets the failures of a pod that needs no evidence for a moment
                let tries = self.handles.cluster.with(|index| index.count_full(*uid));
                if *may_not_wait || tries >= u32::from(TRIES) {
                    Box::pin(self.delete(&lease, &pod)).await;
                }
                lease.failed_with(self.retry_full);
            }
            ApiError::Refused(_) => lease.again(RETRY_REFUSED),
            _ => lease.again(RETRY),
        }
    }

    /// True if the pod's controller, as just read, exempts the pod from ceilings. False if the pod or
    /// the controller can't be read: a tenant may name any.
    async fn is_exempt(&self, lease: &Lease<ObjectWork<MissingEvidence>>) -> bool {
        let (ObjectFacts { namespace, name, .. }, objects) = (&lease.work.0, &self.handles.objects);
        let Ok(pod) = objects.pod(namespace, name).await else { return false };
        let config = self.handles.config.get();
        let mut climb = Climb::above(None, climb::controller(&pod), &config.table);
        let Some(owner) = climb.next().filter(|_| claimed(&pod).is_some()).cloned() else { return false };
        let labels = pod.metadata.labels.unwrap_or_default();
        let Ok(found) = objects.find_owner(namespace, &owner, &labels, None).await else { return false };
        climb.answer(found);
        climb.action() == Action::Exempt
    }

    /// Deletes a pod that has no room for the annotation, and logs the result.
    async fn delete(&self, lease: &Lease<ObjectWork<MissingEvidence>>, pod: &OwnerReference) {
        let ObjectFacts { namespace, name, .. } = &lease.work.0;
        match self.try_to_delete(lease, pod).await {
            Ok(true) => {
                warn!(%namespace, pod = %name, "Deleted a pod that has no room for a note of what ends its run");
                let (object, reason) = (reference(pod, Some(namespace)), EventReason::EvidenceRefused);
                let (note, now) = (DELETED_FULL.to_owned(), self.handles.now());
                self.handles.events.extend([EventRecord::new(&object, reason, DELETING, note, now)]);
            }
            Ok(false) => {}
            Err(error) => {
                let Some(error) = lease.failure(&error) else { return };
                error!(%namespace, pod = %name, error, "Failed to delete a pod that has no room for a note of what ends its run: will try again");
            }
        }
    }

    /// Deletes a pod. A grace period beyond the longest is shortened. Returns false if the watches
    /// aren't fresh: then nothing was done.
    async fn try_to_delete(
        &self,
        lease: &Lease<ObjectWork<MissingEvidence>>,
        pod: &OwnerReference,
    ) -> Result<bool, ApiError> {
        let (namespace, Handles { objects, gate, .. }) = (&lease.work.0.namespace, &*self.handles);
        let found = lease.watch(objects.pod(namespace, &pod.name)).await?;
        self.limit.until_ready().await;
        if !gate.is_open() {
            return Ok(false);
        }
        let grace_period_seconds = self.handles.shortened_grace(&found);
        let how = DeleteParams { grace_period_seconds, ..DeleteParams::default() };
        lease.watch(objects.delete(namespace, pod, None, how)).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
