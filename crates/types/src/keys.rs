//! The keys of the labels and annotations that Tenure reads or writes, grouped by the project that
//! defines them. Each comment names the object that has the key, and the form of the value.

/// Pod label of the tensorstack family: the queue in the T9k system namespace.
pub const TENSORSTACK_QUEUE_LABEL: &str = "scheduler.tensorstack.dev/queue";

/// Pod label of the run.ai family: the leaf queue.
pub const RUNAI_QUEUE_LABEL: &str = "kai.scheduler/queue";

/// The pod labels that name a queue.
pub const QUEUE_LABELS: [&str; 2] = [RUNAI_QUEUE_LABEL, TENSORSTACK_QUEUE_LABEL];

/// Pod label of the tensorstack family: the `PodGroup`, in the pod's namespace, that names the
/// queue.
pub const TENSORSTACK_GROUP_LABEL: &str = "scheduler.tensorstack.dev/group-name";

/// Pod annotation of the run.ai family: the `PodGroup`, in the pod's namespace, that names the
/// queue.
pub const RUNAI_GROUP_ANNOTATION: &str = "pod-group-name";

/// The queue of a tensorstack `PodGroup` that names none.
pub const TENSORSTACK_DEFAULT_QUEUE: &str = "default";

/// Pod label of the run.ai family: the subgroup of its `PodGroup`.
pub const RUNAI_SUBGROUP_LABEL: &str = "kai.scheduler/subgroup-name";

/// Annotation of a `PodGroup`: when it started (RFC 3339, UTC).
pub const LAST_START_ANNOTATION: &str = "kai.scheduler/last-start-timestamp";

/// Node label with the name of the node's pool, where no other is configured.
pub const NODE_POOL_LABEL: &str = "kai.scheduler/node-pool";

/// Annotation on a root owner, a `PodGroup` or a pod: a ceiling of the workload's own, as people
/// write durations (`2h30m`), in the grammar of its `maxDuration`. It can shorten the queue's and
/// never lengthen it.
pub const MAX_DURATION_ANNOTATION: &str = "tenure.dev/max-duration";

/// Annotation on a bound pod that only Tenure may change; its value is
/// [`crate::evidence::Evidence`].
pub const EVIDENCE_ANNOTATION: &str = "tenure.dev/evidence";

/// Annotation with the time at which the run of a workload will end (RFC 3339, UTC); on its root
/// owner, or on the pod itself if it has none. With `noticeOnPods`, on the pods of the owner, too.
pub const EXPIRES_AT_ANNOTATION: &str = "tenure.dev/expires-at";

/// Annotation beside [`EXPIRES_AT_ANNOTATION`]: the time of the last notice, which covers all
/// points before it.
pub const NOTICE_GIVEN_AT_ANNOTATION: &str = "tenure.dev/notice-given-at";

/// Pod annotation of Karpenter: with the value `true`, it disrupts neither the pod nor its node.
pub const KARPENTER_ANNOTATION: &str = "karpenter.sh/do-not-disrupt";

/// Pod annotation of Cluster Autoscaler: with the value `false`, it doesn't scale down the pod's
/// node.
pub const SAFE_TO_EVICT_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Pod annotation beside [`KARPENTER_ANNOTATION`] and [`SAFE_TO_EVICT_ANNOTATION`]: the keys of
/// those that Tenure has written and will remove, separated by commas.
pub const FLOOR_MARKS_ANNOTATION: &str = "tenure.dev/floor-marks";

/// Pod annotation that the kubelet sets on mirrors of its static pods. Deleting such a pod stops
/// nothing.
pub const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Pod annotation for emergencies: with the value `true`, the guard never holds up the deletion or
/// eviction of the pod.
pub const UNGUARDED_ANNOTATION: &str = "tenure.dev/unguarded";

/// The name by which a pod asks in `spec.evictionResponders` that an Eviction of
/// `lifecycle.k8s.io` waits for its floor. Kubernetes makes it a label of the Eviction.
pub const EVICTION_RESPONDER: &str = "tenure.dev/floor";

/// Annotation on an event of a pause: the queue of the related pod, for whose sake the workload was
/// paused.
pub const EVENT_QUEUE_ANNOTATION: &str = "tenure.dev/queue";

/// Annotation on a root owner that Tenure has paused; its value is a
/// [`crate::paused::PausedRecord`].
pub const PAUSED_ANNOTATION: &str = "tenure.dev/paused";

/// Annotation beside [`PAUSED_ANNOTATION`]: the pause in a sentence for people, with the command
/// that reverts the pause. No program reads it.
pub const MESSAGE_ANNOTATION: &str = "tenure.dev/message";

/// Annotation on a root owner that runs although Tenure hasn't resumed it: the record of its last
/// pause, for the count of reversals.
pub const UNDONE_PAUSE_ANNOTATION: &str = "tenure.dev/undone-pause";

