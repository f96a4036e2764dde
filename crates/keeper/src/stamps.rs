//! Stamps each `PodGroup` with its start time, from the conditions of its pods.
//!
//! `Args::act` runs [`Stamps`] while this keeper leads. A dry run only logs each stamp. A stamp is
//! written only over the version of the group that was judged.

use std::{collections::HashSet, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use serde_json::json;
use tenure_index::{GroupKey, PendingStamp, StampForm};
use tenure_policy::start;
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    log::with_causes,
    work::{Lease, Work, WorkLimits, WorkLoop, WorkQueue},
};
use tenure_types::{keys, podgroup::PodGroupKind, wait::Wait};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    api::refer,
    handles::Handles,
    limit::WriteLimit,
    metrics::{StampResult, label},
    sleep,
};

/// The waits after failures, and after stamps that a user removes.
const RETRY: Wait = Wait { first: Duration::from_secs(5), last: Duration::from_mins(5) };

/// The longest time until the watch shows why a write was stale.
const STALE: Duration = Duration::from_secs(5);

/// The number of stamps on a group in one run without a wait between them: a user may remove each again.
const WITHOUT_WAIT: u8 = 3;

/// The controller of stamps.
pub struct Stamps {
    handles: Arc<Handles>,
    limit: WriteLimit,
    queue: WorkQueue<GroupStamp>,
    /// The kinds that can't be written, as was logged.
    refused: Mutex<HashSet<PodGroupKind>>,
}

/// A stamp that was due at the last check of its group.
#[derive(Debug)]
struct GroupStamp(PendingStamp);

impl Work for GroupStamp {
    type Key = GroupKey;
    type Rank = ();

    fn key(&self) -> Self::Key {
        self.0.group.clone()
    }

    fn namespace(&self) -> &str {
        &self.0.group.namespace
    }

    fn rank(&self) {}
}

/// The reason why a stamp wasn't written.
#[derive(Debug, Error)]
enum StampError {
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The returned group has another start, or none.
    #[error("the API server took the patch, but a webhook has set the annotation back or dropped it")]
    Dropped,
}

impl Stamps {
    /// Creates the controller with an empty queue and a write limit of its own.
    pub fn new(handles: Arc<Handles>) -> Self {
        let queue = WorkQueue::new(WorkLimits { retry: RETRY, ..WorkLimits::default() });
        Self { limit: handles.limit(), handles, queue, refused: Mutex::default() }
    }

