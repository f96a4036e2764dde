//! The pace of messages: several at a time, and after a failure one at a time, at growing intervals.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;

/// The most messages that are under way at a time.
const AT_ONCE: usize = 8;

const FIRST_WAIT: Duration = Duration::from_secs(1);
pub const LAST_WAIT: Duration = Duration::from_mins(1);

/// The pace of a receiver, or of a namespace's messages to it.
#[derive(Debug, Default)]
pub struct Pace {
    pub in_flight: usize,
    /// The failures since the last success.
    failures: u32,
    not_before: Option<Instant>,
}

impl Pace {
    pub fn may_try(&self, now: Instant) -> bool {
        if self.failures == 0 {
            return self.in_flight < AT_ONCE;
        }
        self.in_flight == 0 && self.not_before.is_none_or(|at| at <= now)
    }

    /// True if the last try has failed.
    pub const fn is_in_trouble(&self) -> bool {
        self.failures > 0
    }

    /// The end of the present interval.
    pub const fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    pub const fn begin(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    pub fn end(&mut self, is_good: bool, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if is_good {
            (self.failures, self.not_before) = (0, None);
        } else if self.not_before.is_none_or(|at| at <= now) {
            // messages that were under way at the same time fail for the same reason
            let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LAST_WAIT);
            self.failures = self.failures.saturating_add(1);
            self.not_before = Some(now + jittered(wait));
        }
    }

    /// Tries at once, as if nothing had failed.
    pub const fn reset(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }
}

/// A time between half of this one and the whole.
fn jittered(wait: Duration) -> Duration {
    let half = wait / 2;
    let range = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_nanos(RandomState::new().hash_one(()) % range)
}
