//! Labels pods with their queue, if the `PodGroup` that named it has gone while they run.
//!
//! The keeper remembers the queue of such a pod as long as it runs. The label lets the next keeper know it, too: without it,
//! a pod would be in no queue after a restart, and so have no ceiling. The API server lets no tenant change the label of a
//! bound pod.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tenure_index::{CeilingIndex, Orphan, Uid};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    log::with_causes,
    work::{Lease, Run, Work, WorkQueue},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{api::refer, handles::Handles, limit::WriteLimit};

/// The time between two looks. A `PodGroup` that is made again at once leaves a label all the same.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// The time until a pod that couldn't be labelled is tried again.
const RETRY: Duration = Duration::from_mins(1);

/// The same where the API server has refused it: a `PodGroup` may name what no label may be.
const RETRY_REFUSED: Duration = Duration::from_hours(1);

/// Labels pods with the queue that their `PodGroup` named.
pub struct QueueLabels {
    pub handles: Arc<Handles>,
    pub limit: WriteLimit,
}

/// The label of a pod.
#[derive(Debug)]
struct Labelling(Orphan);

impl Work for Labelling {
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

impl QueueLabels {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || {}).await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let (queue, cluster) = (WorkQueue::default(), &self.handles.cluster);
        let look = || queue.replace(cluster.with(CeilingIndex::orphans).into_iter().map(Labelling));
        let label = async |lease: Lease<Labelling>| {
            let after = self.label(&lease).await;
            lease.again(after);
        };
        let run = Run { queue: &queue, gate: Some(&self.handles.gate), end: shutdown, drains: false };
        run.work(look, async || sleep(BETWEEN_LOOKS).await, label).await;
    }

    /// Labels a pod, and returns the time until the next try: the index doesn't name the pod any more if it has worked.
    async fn label(&self, lease: &Lease<Labelling>) -> Duration {
        let Orphan { uid, namespace, name, family, queue } = &lease.work.0;
        self.limit.until_ready().await;
        let pod = refer("v1", "Pod", name, &uid.text());
        let patch = json!({"metadata": {"uid": pod.uid, "labels": {family.row().queue_label: queue}}});
        if !self.handles.gate.is_open() {
            return BETWEEN_LOOKS;
        }
        match lease.watch(self.handles.objects.merge(namespace, &pod, &patch)).await {
            Ok(_) => {
                info!(%namespace, pod = %name, %queue, "Labelled a pod with the queue of its PodGroup, which has gone");
                BETWEEN_LOOKS
            }
            Err(error @ (ApiError::NotFound | ApiError::Stale(_) | ApiError::NotLeading)) => {
                debug!(%namespace, pod = %name, error = with_causes(&error), "Not labelled");
                BETWEEN_LOOKS
            }
            Err(api_error) => {
                if api_error.is_open() {
                    lease.trouble();
                }
                let error = with_causes(&api_error);
                warn!(%namespace, pod = %name, %queue, error, "Failed to label a pod with the queue of its PodGroup, which has gone: will try again");
                if matches!(api_error, ApiError::Refused(_)) { RETRY_REFUSED } else { RETRY }
            }
        }
    }
}

#[cfg(test)]
mod tests;
