//! `scheduler.tensorstack.dev/v1beta1`: the Queue of T9k.
//!
//! The doc comments on types and fields are the descriptions in the CRD, which `crdgen` writes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{LabelSelector, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::{Points, TensorstackDuration, Written};

/// The desired state of a T9k queue.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "scheduler.tensorstack.dev",
    version = "v1beta1",
    kind = "Queue",
    namespaced,
    status = "QueueStatus",
    derive = "PartialEq",
    doc = "A Queue of the T9k scheduler. It counts only in the T9k system namespace; pods name it by label scheduler.tensorstack.dev/queue.",
    shortname = "q",
    category = "tenure",
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "Closed", type_ = "boolean", json_path = ".spec.closed"),
    printcolumn(name = "Max-Duration", type_ = "string", json_path = ".spec.maxDuration"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// The longest that a pod of this queue may exist, counted from its creation: time spent pending counts.
    /// When a pod is older, its topmost owner is paused (a Deployment is scaled to 0, a Job is suspended), or
    /// the pod is deleted if it has none. Whole numbers with units y (365 days), w, d, h, m, s and ms, in this
    /// order: 30s, 1h20m15s, 15d. Empty or unset: no limit. Zero is refused. A change applies to running pods
    /// at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("!self.matches('^[0ywdhms]+$')", "must be greater than zero; leave it out for no limit"))]
    pub max_duration: Option<Written<TensorstackDuration>>,
    /// The time before a pod is too old at which its topmost owner gets a notice: an event `MaxDurationApproaching` and
    /// annotation tenure.dev/expires-at, so that it can save its work. A duration as for maxDuration, such as 10m, or up
    /// to 8 of them, each with an event of its own, such as 1h,10m. Empty or unset: as the keeper is configured. 0s: no
    /// notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry_notice: Option<Written<Points<TensorstackDuration>>>,
    /// The priority, from 0 to 100. Queues of higher priority get resources first and may preempt lower ones. Unset
    /// means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub priority: Option<i32>,
    /// True if other queues may preempt workloads of this one. Unset means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// A closed queue takes no new workloads. Unset means open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<bool>,
    /// The amounts that the pods of this queue may request together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// Name of a profile of resource shapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_shape_profile: Option<String>,
    /// The nodes that the queue may use. Unset means every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// The namespaces that may use the queue. Unset or empty means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// A quota.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Quota {
    /// Quantities by resource name, such as cpu, memory or nvidia.com/gpu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::map")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// The observed state of a queue, as the T9k scheduler reports it.
// only for the schema: nothing here reads or writes it
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Amounts allocated to the queue's pods, by resource name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::map")]
    pub allocated: Option<BTreeMap<String, Quantity>>,
    /// Conditions, such as `QueueClosed` and `ResourcePressure`.
    pub conditions: Option<Vec<QueueCondition>>,
    /// `PodGroups` of the queue.
    pub pod_groups: Option<PodGroupCounts>,
    /// Pods of the queue, by phase.
    pub pods: Option<PodCounts>,
}

/// A condition of a queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// The type of the condition, such as `QueueClosed` or `ResourcePressure`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The status: True, False or Unknown.
    pub status: String,
    /// The time at which the status last changed.
    pub last_transition_time: Option<Time>,
    /// The reason, in one CamelCase word.
    pub reason: Option<String>,
    /// The reason, for people.
    pub message: Option<String>,
}

/// Numbers of `PodGroups`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct PodGroupCounts {
    /// The number of all `PodGroups`.
    pub total: Option<i32>,
}

/// Numbers of pods by phase.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct PodCounts {
    /// Pods in phase Pending.
    pub pending: Option<i32>,
    /// Pods in phase Running.
    pub running: Option<i32>,
    /// Pods in phase Succeeded.
    pub succeeded: Option<i32>,
    /// Pods in phase Failed.
    pub failed: Option<i32>,
    /// Pods in phase Unknown.
    pub unknown: Option<i32>,
}
