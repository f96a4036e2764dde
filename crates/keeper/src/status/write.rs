//! Writes a queue's status by server-side apply, so that fields of other managers stay theirs.
//!
//! The [`StatusController`] calls `put` for each write. Writes of v3alpha1 go to the status subresource,
//! and those of v2 to the queue itself.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tenure_policy::queue_status::Difference;
use tenure_service::call::{ApiError, call};
use tenure_types::{
    projection::{ObservedQueue, ObservedStatus, RunaiQueueObject, RunaiQueueV2Object},
    runai::QueueVersion,
};
use thiserror::Error;

use super::{StatusController, known::Write};

/// The field manager of statuses. Other writes have another field manager, because an apply removes
/// the fields that its manager has applied before and now leaves out.
const FIELD_MANAGER: &str = "tenure-keeper-status";

/// The field of the child queues, as a conflict names it.
const CHILDREN: &str = ".status.childQueues";

/// The reason why a status wasn't written.
#[derive(Debug, Error)]
pub enum StatusWriteError {
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The returned status lacks fields that were applied.
    #[error("the API server took it and dropped what it was to say")]
    Dropped,
}

impl StatusController {
    /// Writes the status of a queue, and returns the status that it has then. The names of the
    /// children are left out if another field manager owns them.
    pub(super) async fn put(&self, write: &Write) -> Result<ObservedStatus, StatusWriteError> {
        let status = match self.apply(write, write.children, !write.children).await {
            Err(ApiError::Owned(fields)) => {
                let children = write.children && !fields.iter().any(|field| field == CHILDREN);
                self.apply(write, children, true).await
            }
            result => result,
        }?;
        let status = match write.report.removal(&write.uid, &status) {
            Some(removal) if self.version == QueueVersion::V3alpha1 => {
                self.patch(&write.name, false, &Patch::Merge(removal)).await?
            }
            _ => status,
        };
        let Difference { own, .. } = write.report.difference(&status, write.generation);
        if own { Err(StatusWriteError::Dropped) } else { Ok(status) }
    }

    /// Applies a report. With `children`, it names the child queues. With `force`, fields are taken
    /// from other field managers.
    async fn apply(&self, write: &Write, children: bool, force: bool) -> Result<ObservedStatus, ApiError> {
        let Write { name, uid, report, generation, observed, .. } = write;
        let ready = report.ready(*generation, observed, self.handles.now());
        let patch = Patch::Apply(report.applied(name, uid, self.version, children, ready.as_ref()));
        self.patch(name, force, &patch).await
    }

    /// Sends a patch once the write limit allows it, and returns the status that the queue has
    /// then. A field that the served schema lacks is an error.
    async fn patch(&self, name: &str, force: bool, patch: &Patch<Value>) -> Result<ObservedStatus, ApiError> {
        let how = PatchParams { force, ..PatchParams::apply(FIELD_MANAGER).validation_strict() };
        self.limit.until_ready().await;
        let client = self.handles.client.clone();
        match self.version {
            QueueVersion::V3alpha1 => {
                let queues: Api<RunaiQueueObject> = Api::all(client);
                Ok(call(queues.patch_status(name, &how, patch)).await?.status)
            }
            QueueVersion::V2 => {
                let queues: Api<RunaiQueueV2Object> = Api::all(client);
                Ok(call(queues.patch(name, &how, patch)).await?.observed_status())
            }
        }
    }
}
