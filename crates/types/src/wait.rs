//! The growing waits between retries, for all programs. Nothing here sleeps.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The waits after failures. Each wait is twice the one before, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub last: Duration,
}

impl Wait {
    /// Returns the wait after one more failure than `failures`: for 0, the first wait.
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(16)).min(self.last)
    }

    /// Returns the same wait with jitter, as [`jittered`] does.
    pub fn jittered(self, failures: u32) -> Duration {
        jittered(self.after(failures))
    }
}

/// Returns a time between half of this wait and the whole, so that calls that fail together aren't
/// repeated together.
pub fn jittered(wait: Duration) -> Duration {
    let half = wait / 2;
    let range = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
    // each hasher has a random seed
    half + Duration::from_nanos(RandomState::new().hash_one(()) % range)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_wait_doubles_until_the_longest() {
        let wait = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };
        let waits = [0, 1, 2, 3, 4, 16, u32::MAX].map(|failures| wait.after(failures).as_secs());
        assert_eq!(waits, [5, 10, 20, 40, 40, 40, 40]);
        let endless = Wait { last: Duration::MAX, ..wait };
        assert_eq!(endless.after(u32::MAX), Duration::from_secs(5 << 16));
    }
    #[test]
    fn waits_with_jitter_differ_and_are_at_least_half_of_the_wait() {
        let wait = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };
        let waits: HashSet<Duration> = (0..20).map(|_| wait.jittered(1)).collect();
        assert!(waits.len() > 10 && waits.iter().all(|wait| (5..10).contains(&wait.as_secs())), "{waits:?}");
        assert_eq!(jittered(Duration::ZERO), Duration::ZERO);
    }
}
