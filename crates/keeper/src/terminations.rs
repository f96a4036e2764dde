//! Shortens the grace period of pods past their ceiling that terminate for too long: a user may
//! write any grace period.
//!
//! `Args::write` runs [`Terminations`] while this keeper leads. The controller acts only on pods
//! whose deletion was asked for already.

use std::{sync::Arc, time::Duration};

use kube::api::DeleteParams;
use tenure_index::{ObjectFacts, Overlong, Uid};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    work::{Lease, WorkLimits, WorkQueue},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{api::refer, handles::Handles, limit::WriteLimit, object_work::ObjectWork, poller::Poller};

/// The time between two checks, and between two tries for a pod.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The controller of terminations.
pub struct Terminations {
    pub handles: Arc<Handles>,
    /// The limit of deletions.
    pub limit: WriteLimit,
}

impl Terminations {
    /// Looks for such pods every five seconds whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let poller = Poller { handles: &self.handles, lead, shutdown, limits: WorkLimits::default() };
        let fill = |queue: &WorkQueue<_>| {
            let (now, longest) = (self.handles.now(), self.handles.longest_termination);
            let overlong = self.handles.cluster.with(|index| index.overlong(now, longest));
            queue.replace(overlong.into_iter().map(ObjectWork));
        };
        let more = async || sleep(POLL_INTERVAL).await;
        poller.run(fill, more, async |lease| self.shorten(lease).await, || {}).await;
    }

    /// Shortens the grace period of one pod, and logs the result.
    async fn shorten(&self, lease: Lease<ObjectWork<Overlong>>) {
        let ObjectFacts { namespace, name, .. } = &lease.work.0;
        match self.try_to_shorten(&lease).await {
            Ok(Some(Overlong { left, allowed })) => {
                self.handles.metrics.shortened.inc();
                let (left, allowed) = (left.as_secs(), allowed.as_secs());
                info!(%namespace, pod = %name, left, allowed, "Shortened the grace period of a pod past its ceiling");
            }
            Ok(None) => debug!(%namespace, pod = %name, "May not be shortened any more"),
            Err(error) => {
                if let Some(error) = lease.failure(&error) {
                    warn!(%namespace, pod = %name, error, "Failed to shorten the grace period: will try again");
                }
            }
        }
        // the index doesn't name a shortened pod any more by then
        lease.again(POLL_INTERVAL);
    }

    /// Deletes a pod again with the grace period that is allowed, and returns its times. None: right
    /// before the write, the pod doesn't terminate for too long, or the watches aren't fresh.
    async fn try_to_shorten(
        &self,
        lease: &Lease<ObjectWork<Overlong>>,
    ) -> Result<Option<Overlong>, ApiError> {
        let ObjectFacts { uid, namespace, name, .. } = &lease.work.0;
        let mut terminating = refer("v1", "Pod", name, "");
        let found = lease.watch(self.handles.objects.get(namespace, &terminating)).await?.metadata.uid;
        terminating.uid = found.filter(|found| Uid::of(found) == *uid).ok_or(ApiError::NotFound)?;
        self.limit.until_ready().await;
        if !self.handles.gate.is_open() {
            return Ok(None);
        }
        let (now, longest) = (self.handles.now(), self.handles.longest_termination);
        let pod = self.handles.cluster.with(|index| index.overlong_pod(*uid, now, longest));
        let times = pod.map(|pod| pod.facts);
        if let Some(Overlong { allowed, .. }) = &times {
            let grace_period_seconds = Some(allowed.as_secs().try_into().unwrap_or(u32::MAX));
            let how = DeleteParams { grace_period_seconds, ..DeleteParams::default() };
            lease.watch(self.handles.objects.delete(namespace, &terminating, None, how)).await?;
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests;
