//! The status of a queue, only for the schema: a status is read and written as JSON.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runai::v2;

/// The observed state of a queue, as schedulers and Tenure report it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The fields that v2 has, too.
    #[serde(flatten)]
    pub of_schedulers: v2::QueueStatus,
    /// The number of workloads that name this queue, by state. A workload is the topmost owner that can be paused, with all
    /// its pods; of pods that have none, it is their pod group, or the pod by itself.
    pub workloads: Option<QueueWorkloads>,
    /// The time at which the first of the running workloads reaches its ceiling.
    pub next_expiry: Option<Time>,
}

/// Numbers of workloads, by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueWorkloads {
    /// Workloads with a pod that is scheduled and hasn't ended.
    pub running: Option<i64>,
    /// Running workloads that are within a floor.
    pub protected: Option<i64>,
    /// Workloads that Tenure has paused, and that stay paused until a user resumes them.
    pub paused: Option<i64>,
    /// Workloads that Tenure has paused and will resume by itself. They aren't counted in paused.
    pub requeueing: Option<i64>,
    /// The number of running ones that had started before some times: at most 10 of them, the earliest first. Each number
    /// includes those before it.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub runs: Option<Vec<QueueRuns>>,
}

/// Running workloads that had started before a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueRuns {
    /// The time.
    pub started_before: Option<Time>,
    /// The number of workloads.
    pub workloads: Option<i64>,
}

/// A condition of a queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// The type of the condition, such as `Ready`, which Tenure writes, or `Orphan` and `OverQuota`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The status: True, False or Unknown.
    pub status: String,
    /// The generation of the queue that the condition is about.
    pub observed_generation: Option<i64>,
    /// The reason, in one CamelCase word.
    pub reason: Option<String>,
    /// The reason, for people.
    pub message: Option<String>,
    /// The time at which the condition was last probed.
    pub last_probe_time: Option<Time>,
    /// The time at which the status last changed.
    pub last_transition_time: Option<Time>,
}
