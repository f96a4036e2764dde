//! The kind of Kueue's Workloads, the field that pauses them, and the fields by which one is chosen.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Serialize};

use crate::naming::group_of;

/// The API group of Workloads, `LocalQueues` and `ClusterQueues`.
pub const GROUP: &str = "kueue.x-k8s.io";

/// The kind of the objects by which Kueue runs jobs and pods.
pub const WORKLOAD: &str = "Workload";

/// The path of the field that pauses a Workload: false stops its job.
pub const ACTIVE: &str = "spec.active";

/// The API version in which Workloads are requested first.
pub const VERSION: &str = "kueue.x-k8s.io/v1beta2";

/// True for a reference to a Workload of Kueue, in any version.
pub fn is_workload(owner: &OwnerReference) -> bool {
    owner.kind == WORKLOAD && group_of(&owner.api_version) == GROUP
}

/// The fields of a Workload that [`chosen`](super::chosen) reads. A Workload that is too large to be
/// read whole still has them: users fill its labels and its pod templates, but not its conditions.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadParts {
    api_version: String,
    metadata: WorkloadMetadata,
    spec: WorkloadSpec,
    status: WorkloadStatus,
}

impl WorkloadParts {
    /// Keeps the reference to the owner of this uid, and Tenure's annotations: users may write
    /// thousands of others.
    #[must_use]
    pub fn of_owner(mut self, uid: &str) -> Self {
        let WorkloadMetadata { annotations, owner_references, .. } = &mut self.metadata;
        if let Some(owners) = owner_references {
            owners.retain(|owner| owner.uid == uid);
            owners.truncate(1);
        }
        if let Some(annotations) = annotations {
            annotations.retain(|key, _| key.starts_with("tenure.dev/"));
        }
        self
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadMetadata {
    name: String,
    uid: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct WorkloadSpec {
    active: Option<bool>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct WorkloadStatus {
    conditions: Option<Vec<WorkloadCondition>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct WorkloadCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}
