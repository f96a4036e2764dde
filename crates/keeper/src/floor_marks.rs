//! Writes annotations that keep autoscalers from pods that a floor protects. Removes them when the
//! floor ends, or when the configuration no longer has `floorOnPods`.
//!
//! `Args::write` runs [`FloorMarks`] while this keeper leads. The annotations alone say what Tenure
//! has written, so that the next keeper goes on from them.

use std::{cell::Cell, sync::Arc, time::Duration};

use tenure_index::{ObjectFacts, StaleMarks, Uid};
use tenure_policy::{marks, pause::OwnerObject};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    work::{Lease, WorkQueue},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    api::{if_found, refer},
    handles::Handles,
    limit::WriteLimit,
    object_work::ObjectWork,
    poller::Poller,
};

/// The time between two checks for pods, and the least time between two writes of one pod.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The controller of marks.
pub struct FloorMarks {
    pub handles: Arc<Handles>,
    /// The limit of writes of marks.
    pub limit: WriteLimit,
}

impl FloorMarks {
    /// Looks for pods whose marks are to change whenever this keeper leads, until `shutdown`. While
    /// marks are turned off and no pod has any, waits for another configuration.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let poller = Poller { handles: &self.handles, lead, shutdown, limits: Poller::limits_by_namespace() };
        let Handles { cluster, config, .. } = &*self.handles;
        let (mut changes, is_idle) = (config.clone(), Cell::new(false));
        let fill = |queue: &WorkQueue<_>| {
            let config = config.get();
            let floors = config.floor_on_pods.then_some(&config.floors);
            let stale = cluster.with(|index| index.stale_marks(floors, self.handles.now()));
            is_idle.set(floors.is_none() && stale.is_empty());
            queue.replace(stale.into_iter().map(ObjectWork));
        };
        let more = async || {
            if is_idle.get() {
                changes.changed().await;
            } else {
                sleep(POLL_INTERVAL).await;
            }
        };
        poller.run(fill, more, async |lease| self.mark(lease).await, || {}).await;
    }

    /// Changes the marks of one pod, and logs a failure: as a warning only the first of a
    /// namespace.
    async fn mark(&self, lease: Lease<ObjectWork<StaleMarks>>) {
        let ObjectFacts { namespace, name, .. } = &lease.work.0;
        let failure = self.try_to_mark(&lease).await.err().and_then(|error| lease.failure(&error));
        let Some(error) = failure else { return lease.again(POLL_INTERVAL) };
        if lease.failing_since().is_none() {
            warn!(%namespace, pod = %name, error, "Failed to write a pod's annotations for autoscalers: will try again");
        } else {
            debug!(%namespace, pod = %name, error, "Failed again to write a pod's annotations for autoscalers");
        }
        lease.failed();
    }

    /// Changes the marks of a pod. Does nothing if another pod has its name, if the marks are right
    /// by now, or if the watches aren't fresh.
    async fn try_to_mark(&self, lease: &Lease<ObjectWork<StaleMarks>>) -> Result<(), ApiError> {
        let ObjectFacts { uid, namespace, name, facts: StaleMarks { is_protected } } = &lease.work.0;
        let (objects, pod) = (&self.handles.objects, refer("v1", "Pod", name, &uid.text()));
        let found = if_found(lease.watch(objects.get(namespace, &pod)).await)?;
        let is_same = |uid_found: &str| Uid::of(uid_found) == *uid;
        let Some(found) = found.filter(|found| found.metadata.uid.as_deref().is_some_and(is_same)) else {
            return Ok(());
        };
        let Some(patch) = marks::change(OwnerObject(&found.value), &found.metadata, *is_protected) else {
            return Ok(());
        };
        self.limit.until_ready().await;
        if self.handles.gate.is_open() {
            lease.watch(objects.merge(namespace, &pod, &patch)).await?;
            debug!(%namespace, pod = %name, is_protected, "Wrote a pod's annotations for autoscalers");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
