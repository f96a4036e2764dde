//! Notes on bound pods the facts that end their run, where no other object of the cluster will show
//! them: the queue that their `PodGroup` named, a ceiling of their own that was removed, and the
//! start of a pod that controlled them.
//!
//! `Args::write` runs the [`EvidenceWriter`] while this keeper leads. The index remembers these
//! facts as long as a pod runs, and the annotation hands them to the next keeper. The API server
//! lets no tenant change the annotation of a bound pod.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tenure_index::{CeilingIndex, MissingEvidence, Uid};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    log::with_causes,
    work::{Lease, Work, WorkLoop, WorkQueue},
};
use tenure_types::keys;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{api::refer, handles::Handles, limit::WriteLimit};

/// The time between two checks for pods that lack their evidence.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The time until a pod that couldn't be annotated is tried again.
const RETRY: Duration = Duration::from_mins(1);

/// The time until a pod is tried again whose annotation the API server has refused.
const RETRY_REFUSED: Duration = Duration::from_hours(1);

/// The controller of evidence.
pub struct EvidenceWriter {
    pub handles: Arc<Handles>,
    /// The limit of annotations.
    pub limit: WriteLimit,
}

/// A pod that lacks its evidence.
#[derive(Debug)]
struct PodWithoutEvidence(MissingEvidence);

impl Work for PodWithoutEvidence {
    type Key = Uid;
    type Rank = ();

    fn key(&self) -> Uid {
        self.0.uid
    }

    fn namespace(&self) -> &str {
        &self.0.namespace
    }

    fn rank(&self) {}
}

impl EvidenceWriter {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || {}).await;
    }

    /// Looks for such pods every two seconds until `shutdown`.
    async fn work(&self, shutdown: &CancellationToken) {
        let (queue, cluster) = (WorkQueue::default(), &self.handles.cluster);
        let fill = || {
            queue.replace(cluster.with(CeilingIndex::missing_evidence).into_iter().map(PodWithoutEvidence));
        };
        let note = async |lease: Lease<PodWithoutEvidence>| {
            let after = self.note(&lease).await;
            lease.again(after);
        };
        let run = WorkLoop { queue: &queue, gate: Some(&self.handles.gate), end: shutdown, drains: false };
        run.work(fill, async || sleep(POLL_INTERVAL).await, note).await;
    }

    /// Annotates a pod, and returns the time until the next try. If the write has worked, the index
    /// won't name the pod any more.
    async fn note(&self, lease: &Lease<PodWithoutEvidence>) -> Duration {
        let MissingEvidence { uid, namespace, name, evidence } = &lease.work.0;
        self.limit.until_ready().await;
        let pod = refer("v1", "Pod", name, &uid.text());
        let evidence = json!(evidence).to_string();
        let patch =
            json!({"metadata": {"uid": pod.uid, "annotations": {keys::EVIDENCE_ANNOTATION: evidence}}});
        if !self.handles.gate.is_open() {
            return POLL_INTERVAL;
        }
        match lease.watch(self.handles.objects.merge(namespace, &pod, &patch)).await {
            Ok(_) => {
                info!(%namespace, pod = %name, %evidence, "Noted on a pod what ends its run");
                POLL_INTERVAL
            }
            Err(error @ (ApiError::NotFound | ApiError::Stale(_) | ApiError::NotLeading)) => {
                debug!(%namespace, pod = %name, error = with_causes(&error), "Not noted");
                POLL_INTERVAL
            }
            Err(api_error) => {
                if api_error.is_open() {
                    lease.degrade();
                }
                let error = with_causes(&api_error);
                warn!(%namespace, pod = %name, %evidence, error, "Failed to note on a pod what ends its run: will try again");
                if matches!(api_error, ApiError::Refused(_)) { RETRY_REFUSED } else { RETRY }
            }
        }
    }
}

#[cfg(test)]
mod tests;
