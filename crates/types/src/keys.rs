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
