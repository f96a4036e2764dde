//! Labels and annotations, by who defines them.

/// Pod label of the tensorstack family: the queue in the T9k system namespace.
pub const TENSORSTACK_QUEUE_LABEL: &str = "scheduler.tensorstack.dev/queue";

/// Pod label of the run.ai family: the leaf queue.
pub const RUNAI_QUEUE_LABEL: &str = "kai.scheduler/queue";

/// Pod annotation that the kubelet sets on mirrors of its static pods. Deleting such a pod stops nothing.
pub const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Annotation on a root owner that Tenure has paused; its value is a [`crate::paused::PausedRecord`].
pub const PAUSED_ANNOTATION: &str = "tenure.dev/paused";
