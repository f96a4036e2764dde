//! Notes on the pods of a workload when its run ends, as announced on its owner. A file of the
//! downward API shows that inside the pod.
//!
//! `Args::write` runs [`PodNotices`] while this keeper leads and the configuration has
//! `noticeOnPods`. No decision depends on the annotation.

mod notified;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tenure_index::Uid;
use tenure_policy::pause::{self, OwnerObject};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    log::with_causes,
    work::{Lease, Work, WorkQueue},
};
use tenure_types::keys;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{api::refer, handles::Handles, poller::Poller};

pub use notified::NotifiedWorkloads;
use notified::PodToShow;

/// The longest time until a look finds pods that were created later.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest time between two checks: many ends are announced at the same time.
const CROWD: Duration = Duration::from_millis(500);

/// The controller of notices on pods. Its writes share the limit of `Handles::announcements`.
pub struct PodNotices {
    pub handles: Arc<Handles>,
}

impl Work for PodToShow {
    type Key = Uid;
    /// The end that the pod is to show, the nearest first.
    type Rank = Option<Timestamp>;

    fn key(&self) -> Uid {
        self.uid
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn rank(&self) -> Option<Timestamp> {
        self.end
    }
}

/// The result for one pod.
enum ShowResult {
    /// The pod shows the end, or the API server has refused the write: the pod isn't tried again
    /// before the next notice.
    Done,
    /// The pod is gone, or terminates.
    Gone,
    /// The pod is to show another end by now, or the watches aren't fresh.
    Again,
}

impl PodNotices {
    /// Looks for pods that don't show the end whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let poller = Poller { handles: &self.handles, lead, shutdown, limits: Poller::limits_by_namespace() };
        let workloads = &self.handles.notified_workloads;
        let more = async || {
            sleep(CROWD).await;
            // an error means that no end was announced
            let _ = timeout(POLL_INTERVAL, workloads.changed.notified()).await;
        };
        poller
            .run(|queue| self.fill(queue), more, async |lease| self.handle(lease).await, || workloads.clear())
            .await;
    }

    /// Replaces the work by the pods that may not show the end. Forgets all if the configuration no
    /// longer has `noticeOnPods`.
    fn fill(&self, queue: &WorkQueue<PodToShow>) {
        let Handles { cluster, config, gate, notified_workloads: workloads, .. } = &*self.handles;
        if !config.get().notice_on_pods {
            workloads.clear();
            queue.clear();
        } else if gate.is_open() {
            queue.replace(cluster.with(|index| workloads.missing(index, self.handles.now())));
        }
    }

    /// Notes the end on one pod. Warns of the first failure in a namespace.
    async fn handle(&self, lease: Lease<PodToShow>) {
        let namespace = &lease.work.namespace;
        match self.show(&lease).await {
            Ok(ShowResult::Done) => {
                self.handles.notified_workloads.shown(&lease.work);
                lease.done();
            }
            Ok(ShowResult::Gone) | Err(ApiError::NotFound) => {
                self.handles.notified_workloads.gone(&lease.work);
                lease.done();
            }
            Ok(ShowResult::Again) => lease.again(POLL_INTERVAL),
            Err(error) => {
                let Some(error) = lease.failure(&error) else { return lease.again(POLL_INTERVAL) };
                if lease.failing_since().is_none() {
                    warn!(%namespace, error, "Failed to note the end of runs on pods of a namespace: will try again");
                } else {
                    debug!(%namespace, error, "Failed to note the end of runs on pods again");
                }
                lease.failed();
            }
        }
    }

    /// Reads a pod, and annotates it if it shows another end. A write that the API server refuses is
    /// no error.
    async fn show(&self, lease: &Lease<PodToShow>) -> Result<ShowResult, ApiError> {
        let PodToShow { uid, namespace, name, end, .. } = &*lease.work;
        let pod = refer("v1", "Pod", name, &uid.text());
        let found = lease.watch(self.handles.objects.get(namespace, &pod)).await?;
        let metadata = &found.metadata;
        if metadata.uid.as_deref().map(Uid::of) != Some(*uid) || metadata.deletion_timestamp.is_some() {
            return Ok(ShowResult::Gone);
        }
        let shown = metadata.annotations.as_ref().and_then(|all| all.get(keys::EXPIRES_AT_ANNOTATION));
        if shown == end.map(|end| end.to_string()).as_ref() {
            return Ok(ShowResult::Done);
        }
        let patch = pause::show_end(OwnerObject(&found.value), *end);
        self.handles.announcements.until_ready().await;
        if !self.handles.gate.is_open() || !self.handles.notified_workloads.is_missing(&lease.work) {
            return Ok(ShowResult::Again);
        }
        match lease.watch(self.handles.objects.merge(namespace, &pod, &patch)).await {
            Ok(_) => Ok(ShowResult::Done),
            Err(error) if error.is_open() || error.is_overtaken() => Err(error),
            Err(error) => {
                let error = with_causes(&error);
                warn!(%namespace, pod = %name, error, "Not allowed to note the end of its run on a pod");
                Ok(ShowResult::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests;
