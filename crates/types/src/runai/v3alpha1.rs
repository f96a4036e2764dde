//! `scheduling.run.ai/v3alpha1`: KAI's Queue v2 with floors, a ceiling and the rules for paused
//! workloads.
//!
//! The doc comments on types and fields are the descriptions in the CRD, which `crdgen` writes.

mod status;

use kube::{
    CustomResource, KubeSchema,
    core::{Message, Rule},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use status::{QueueCondition, QueueRuns, QueueStatus, QueueWorkloads};

use crate::duration::{ExtendedDuration, Points, Written};

/// Returns the rule, in CEL over a spec, that the named floor is not longer than the ceiling. A
/// text that isn't a duration is left to the field's own rule, and a difference too small for
/// floating point to the webhook, which compares exactly.
fn floor_rule(floor: &str) -> Rule {
    let (pattern, seconds) = (extended_pattern!(), extended_seconds!("d"));
    Rule::new(format!(
        "!has(self.maxDuration) || !has(self.{floor}) || \
         ![self.maxDuration, self.{floor}].all(d, d.matches('{pattern}')) || \
         [[self.{floor}, self.maxDuration].map(d, {seconds})]\
         .all(seconds, seconds[0] <= seconds[1] * 1.000000000001)"
    ))
    .message(Message::Expression(format!(
        "'\"' + self.{floor} + '\": must not be longer than the queue\\'s own maxDuration, ' + self.maxDuration"
    )))
    .field_path(format!(".{floor}"))
}

/// The desired state of a queue.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v3alpha1",
    kind = "Queue",
    status = "QueueStatus",
    derive = "PartialEq",
    doc = "A Queue is a node in a tree of queues. Workloads name a leaf (pod label kai.scheduler/queue); floors, ceilings and quotas are inherited along the path to the root.",
    shortname = "rq",
    category = "tenure",
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parentQueue"),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "Preempt-Min", type_ = "string", json_path = ".spec.preemptMinRuntime"),
    printcolumn(name = "Reclaim-Min", type_ = "string", json_path = ".spec.reclaimMinRuntime"),
    printcolumn(name = "Max-Duration", type_ = "string", json_path = ".spec.maxDuration"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.workloads.running"),
    printcolumn(name = "Paused", type_ = "integer", json_path = ".status.workloads.paused"),
    printcolumn(name = "Requeueing", type_ = "integer", json_path = ".status.workloads.requeueing"),
    printcolumn(name = "Next-Expiry", type_ = "string", json_path = ".status.nextExpiry", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(self.spec) || !has(self.spec.parentQueue) || self.spec.parentQueue != self.metadata.name")
        .message(Message::Expression("'\"' + self.spec.parentQueue + '\": a queue can\\'t be its own parent'".into()))
        .field_path(".spec.parentQueue")
)]
#[x_kube(
    validation = floor_rule("preemptMinRuntime"),
    validation = floor_rule("reclaimMinRuntime"),
    validation = ("!(has(self.expiryNotice) && has(self.expiryNotices))", "expiryNotices can't be set beside expiryNotice: leave one of them out")
)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// Name for people, in logs and metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Name of the parent queue. Unset or empty: this queue is at the top. A queue can't be its own ancestor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = (
        "self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$')",
        "must be the name of a queue: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
    ))]
    pub parent_queue: Option<String>,
    /// Order among sibling queues: the higher is served first. Unset means 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // format int32 would repeat the range in its own way
    #[schemars(with = "Option<i64>", range(min = -2_147_483_648i64, max = 2_147_483_647i64))]
    pub priority: Option<i32>,
    /// Floor: for how long after its start a workload of this queue can't be preempted by another workload of
    /// the same leaf queue. The nearest value on the way to the root counts; 0s is a value (no protection),
    /// unset is inheritance. A duration such as 90m, 1h30m or 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_min_runtime: Option<Written<ExtendedDuration>>,
    /// Floor: for how long after its start a workload of this queue can't be reclaimed by a workload of
    /// another queue. By default the value counts that is nearest to where the two queues part. 0s is a value
    /// (no protection), unset is inheritance. A duration such as 90m, 1h30m or 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_min_runtime: Option<Written<ExtendedDuration>>,
    /// Ceiling: the longest run of a workload of this queue, counted from its start; pending time doesn't
    /// count. The least value on the path to the root counts: a child can shorten, never lengthen. When a
    /// workload has run longer, its topmost owner is paused (a Deployment is scaled to 0, a Job is suspended),
    /// or the pod is deleted if it has none. A duration such as 90m, 1h30m or 7d. Unset: no limit of its own.
    /// Zero is refused. A change applies to running workloads at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("!self.matches('^[0.nuµμmshdw]+$')", "must be greater than zero; leave it out for no limit of its own"))]
    pub max_duration: Option<Written<ExtendedDuration>>,
    /// The time before the end of its run at which a workload gets a notice: an event `MaxDurationApproaching` and
    /// annotation tenure.dev/expires-at on its topmost owner, so that it can save its work. A duration such as 10m, or up
    /// to 8 of them, each with an event of its own, such as 1h,10m. Unset: the nearest value on the path to the root,
    /// else as the keeper is configured. 0s: no notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry_notice: Option<Written<Points<ExtendedDuration>>>,
    /// The same as a list: up to 8 durations, such as [1h, 10m]. It can't be set beside expiryNotice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub expiry_notices: Option<Vec<Written<ExtendedDuration>>>,
    /// The action when the ceiling is exceeded. Unset: the nearest value on the path to the root, else Pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_action: Option<MaxDurationAction>,
    /// The time for which a workload stays paused between two time slices, with maxDurationAction Requeue. A duration
    /// such as 10m. Unset: the nearest value on the path to the root, else 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_delay: Option<Written<ExtendedDuration>>,
    /// The action for a workload whose pauses another controller undoes. Unset: the nearest value on the path to the
    /// root, else Pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_reversal: Option<OnReversal>,
    /// The answer to the creation of a workload that asks for a longer run than the ceiling, where Tenure answers that.
    /// Unset: the nearest value on the path to the root, else Warn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_ceiling: Option<OverCeiling>,
    /// The rules for workloads whose pods were scheduled, but don't get ready. The nearest block on the path to the
    /// root counts, as a whole: fields that it leaves out have their defaults. Unset: as an ancestor says, else as
    /// Tenure is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// The extensions that workloads of this queue may get: more time than the ceiling, asked for by an Extension of
    /// tenure.dev. Each queue on the path to the root with a maxDuration or this block counts, and the least of each value
    /// applies: one that has a maxDuration and leaves this out allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<QueueExtensions>,
    /// The resources that the queue may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<QueueResources>,
}

