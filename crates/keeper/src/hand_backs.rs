//! Hands fields back to the field managers that had them before a pause.
//!
//! `Args::write` runs the [`HandBackController`] while this keeper leads. A note on the object
//! names the fields and managers. A return has left the note, or an earlier keeper, or a run of the
//! plugin that has ended too early.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{ObjectFacts, OwedHandBack};
use tenure_policy::{
    naming::describe,
    pause::{self, HAND_BACK_MANAGER, OwnerObject},
};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    log::with_causes,
    work::{Lease, WorkLimits, WorkQueue},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    action::ConflictRetries, api::refer, handles::Handles, limit::WriteLimit, object_work::ObjectWork,
    poller::Poller,
};

/// The least time between two checks for notes: a busy cluster changes all the time.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The time after which a hand-back is tried again if the watch still shows the note.
const RETRY: Duration = Duration::from_secs(1);

/// The controller of hand-backs.
pub struct HandBackController {
    pub handles: Arc<Handles>,
    /// The limit of hand-backs.
    pub limit: WriteLimit,
}

impl HandBackController {
    /// Looks for owners with a note after changes of the index whenever this keeper leads, until
    /// `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let poller = Poller { handles: &self.handles, lead, shutdown, limits: WorkLimits::default() };
        let (cluster, mut changes) = (&self.handles.cluster, self.handles.cluster.changes());
        let fill = |queue: &WorkQueue<_>| {
            queue.replace(cluster.with(|index| index.hand_backs()).into_iter().map(ObjectWork));
        };
        let more = async || {
            sleep(POLL_INTERVAL).await;
            changes.next().await;
        };
        poller.run(fill, more, async |lease| self.handle(lease).await, || {}).await;
    }

    /// Hands the fields of one owner back, and logs the result.
    async fn handle(&self, lease: Lease<ObjectWork<OwedHandBack>>) {
        let ObjectFacts { namespace, name, facts: OwedHandBack { uid, source }, .. } = &lease.work.0;
        let Some(resource) = self.handles.cluster.kind(*source) else { return lease.again(RETRY) };
        let owner = refer(&resource.api_version, &resource.kind, name, uid);
        let mut conflicts = ConflictRetries::default();
        let result = loop {
            match self.try_to_hand_back(namespace, &owner, &lease).await {
                // the controllers of an owner that runs again change its status
                Err(ApiError::Stale(_)) if conflicts.may_retry() => conflicts.wait().await,
                result => break result,
            }
        };
        let owner = describe(&owner);
        match result {
            Ok(true) => info!(%namespace, owner, "Handed fields back to their field managers"),
            Ok(false) => {}
            Err(error) => {
                // an owner that changes all the time must not use up the limit of writes
                let changes = || matches!(error, ApiError::Stale(_)).then(|| with_causes(&error));
                if let Some(error) = lease.failure(&error).or_else(changes) {
                    warn!(%namespace, owner, error, "Failed to hand fields back to their managers: will try again");
                    return lease.failed();
                }
            }
        }
        lease.again(RETRY);
    }

    /// Hands the fields of an owner back. False: the owner bears no note any more, or the watches
    /// aren't fresh.
    async fn try_to_hand_back(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        lease: &Lease<ObjectWork<OwedHandBack>>,
    ) -> Result<bool, ApiError> {
        self.limit.until_ready().await;
        let found = lease.watch(self.handles.objects.live(namespace, owner)).await?;
        let patch = found.as_ref().and_then(|found| pause::hand_back(OwnerObject(&found.value)));
        let Some(patch) = patch.filter(|_| self.handles.gate.is_open()) else { return Ok(false) };
        lease.watch(self.handles.objects.merge_as(HAND_BACK_MANAGER, namespace, owner, &patch)).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
