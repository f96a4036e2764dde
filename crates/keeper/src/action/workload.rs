//! Finds the Workload by which Kueue runs an owner that is to be paused.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tenure_index::{DuePod, Task, Uid};
use tenure_policy::{
    kueue::{self, Lookup},
    naming::describe,
    owners::OwnerTable,
    pause::OwnerObject,
};
use tenure_service::log::with_causes;
use tenure_types::projection::Pod;
use tracing::warn;

use super::{Failure, Pauser, READING_TRIES, json};

impl Pauser {
    /// The Workload to pause in place of a topmost owner; none if there is none, for a task that pauses nothing, or if the
    /// owner is deleted.
    pub(super) async fn workload_of_owner(
        &self,
        task: Task,
        due: &DuePod,
        owner: &OwnerReference,
        table: &OwnerTable,
    ) -> Result<Option<OwnerReference>, Failure> {
        let is_paused = pauses(task) && !(task == Task::Expire && table.deletes(owner));
        let lookup = kueue::of_owner(owner, table).filter(|_| is_paused);
        let Some(lookup) = lookup else { return Ok(None) };
        let found = self.workload(due, lookup, &owner.uid).await?;
        Ok(found.map(|found| kueue::refer_to(OwnerObject(&found))))
    }

    /// The Workload to pause in place of deleting a pod; none if there is none, or if it has another pod that is exempt by
    /// priority.
    pub(super) async fn workload_of_pod(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
        table: &OwnerTable,
    ) -> Result<Option<OwnerReference>, Failure> {
        let lookup = kueue::of_pod(pod, table).filter(|_| pauses(task));
        let Some(lookup) = lookup else { return Ok(None) };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let Some(found) = self.workload(due, lookup, uid).await? else { return Ok(None) };
        let workload = kueue::refer_to(OwnerObject(&found));
        let exempt = self.cluster.with(|index| index.exempt_pods(&due.namespace, Uid::of(&workload.uid)));
        if kueue::is_owned_by_any(OwnerObject(&found), &exempt) {
            let (namespace, owner) = (&due.namespace, describe(&workload));
            warn!(%namespace, owner, "Not paused, for it has a pod that is exempt by priority");
            return Ok(None);
        }
        Ok(Some(workload))
    }

    /// Returns Kueue's Workload of the owner with this uid; none once enough tries to read Workloads have failed.
    async fn workload(&self, due: &DuePod, lookup: Lookup<'_>, uid: &str) -> Result<Option<Value>, Failure> {
        let found = match self.objects.workloads(&due.namespace, lookup).await {
            Ok(found) => found,
            Err(source) if due.attempts < READING_TRIES => {
                return Err(Failure::Unreadable { owner: lookup.workload(), source });
            }
            Err(error) => {
                let namespace = &due.namespace;
                let error = with_causes(&error);
                warn!(%namespace, error, "Workloads of Kueue can't be read: goes on without");
                return Ok(None);
            }
        };
        let found: Vec<Value> = found.iter().map(json).collect();
        Ok(kueue::chosen(&found, uid).cloned())
    }
}

const fn pauses(task: Task) -> bool {
    matches!(task, Task::Expire | Task::Evict)
}