    /// Works whenever this keeper leads, until `shutdown`; then finishes what is in flight.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || self.queue.reset()).await;
    }

    /// Stamps groups until `shutdown`. Looks again after changes of the index, and when the next
    /// start may have come.
    async fn work(&self, shutdown: &CancellationToken) {
        let Handles { cluster, clock, .. } = &*self.handles;
        let mut changes = cluster.changes();
        let more = async || {
            tokio::select! {
                () = sleep::towards(clock, cluster.with(|index| index.next_stamp())) => {}
                () = changes.next() => {}
            }
        };
        let run = WorkLoop { queue: &self.queue, gate: None, end: shutdown, drains: false };
        run.work(|| self.fill(), more, async |lease| self.stamp(lease).await).await;
    }

    /// Adds the stamps of groups that have changed since the last call, or whose start has come.
    fn fill(&self) {
        for stamping in self.handles.cluster.with(|index| index.new_stampings(self.handles.now())) {
            let work = GroupStamp(stamping);
            let key = work.key();
            // waits don't last beyond a run of the group
            if self.queue.get(&key).is_some_and(|known| known.0.run != work.0.run) {
                self.queue.remove(&key);
            }
            self.queue.push(work);
        }
    }

    /// Writes one stamp, if it is still to be written.
    async fn stamp(&self, lease: Lease<GroupStamp>) {
        if !self.handles.dry_run {
            self.limit.until_ready().await;
        }
        let stamping = self.handles.cluster.with(|index| index.stamping(&lease.work.0, self.handles.now()));
        let Some(stamping) = stamping else { return lease.done() };
        if self.handles.dry_run {
            self.count(&stamping, StampResult::WouldStamp);
            let (namespace, group, start) = (&stamping.group.namespace, describe(&stamping), stamping.start);
            info!(%namespace, group, %start, "Dry run: would stamp");
            self.handles.cluster.with(|index| index.note_stamp(&stamping, StampForm::Said));
            return lease.done();
        }
        let result = lease.watch(self.write(&stamping)).await;
        self.end(lease, &stamping, result);
    }

    /// Writes a stamp, and returns the `resourceVersion` of the group after it.
    async fn write(&self, stamping: &PendingStamp) -> Result<String, StampError> {
        let PendingStamp { group, uid, resource_version, start, .. } = stamping;
        let patch = json!({"metadata": {
            "uid": uid,
            "resourceVersion": resource_version,
            "annotations": {keys::LAST_START_ANNOTATION: start::write(*start)},
        }});
        let written = self.handles.objects.merge(&group.namespace, &reference(stamping), &patch).await?;
        if start::stamp(&written.metadata) == Some(Ok(*start)) {
            Ok(written.metadata.resource_version.unwrap_or_default())
        } else {
            Err(StampError::Dropped)
        }
    }

    /// Logs and counts the result of a write, takes it into the index, and ends the lease.
    fn end(&self, lease: Lease<GroupStamp>, stamping: &PendingStamp, result: Result<String, StampError>) {
        let (namespace, group, start) = (&stamping.group.namespace, describe(stamping), stamping.start);
        match result {
            Ok(version) => {
                self.refused.lock().remove(&stamping.group.kind);
                self.count(stamping, StampResult::Stamped);
                debug!(%namespace, group, %start, "Stamped");
                // the ends of runs may have moved
                self.handles.cluster.change(|index| index.note_stamp(stamping, StampForm::Written(version)));
                match stamping.written.saturating_add(1).checked_sub(WITHOUT_WAIT) {
                    Some(more) => lease.again(RETRY.after(more.into())),
                    None => lease.done(),
                }
            }
            Err(StampError::Api(error)) if error.is_overtaken() => {
                self.count(stamping, StampResult::Stale);
                debug!(%namespace, group, "Changed or gone before it was stamped");
                lease.until_added(STALE);
            }
            Err(error) => {
                if matches!(&error, StampError::Api(error) if error.is_open()) {
                    lease.degrade();
                }
                self.count(stamping, StampResult::Failed);
                self.complain(stamping, &error, lease.failures > 0);
                lease.failed();
            }
        }
    }

    /// Logs a failed write. A failure that an administrator must remedy is logged once for each
    /// kind, and only if it lasts.
    fn complain(&self, stamping: &PendingStamp, error: &StampError, has_failed_before: bool) {
        let (namespace, group) = (&stamping.group.namespace, describe(stamping));
        let text = with_causes(error);
        let remedy = match error {
            StampError::Api(ApiError::Forbidden(_)) => Some("grant patch of podgroups to the keeper"),
            StampError::Dropped => Some("add the keeper's user to trustedWriters of the webhook"),
            StampError::Api(_) => None,
        };
        match remedy {
            // an API server that has just started forbids everything for a moment, and the
            // webhook's clock may be behind
            Some(remedy) if has_failed_before => {
                if self.refused.lock().insert(stamping.group.kind) {
                    let api_group = stamping.group.kind.group();
                    warn!(api_group, %namespace, group, error = text, remedy, "Can't stamp PodGroups of this kind");
                }
            }
            Some(_) => debug!(%namespace, group, error = text, "Failed to stamp"),
            _ if has_failed_before => debug!(%namespace, group, error = text, "Failed again to stamp"),
            _ => warn!(%namespace, group, error = text, "Failed to stamp: will try again"),
        }
    }

    fn count(&self, stamping: &PendingStamp, result: StampResult) {
        self.handles.metrics.stamps.inc([stamping.group.kind.group(), &label(result)]);
    }
}

/// Returns the reference by which an object that the `PodGroup` owned would name it. Any served
/// version will do.
fn reference(stamping: &PendingStamp) -> OwnerReference {
    let kind = stamping.group.kind;
    let version = kind.versions().first().copied().unwrap_or_default();
    let api_version = format!("{}/{version}", kind.group());
    refer(&api_version, "PodGroup", &stamping.group.name, &stamping.uid)
}

/// Returns the name of a group for people: `test (scheduling.run.ai)`.
fn describe(stamping: &PendingStamp) -> String {
    format!("{} ({})", stamping.group.name, stamping.group.kind.group())
}

#[cfg(test)]
mod tests;