/// The action when the ceiling is exceeded. Pause: the workload stays paused until a user resumes it. Requeue: it is
/// resumed after requeueDelay, which makes the ceiling a time slice; a slice is never shorter than the floors of the
/// queue that sets maxDuration, and never longer than the ceiling of its parent queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MaxDurationAction {
    /// The workload stays paused.
    #[default]
    Pause,
    /// The workload is resumed after a delay.
    Requeue,
}

/// The action for a workload whose pauses another controller undoes. It applies after three pauses that were each
/// undone and followed by a run of a full ceiling. Pause: the workload is paused again. `DeletePods`: it isn't paused
/// any more, and each of its pods that exceeds the ceiling is deleted. Unset: the nearest value on the path to the
/// root, else Pause. The keeper's configuration for the kind of the workload takes precedence. Without effect where
/// maxDurationAction is Requeue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OnReversal {
    /// The workload is paused again.
    #[default]
    Pause,
    /// The pods that exceed the ceiling are deleted.
    DeletePods,
}

/// The answer to the creation of a workload that asks for a longer run than the ceiling, by `activeDeadlineSeconds` or
/// annotation tenure.dev/max-duration. It holds where Tenure answers the creation of workloads, which is on by default.
/// Warn: it is created, and the user gets a warning. Refuse: it isn't created. Unset: the nearest value on the path to the
/// root, else Warn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OverCeiling {
    /// The user gets a warning.
    #[default]
    Warn,
    /// The workload isn't created.
    Refuse,
}

/// The extensions that the runs of a queue's workloads may get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueExtensions {
    /// The longest total of a run's extensions that is granted without approval. A duration such as 2h. Unset: 0s, so
    /// that a person approves each. At most maxTotal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_approve: Option<Written<ExtendedDuration>>,
    /// The longest total of a run's extensions. A duration such as 8h. Unset: 0s, so that none is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total: Option<Written<ExtendedDuration>>,
    /// The greatest number of extensions of a run. Unset: 100, unless another queue on the path sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_count: Option<i32>,
}

