//! The kind of Kueue's Workloads, and the field that pauses them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

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
