//! Labels and annotations, by who defines them.

/// Pod label of the tensorstack family: the queue in the T9k system namespace.
pub const TENSORSTACK_QUEUE_LABEL: &str = "scheduler.tensorstack.dev/queue";

/// Pod label of the run.ai family: the leaf queue.
pub const RUNAI_QUEUE_LABEL: &str = "kai.scheduler/queue";

/// Pod label of the tensorstack family: the `PodGroup`, in the pod's namespace, that names the queue.
pub const TENSORSTACK_GROUP_LABEL: &str = "scheduler.tensorstack.dev/group-name";

/// Pod annotation of the run.ai family: the `PodGroup`, in the pod's namespace, that names the queue.
pub const RUNAI_GROUP_ANNOTATION: &str = "pod-group-name";

/// The queue of a tensorstack `PodGroup` that names none.
pub const TENSORSTACK_DEFAULT_QUEUE: &str = "default";

/// Pod label of the run.ai family: the subgroup of its `PodGroup`.
pub const RUNAI_SUBGROUP_LABEL: &str = "kai.scheduler/subgroup-name";

/// Annotation of a `PodGroup`: when it started (RFC 3339, UTC).
pub const LAST_START_ANNOTATION: &str = "kai.scheduler/last-start-timestamp";

/// Node label with the name of the node's pool, where no other is configured.
pub const NODE_POOL_LABEL: &str = "kai.scheduler/node-pool";

/// Annotation on a root owner, a `PodGroup` or a pod: a ceiling of the workload's own, as people write durations
/// (`2h 30m`). It can shorten the queue's and never lengthen it.
pub const MAX_DURATION_ANNOTATION: &str = "tenure.dev/max-duration";

/// Annotation that tells a workload when its run will end (RFC 3339, UTC); on its root owner, or on the pod itself
/// if it has none.
pub const EXPIRES_AT_ANNOTATION: &str = "tenure.dev/expires-at";

/// Pod annotation that the kubelet sets on mirrors of its static pods. Deleting such a pod stops nothing.
pub const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Annotation on a root owner that Tenure has paused; its value is a [`crate::paused::PausedRecord`].
pub const PAUSED_ANNOTATION: &str = "tenure.dev/paused";

/// What the annotations of a `PriorityClass` begin with that say what its pods tolerate as victims of a preemption.
pub const PREEMPTION_TOLERATION_PREFIX: &str = "preemption-toleration.scheduling.x-k8s.io/";

/// Annotation on a `PriorityClass`: pods of this priority (32 bits) or a higher one may preempt its pods whatever
/// they tolerate. Unset: the value of the class plus one, which every preemptor reaches.
pub const MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION: &str =
    "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority";

/// Annotation on a `PriorityClass`: for how many seconds (64 bits) after it was scheduled a pod tolerates preemption
/// by lower priorities. Unset: 0; negative: for ever.
pub const TOLERATION_SECONDS_ANNOTATION: &str =
    "preemption-toleration.scheduling.x-k8s.io/toleration-seconds";
