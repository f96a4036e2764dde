//! The reasons of pauses, as records have them.

/// A ceiling was exceeded.
pub const MAX_DURATION_EXCEEDED: &str = "MaxDurationExceeded";

/// Pods weren't ready in time.
pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";

/// The workload stays paused until it is activated.
pub const WORKLOAD_INACTIVE: &str = "WorkloadInactive";

/// A person has deactivated the workload.
pub const DEACTIVATED: &str = "Deactivated";
