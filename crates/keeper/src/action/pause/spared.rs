//! Owners that are not paused after all, as they were just read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;
use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_policy::{owners::OwnerTable, pause::OwnerObject};
use tenure_types::projection::Pod;

use super::{
    super::{Done, Failure, Pauser},
    Attempt,
};

impl Pauser {
    /// Returns the result in place of the pause of an owner that was just read: it is paused or has ended, or the pod or its
    /// run isn't what it was.
    pub(super) async fn spared(
        &self,
        (task, pod): (Task, &Pod),
        due: &DuePod,
        (owner, metadata, object): (&OwnerReference, &ObjectMeta, &Value),
        table: &OwnerTable,
    ) -> Result<Option<Attempt>, Failure> {
        let nothing = |why, served| Some(Attempt::Done(Done::nothing(why, served)));
        if metadata.uid.as_deref() != Some(&owner.uid) || metadata.deletion_timestamp.is_some() {
            return Ok(nothing("its owner is going or gone", BatchCoverage::All));
        }
        if table.rules(owner).any(|rule| OwnerObject(object).is_paused(rule)) {
            return Ok(Some(Attempt::Paused));
        }
        if OwnerObject(object).is_finished() {
            return Ok(Some(Attempt::Finished));
        }
        // since the pod was read, a user may have paused and resumed its owner: only a pod that is there after its owner
        // was read belongs to the run that this version of the owner has
        if self.still_there(due).await?.is_none() {
            return Ok(nothing("the pod is gone or exempt", BatchCoverage::Gone));
        }
        // a sibling may have been the reason for a pause since this pod was handed out
        if task == Task::Evict && self.cluster.with(|index| index.outlives(due.uid)) {
            let why = "its owner was resumed, and the pod belongs to the run that was evicted";
            return Ok(nothing(why, BatchCoverage::All));
        }
        Ok(self.outdated_by(task, pod, metadata).map(Attempt::Done))
    }
}
