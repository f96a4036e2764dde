//! Pods that outlive the pause of their owner, or whose pauses are always undone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{DuePod, Task};
use tenure_policy::{
    naming::describe,
    owners::OwnerTable,
    pause::{Alone, OwnerObject},
};
use tenure_service::call::ApiError;
use tenure_types::projection::Pod;
use tracing::{info, warn};

use super::super::{Done, Failure, Pauser, json};
use crate::events::EventRecord;

impl Pauser {
    /// The next one below that runs, if all above it have stopped.
    pub(super) async fn below_stopped(
        &self,
        due: &DuePod,
        owner: &OwnerReference,
        mut below: Vec<OwnerReference>,
        table: &OwnerTable,
    ) -> Option<OwnerReference> {
        if !self.has_stopped(due, owner, table).await {
            return None;
        }
        while let Some(next) = below.pop() {
            if !self.has_stopped(due, &next, table).await {
                return Some(next);
            }
        }
        None
    }

    /// True if an owner is paused, being deleted or gone.
    pub(super) async fn has_stopped(&self, due: &DuePod, owner: &OwnerReference, table: &OwnerTable) -> bool {
        match self.objects.get(&due.namespace, owner).await {
            Ok(found) if found.metadata.uid.as_deref() != Some(&owner.uid) => true,
            Ok(found) => {
                found.metadata.deletion_timestamp.is_some() || {
                    let object = json(&found);
                    table.rules(owner).any(|rule| OwnerObject(&object).is_paused(rule))
                }
            }
            Err(error) => matches!(error, ApiError::NotFound),
        }
    }

    pub(super) async fn delete_outliving(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
        alone: Alone,
    ) -> Result<Done, Failure> {
        let (namespace, name) = (&due.namespace, &due.name);
        warn!(%namespace, pod = %name, ?alone, "Runs on after all tries to pause its owner: deleting it");
        self.delete(task, due, pod, &alone).await
    }

    pub(super) async fn delete_undone(
        &self,
        due: &DuePod,
        pod: &Pod,
        owner: &OwnerReference,
        event: EventRecord,
    ) -> Result<Done, Failure> {
        let (namespace, name, owner) = (&due.namespace, &due.name, describe(owner));
        info!(%namespace, pod = %name, owner, "Each pause of its owner was undone: deleting the pod");
        self.delete_and_tell(Task::Expire, due, pod, &Alone::Undone(owner), vec![event]).await
    }
}