/// Annotation on a root owner whose fields Tenure has set back, and not yet handed back; its value
/// is a [`crate::paused::HandBack`].
pub const HAND_BACK_ANNOTATION: &str = "tenure.dev/hand-back";

/// Annotation on a root owner that Tenure will resume by itself; its value is a
/// [`crate::paused::RequeueState`].
pub const REQUEUE_STATE_ANNOTATION: &str = "tenure.dev/requeue-state";

/// Annotation on an object that Tenure acts on; its value is a [`crate::journal::Journal`].
pub const ACTS_ANNOTATION: &str = "tenure.dev/acts";

/// Annotation on a root owner: `"false"` while it is deactivated. A deactivated owner isn't resumed
/// automatically.
pub const ACTIVE_ANNOTATION: &str = "tenure.dev/active";

/// Label of a Kueue Workload: the uid of its job or pod.
pub const KUEUE_JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";

/// Label of an owner that Kueue runs, or of a pod template: the longest run, in seconds.
pub const KUEUE_MAX_EXEC_TIME_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";

/// Pod label: the group of plain pods that share one Kueue Workload. It is the name of that
/// Workload.
pub const KUEUE_POD_GROUP_LABEL: &str = "kueue.x-k8s.io/pod-group-name";

/// Pod label: `true` if Kueue manages the pod itself.
pub const KUEUE_MANAGED_LABEL: &str = "kueue.x-k8s.io/managed";

/// Pod label: the `LocalQueue` that admitted the pod, which Kueue writes into the pod templates of
/// workloads that it starts.
pub const KUEUE_LOCAL_QUEUE_LABEL: &str = "kueue.x-k8s.io/local-queue-name";

/// Pod label: the `LocalQueue` that the user asked for.
pub const KUEUE_QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

/// Pod label: the `ClusterQueue` that admitted the pod, which Kueue writes beside
/// [`KUEUE_LOCAL_QUEUE_LABEL`].
pub const KUEUE_CLUSTER_QUEUE_LABEL: &str = "kueue.x-k8s.io/cluster-queue-name";

/// The pod labels by which a queue of Kueue's stands for one of Tenure's, where it is configured
/// to.
pub const KUEUE_QUEUE_LABELS: [&str; 3] =
    [KUEUE_LOCAL_QUEUE_LABEL, KUEUE_QUEUE_LABEL, KUEUE_CLUSTER_QUEUE_LABEL];

/// Prefix of the annotations on a `PriorityClass` that say which preemptions its pods tolerate as
/// victims.
pub const PREEMPTION_TOLERATION_PREFIX: &str = "preemption-toleration.scheduling.x-k8s.io/";

/// Annotation on a `PriorityClass`: preemptors of this priority (32 bits) or a higher one may
/// preempt its pods, regardless of the toleration. Unset: the value of the class plus one, which
/// every preemptor reaches.
pub const MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION: &str =
    "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority";

/// Annotation on a `PriorityClass`: the number of seconds (64 bits) after its scheduling during
/// which a pod tolerates preemption by lower priorities. Unset: 0; negative: without end.
pub const TOLERATION_SECONDS_ANNOTATION: &str =
    "preemption-toleration.scheduling.x-k8s.io/toleration-seconds";

/// Pod label of the coscheduling plugin: the `PodGroup` of `scheduling.x-k8s.io`, in the pod's
/// namespace.
pub const COSCHEDULING_GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";

/// Pod annotation of Volcano: the `PodGroup` of `scheduling.volcano.sh`, in the pod's namespace.
pub const VOLCANO_GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";

/// Pod annotation of Volcano: the task of its `PodGroup` that the pod belongs to.
pub const VOLCANO_TASK_ANNOTATION: &str = "volcano.sh/task-spec";

/// Pod label of the tensorstack family: the role within its `PodGroup`.
pub const TENSORSTACK_ROLE_LABEL: &str = "scheduler.tensorstack.dev/role";

/// Annotation on a Queue v2: `waitForPodsReady`, as JSON. For the others see
/// [`crate::runai::SPEC_ANNOTATIONS`].
pub const QUEUE_WAIT_FOR_PODS_READY_ANNOTATION: &str = "tenure.dev/wait-for-pods-ready";

/// Annotation on a Queue v2: the fields of the status that only v3alpha1 has, as JSON.
pub const QUEUE_STATUS_ANNOTATION: &str = "tenure.dev/status";

/// Annotation on a Queue v3alpha1: the parts of a v2 object that have no place in v3alpha1, as
/// JSON.
pub const QUEUE_FROM_V2_ANNOTATION: &str = "tenure.dev/v2";

/// Annotation on a Queue v2: the parts of a v3alpha1 object that have no place in v2, as JSON.
pub const QUEUE_FROM_V3ALPHA1_ANNOTATION: &str = "tenure.dev/v3alpha1";
