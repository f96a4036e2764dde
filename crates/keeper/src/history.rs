//! Deletes the oldest paused Jobs of a `CronJob` beyond `pausedHistoryLimit`. No controller of
//! Kubernetes does: a suspended Job hasn't ended.
//!
//! `Args::write` runs [`PausedHistory`] while this keeper leads. A Job is deleted only if the API
//! server and the index still show it as paused and surplus.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::api::DeleteParams;
use tenure_index::{ObjectFacts, Paused, Uid};
use tenure_policy::{
    naming::reference,
    pause::{self, OwnerObject},
    reason::EventReason,
};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    work::{Lease, WorkLimits, WorkQueue},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    api::refer, events::EventRecord, handles::Handles, limit::WriteLimit, object_work::ObjectWork,
    poller::Poller,
};

/// The time between two checks for surplus Jobs.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The time until a Job that couldn't be deleted is tried again.
const RETRY: Duration = Duration::from_mins(1);

/// The controller that deletes paused Jobs.
pub struct PausedHistory {
    pub handles: Arc<Handles>,
    /// The limit of deletions.
    pub limit: WriteLimit,
    /// Namespaces whose objects are never touched.
    pub exempt_namespaces: Vec<String>,
}

impl PausedHistory {
    /// Looks for surplus Jobs every two seconds whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let poller = Poller { handles: &self.handles, lead, shutdown, limits: WorkLimits::default() };
        let work = |job: Paused| {
            let (uid, namespace, name) = (Uid::of(&job.uid), job.namespace.clone(), job.name.clone());
            ObjectWork(ObjectFacts { uid, namespace, name, facts: job })
        };
        let fill = |queue: &WorkQueue<_>| queue.replace(self.surplus().into_iter().map(work));
        let more = async || sleep(POLL_INTERVAL).await;
        poller.run(fill, more, async |lease| self.delete(lease).await, || {}).await;
    }

    /// Returns the paused Jobs that must be deleted now. Empty if the configuration keeps all, or
    /// no watch shows Jobs.
    fn surplus(&self) -> Vec<Paused> {
        let Handles { cluster, config, .. } = &*self.handles;
        let most = config.get().paused_history_limit.zip(cluster.source_of_jobs());
        let Some((most, source)) = most else { return Vec::new() };
        let mut surplus = cluster.with(|index| index.surplus_jobs(most, source));
        surplus.retain(|job| !self.exempt_namespaces.iter().any(|exempt| *exempt == job.namespace.as_str()));
        surplus
    }

    /// Deletes a Job, and logs the result. If the deletion has worked, the index won't name the Job
    /// any more.
    async fn delete(&self, lease: Lease<ObjectWork<Paused>>) {
        let Paused { namespace, name, .. } = &lease.work.0.facts;
        match self.try_to_delete(&lease).await {
            Ok(Some((cron_job, job))) => {
                let most = self.handles.config.get().paused_history_limit.unwrap_or_default();
                info!(%namespace, job = %name, cron_job = %cron_job.name, most, "Deleted a paused Job: its CronJob has more than pausedHistoryLimit");
                let object = reference(&cron_job, Some(namespace));
                let (reason, note) = (EventReason::PausedJobDeleted, pause::job_deleted(&job, most));
                let event = EventRecord::new(&object, reason, "Deleting", note, self.handles.now());
                self.handles.events.extend([event]);
            }
            Ok(None) => {}
            Err(error) => {
                if let Some(error) = lease.failure(&error) {
                    warn!(%namespace, job = %name, error, "Failed to delete a paused Job: will try again");
                    return lease.again(RETRY);
                }
            }
        }
        lease.again(POLL_INTERVAL);
    }

    /// Deletes a Job in the version that was just read, and returns its `CronJob` and the Job.
    /// None: the Job must not be deleted any more, or the watches aren't fresh.
    async fn try_to_delete(
        &self,
        lease: &Lease<ObjectWork<Paused>>,
    ) -> Result<Option<(OwnerReference, ObjectReference)>, ApiError> {
        let Paused { namespace, name, uid, source, .. } = &lease.work.0.facts;
        let Handles { objects, cluster, config, gate, .. } = &*self.handles;
        let Some(kind) = cluster.kind(*source) else { return Ok(None) };
        let job = refer(&kind.api_version, &kind.kind, name, uid);
        let Some(found) = lease.watch(objects.live(namespace, &job)).await? else { return Ok(None) };
        let known = reference(&job, Some(namespace));
        let Some(cron_job) = pause::cron_job_of(&known, &found.metadata) else { return Ok(None) };
        let config = config.get();
        let may = pause::may_be_dropped(OwnerObject(&found.value), &found.metadata, config.table.rules(&job));
        if !may || lease.watch(objects.live(namespace, &cron_job)).await?.is_none() {
            return Ok(None);
        }
        self.limit.until_ready().await;
        // another Job of the `CronJob` may have been resumed or deleted since
        if !gate.is_open() || !self.surplus().iter().any(|of| of.uid == *uid) {
            return Ok(None);
        }
        let version = found.metadata.resource_version;
        lease.watch(objects.delete(namespace, &job, version, DeleteParams::background())).await?;
        Ok(Some((cron_job, known)))
    }
}
