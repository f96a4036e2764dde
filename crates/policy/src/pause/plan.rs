//! The plan of a pause: its reason, its beginning, and the condition that ends it.
//!
//! The judgement of a due pod plans pauses for ceilings and readiness. The plugin's `deactivate`
//! builds its own.

use jiff::{SignedDuration, Timestamp};
use tenure_types::{
    ExtendedDuration,
    paused::{ExceededCeiling, RequeueState},
};

use super::{
    reasons::{MAX_DURATION_EXCEEDED, PODS_READY_TIMEOUT, WORKLOAD_INACTIVE},
    reversal::Reversals,
};
use crate::requeue::Backoff;

/// The condition that ends a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeCondition {
    /// A user resumes the workload.
    Resumed,
    /// The workload comes back by itself, at the time in this state.
    Requeued(RequeueState),
    /// A user activates the workload.
    Activated,
}

/// The reason of a pause, its beginning, and the condition that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PausePlan {
    /// The reason, as the record has it.
    pub reason: &'static str,
    /// The beginning, in whole milliseconds, so that a record that is read back equals this one.
    pub at: Timestamp,
    /// The condition that ends the pause.
    pub until: ResumeCondition,
}

/// All facts of a pause that its record notes.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// The reason, the beginning and the end of the pause.
    pub plan: PausePlan,
    /// The ceiling that was exceeded. None: the pause has another reason.
    pub ceiling: Option<ExceededCeiling>,
    /// The reversals of earlier pauses.
    pub reversals: Reversals,
    /// True if the workload was due a notice, and got none.
    pub unannounced: bool,
}

impl Pause {
    /// Creates a pause that has another reason than a ceiling.
    pub const fn new(plan: PausePlan, reversals: Reversals) -> Self {
        Self { plan, ceiling: None, reversals, unannounced: false }
    }
}

/// A workload that is about to be paused.
#[derive(Clone, Copy, Debug)]
pub struct PauseCandidate {
    /// The time by the API server's clock.
    pub now: Timestamp,
    /// The number of returns, from the owner's annotation.
    pub state: RequeueState,
    /// The priority of its pods, which orders the returns of workloads. None: the pods have none.
    pub priority: Option<i32>,
}

impl PausePlan {
    /// Plans the pause of a workload whose ceiling was exceeded. The workload comes back after
    /// `slice_delay`, which doesn't count as a return. None: it stays paused until a user resumes
    /// it.
    pub fn expired(candidate: &PauseCandidate, slice_delay: Option<ExtendedDuration>) -> Self {
        let until = slice_delay.map_or(ResumeCondition::Resumed, |delay| {
            candidate.back(candidate.state.count, delay.to_signed())
        });
        Self { reason: MAX_DURATION_EXCEEDED, at: whole_millisecond(candidate.now), until }
    }

    /// Plans the pause of a workload that wasn't ready in time. The workload comes back after its
    /// backoff. If it has no return left, it is deactivated.
    ///
    /// `random` gives the number for the jitter, at least 0 and less than 1, from the number of the
    /// return.
    pub fn unready(candidate: &PauseCandidate, backoff: &Backoff, random: impl FnOnce(i32) -> f64) -> Self {
        let before = i32::try_from(candidate.state.count).unwrap_or(i32::MAX);
        let (reason, until) = match backoff.after_timeout(before) {
            Some(count) => {
                let wait = backoff.wait_with_jitter(count, random(count));
                (PODS_READY_TIMEOUT, candidate.back(count.try_into().unwrap_or_default(), wait))
            }
            None => (WORKLOAD_INACTIVE, ResumeCondition::Activated),
        };
        Self { reason, at: whole_millisecond(candidate.now), until }
    }
}

impl PauseCandidate {
    /// Returns the condition of a return after `wait`. A time beyond the last timestamp becomes the
    /// last timestamp.
    fn back(&self, count: u32, wait: SignedDuration) -> ResumeCondition {
        let requeue_at = Some(whole_millisecond(self.now).checked_add(wait).unwrap_or(Timestamp::MAX));
        ResumeCondition::Requeued(RequeueState { count, requeue_at, priority: self.priority })
    }
}

/// Cuts a time to milliseconds, as annotations and statuses have it: it is read back as it was
/// written.
pub fn whole_millisecond(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(count: u32) -> PauseCandidate {
        let now = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        PauseCandidate {
            now,
            state: RequeueState { count, requeue_at: None, priority: None },
            priority: Some(7),
        }
    }

    fn back(count: u32, at: &str) -> ResumeCondition {
        ResumeCondition::Requeued(RequeueState { count, requeue_at: at.parse().ok(), priority: Some(7) })
    }

    fn unready(count: u32, backoff: Backoff) -> PausePlan {
        PausePlan::unready(&candidate(count), &backoff, |_| 0.0)
    }

    #[test]
    fn a_ceiling_pauses_until_a_person_resumes_it_or_the_next_time_slice_begins() {
        let plan = PausePlan::expired(&candidate(3), None);
        assert_eq!((plan.reason, plan.until), ("MaxDurationExceeded", ResumeCondition::Resumed));
        let plan = PausePlan::expired(&candidate(3), "9s".parse().ok());
        assert_eq!(plan.until, back(3, "2026-01-02T03:04:14.678Z"), "which is no return");
        assert_eq!(plan.reason, "MaxDurationExceeded");
    }

    #[test]
    fn a_pause_begins_at_a_whole_millisecond_as_its_record_is_read_back() {
        let at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(PausePlan::expired(&candidate(0), None).at, at);
        assert_eq!(unready(0, Backoff::default()).at, at);
    }

    #[test]
    fn what_was_not_ready_in_time_comes_back_after_its_backoff_and_that_is_counted() {
        let backoff = Backoff { base_seconds: 10, factor: 2.0, ..Backoff::default() };
        for (count, at) in [(0, "2026-01-02T03:04:15.678Z"), (2, "2026-01-02T03:04:45.678Z")] {
            let plan = unready(count, backoff);
            assert_eq!((plan.reason, plan.until), ("PodsReadyTimeout", back(count + 1, at)));
        }
    }

    #[test]
    fn the_jitter_is_that_of_the_return() {
        let backoff = Backoff { base_seconds: 10_000, ..Backoff::default() };
        let plan = PausePlan::unready(&candidate(0), &backoff, |count| f64::from(count) / 2.0);
        assert_eq!(plan.until, back(1, "2026-01-02T05:50:46.178Z"), "half of a ten-thousandth more");
    }

    #[test]
    fn what_has_come_back_as_often_as_it_may_is_deactivated() {
        let backoff = Backoff { limit: Some(2), ..Backoff::default() };
        assert_eq!(unready(1, backoff).reason, "PodsReadyTimeout");
        let plan = unready(2, backoff);
        assert_eq!((plan.reason, plan.until), ("WorkloadInactive", ResumeCondition::Activated));
        assert_eq!(
            unready(u32::MAX, backoff).until,
            ResumeCondition::Activated,
            "for any number that a tenant has written"
        );
    }

    #[test]
    fn a_delay_beyond_all_times_lasts_until_the_last_of_them() {
        let late = PauseCandidate { now: Timestamp::MAX, ..candidate(0) };
        let plan = PausePlan::expired(&late, "1h".parse().ok());
        assert_eq!(plan.until, back(0, &Timestamp::MAX.to_string()));
    }
}
