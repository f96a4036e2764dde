//! The kind of Kueue's Workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::naming::group_of;

/// The API group of Workloads, `LocalQueues` and `ClusterQueues`.
pub const GROUP: &str = "kueue.x-k8s.io";

/// The kind that is paused.
pub const WORKLOAD: &str = "Workload";

/// The field that pauses it.
pub const ACTIVE: &str = "spec.active";

/// The version that Workloads are asked for in first.
pub const VERSION: &str = "kueue.x-k8s.io/v1beta2";

/// True for the kind of Kueue's Workloads, in any version.
pub fn is_workload(owner: &OwnerReference) -> bool {
    owner.kind == WORKLOAD && group_of(&owner.api_version) == GROUP
}