/// The rules for workloads that can't start: when they make room, and how they come back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitForPodsReady {
    /// False: workloads of this queue, and of those below it that have no block of their own, are never paused for their
    /// pods. Unset means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// The longest time, counted from the moment that countFrom names, until a workload has enough ready pods: the
    /// minimum of its pod group, or the one pod that is in none. When it takes longer, its topmost owner is paused, and
    /// comes back later; a pod that has none is deleted. A duration such as 10m. Unset means 5m. Zero is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("!self.matches('^[0.nuµμmshdw]+$')", "must be greater than zero"))]
    pub timeout: Option<Written<ExtendedDuration>>,
    /// The moment from which timeout counts. Unset means Scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_from: Option<CountFrom>,
    /// The longest time for which a workload that was ready may have too few ready pods. When it takes longer, it is
    /// paused or deleted as after timeout. A duration such as 10m. Unset: no limit. Zero is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("!self.matches('^[0.nuµμmshdw]+$')", "must be greater than zero"))]
    pub recovery_timeout: Option<Written<ExtendedDuration>>,
    /// The delays and the order in which such workloads come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeuing_strategy: Option<RequeuingStrategy>,
    /// Exists for compatibility with Kueue: only false is allowed. Tenure admits no workloads, so it can't hold up
    /// others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "!self",
        "must be false or left out: Tenure admits no workloads, so none can wait until another is ready"
    ))]
    pub block_admission: Option<bool>,
}

/// The moment from which the timeout of a workload counts: Scheduled (default) or Creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum CountFrom {
    /// The moment at which the first of its pods was scheduled. A workload without scheduled pods may wait without
    /// limit.
    #[default]
    Scheduled,
    /// The moment at which the first of its pods was created, so that a workload is paused, too, that no scheduler
    /// finds room for.
    Creation,
}

/// The delays and the order in which paused workloads come back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = Rule::new(
    "!has(self.backoffBaseSeconds) || !has(self.backoffMaxSeconds) || self.backoffBaseSeconds <= self.backoffMaxSeconds"
)
.message("must not be more than backoffMaxSeconds")
.field_path(".backoffBaseSeconds"))]
#[serde(rename_all = "camelCase")]
pub struct RequeuingStrategy {
    /// The time by which workloads of one priority are ordered that come back at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<RequeuingTimestamp>,
    /// The number of times that a workload comes back before it is deactivated: it then stays paused until a user sets
    /// annotation tenure.dev/active on it to something other than "false". Unset: it always comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub backoff_limit_count: Option<i32>,
    /// The first delay, in seconds. Unset means 1. At most backoffMaxSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub backoff_base_seconds: Option<i32>,
    /// The factor from one delay to the next, a decimal number of at least 1. Unset means "1.41284738".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = (
        "self.matches('^[0-9]+([.][0-9]+)?$') && double(self) >= 1.0",
        "must be a decimal number of at least 1, such as \"1.5\""
    ))]
    pub backoff_factor: Option<String>,
    /// The longest delay, in seconds. Unset: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub backoff_max_seconds: Option<i32>,
    /// True: when a workload of the queue has ended, or was paused or deleted, the next waiting workload comes back
    /// before its time, but no earlier than backoffBaseSeconds after its pause. Unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_capacity: Option<bool>,
    /// Proposed for Kueue, and always refused: backoffLimitCount is the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "false",
        "must be left out: set backoffLimitCount; kubectl tenure requeue-schedule shows how long that many returns take"
    ))]
    pub backoff_limit_timeout: Option<i32>,
}

/// The time by which requeued workloads of one priority are ordered: Eviction (default) or Creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RequeuingTimestamp {
    /// The time at which the workload was paused.
    #[default]
    Eviction,
    /// The time at which the workload was created.
    Creation,
}

/// The resources that a queue may use, as in KAI's Queue v2.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct QueueResources {
    /// Processors, in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<QueueResource>,
    /// GPUs; fractions are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<QueueResource>,
    /// Memory, in megabytes (1,000,000 bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<QueueResource>,
}

/// The share of one resource that a queue may use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueResource {
    /// The amount that the queue is entitled to. -1 means without limit, unset means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1.0))]
    pub quota: Option<f64>,
    /// The queue's weight in sharing what is left over. Unset means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub over_quota_weight: Option<f64>,
    /// The most that the queue may use. -1 means without limit, unset means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1.0))]
    pub limit: Option<f64>,
}
