//! The reasons of pauses and of their events.

/// Reason of the event and of the record when a ceiling was exceeded.
pub const MAX_DURATION_EXCEEDED: &str = "MaxDurationExceeded";

/// Reason of the record when pods weren't ready in time.
pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";

/// Reason of the record when a workload stays paused until it is activated.
pub const WORKLOAD_INACTIVE: &str = "WorkloadInactive";

/// Reason of the record when a person has deactivated a workload.
pub const DEACTIVATED: &str = "Deactivated";

/// Reason of the event when pods weren't ready in time.
pub const EVICTED_DUE_TO_PODS_READY_TIMEOUT: &str = "EvictedDueToPodsReadyTimeout";

/// Reason of the event when a workload has come back too often.
pub const DEACTIVATED_DUE_TO_LIMIT: &str = "DeactivatedDueToRequeuingLimitExceeded";

/// Reason of the event when a workload comes back by itself.
pub const REQUEUED: &str = "Requeued";

/// Reason of the event when a workload comes back because it was activated.
pub const REACTIVATED: &str = "Reactivated";

/// Reason of the event when a workload should come back, and the API server refuses the write.
pub const RETURN_REFUSED: &str = "ReturnRefused";

/// Reason of the event that announces the end of a run.
pub const MAX_DURATION_APPROACHING: &str = "MaxDurationApproaching";

/// Reason of the event that explains in plain words the end of a run, the action on the workload, and the remedies.
pub const RUN_ENDED: &str = "RunEnded";

/// Reason of the event on an object whose own ceiling is no duration.
pub const INVALID_MAX_DURATION: &str = "InvalidMaxDuration";

/// Reason of the event on an object whose own ceiling is longer than that of its queue.
pub const MAX_DURATION_IGNORED: &str = "MaxDurationIgnored";

/// Reason of the event on a `CronJob` that starts no `Job` because one is paused.
pub const CRON_JOB_HELD_UP: &str = "HeldUpByPausedJob";

/// Reason of the event when pauses don't last.
pub const PAUSE_REVERSED: &str = "PauseReversed";
