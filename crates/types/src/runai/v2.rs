//! `scheduling.run.ai/v2`: the Queue of KAI-Scheduler.
//!
//! Its schema is KAI's, so that queues written for KAI work with Tenure unchanged: no field is
//! required, and durations are any text. The fields that only v3alpha1 has are annotations here:
//! see [`super::SPEC_ANNOTATIONS`]. The doc comments on types and fields are the descriptions in
//! the CRD.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, transform::transform_subschemas};
use serde::{Deserialize, Serialize};

use super::v3alpha1::{QueueCondition, QueueResources};
use crate::duration::{GoDuration, Written};

/// The desired state of a queue.
#[expect(clippy::duplicated_attributes, reason = "the columns are alike in their types")]
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2",
    kind = "Queue",
    status = "QueueStatus",
    derive = "PartialEq",
    doc = "A Queue is a node in a tree of queues. This is KAI-Scheduler's version of it: ceilings and the other fields that only v3alpha1 has are annotations here, such as tenure.dev/max-duration. Where v3alpha1 is served, see all fields with: kubectl get queues.v3alpha1.scheduling.run.ai, and kubectl explain queue --api-version=scheduling.run.ai/v3alpha1.",
    printcolumn(
        name = "Max-Duration (all fields: queues.v3alpha1.scheduling.run.ai)",
        type_ = "string",
        json_path = r".metadata.annotations.tenure\.dev/max-duration"
    ),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parentQueue"),
    printcolumn(name = "Children", type_ = "string", json_path = ".status.childQueues"),
    printcolumn(name = "DisplayName", type_ = "string", json_path = ".spec.displayName")
)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// Name for people, in logs and metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Name of the parent queue. Unset or empty: this queue is at the top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_queue: Option<String>,
    /// Order among sibling queues: the higher is served first. Unset means 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = without_bounds)]
    pub priority: Option<i64>,
    /// Floor: for how long after its start a workload of this queue can't be preempted by another workload of
    /// the same leaf queue. A duration such as 90m or 1h30m: days and weeks are v3alpha1's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_min_runtime: Option<Written<GoDuration>>,
    /// Floor: for how long after its start a workload of this queue can't be reclaimed by a workload of another
    /// queue. A duration such as 90m or 1h30m: days and weeks are v3alpha1's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_min_runtime: Option<Written<GoDuration>>,
    /// The resources that the queue may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = without_bounds)]
    pub resources: Option<QueueResources>,
}

/// The observed state of a queue, as schedulers report it.
// only for the schema: a status is read and written as JSON
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Conditions, such as `Orphan` and `OverQuota`, and Tenure's `Ready`: True if the queue's place in the tree is sound.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<QueueCondition>>,
    /// Names of the child queues.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub child_queues: Option<Vec<String>>,
    /// Amounts allocated to workloads of the queue, by resource name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::map")]
    pub allocated: Option<BTreeMap<String, Quantity>>,
    /// Amounts allocated to workloads that can't be preempted, by resource name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::map")]
    pub allocated_non_preemptible: Option<BTreeMap<String, Quantity>>,
    /// Amounts that workloads of the queue request, by resource name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::map")]
    pub requested: Option<BTreeMap<String, Quantity>>,
}

/// Leaves numbers as KAI has them: without bounds or a format, which would claim more.
fn without_bounds(schema: &mut Schema) {
    schema.remove("minimum");
    schema.remove("format");
    transform_subschemas(&mut without_bounds, schema);
}
