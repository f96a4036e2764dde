//! `scheduling.run.ai/v2`: the Queue of KAI-Scheduler, as far as Tenure reads it.

use serde::{Deserialize, Serialize};

use crate::duration::{GoDuration, Written};

/// What decisions need of the spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// Name of the parent queue. Unset or empty: this queue is at the top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_queue: Option<String>,
    /// Floor against preemptors of the same leaf queue; a Go duration such as 90m or 1h30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_min_runtime: Option<Written<GoDuration>>,
    /// Floor against preemptors of other leaf queues; a Go duration such as 90m or 1h30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_min_runtime: Option<Written<GoDuration>>,
}
