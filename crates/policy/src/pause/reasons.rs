//! The reasons of pauses, in the words of records. Records on objects have them: a changed word
//! isn't recognized there.

/// The pause of a workload that has exceeded its ceiling.
pub const MAX_DURATION_EXCEEDED: &str = "MaxDurationExceeded";

/// The pause of a workload whose pods weren't ready in time. It comes back by itself.
pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";

/// The pause of a workload that wasn't ready in time and has no return left. It stays paused until
/// a user activates it.
pub const WORKLOAD_INACTIVE: &str = "WorkloadInactive";

/// The pause of a workload that a user has deactivated.
pub const DEACTIVATED: &str = "Deactivated";
