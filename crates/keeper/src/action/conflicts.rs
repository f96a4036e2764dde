//! Retries of changes that came too late.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// An object that other writers keep changing is read at most so often.
const READS: u32 = 4;

/// The longest wait before the second read. It doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The retries of a change that failed because the object was changed since it was read. Each reads the object again,
/// after a while: two writers that try again at once get in each other's way each time.
#[derive(Debug, Default)]
pub struct Conflicts {
    retries: u32,
}

impl Conflicts {
    /// True if another try may be made.
    pub const fn may_retry(&self) -> bool {
        self.retries < READS.saturating_sub(1)
    }

    /// True if a try has failed.
    pub const fn is_retry(&self) -> bool {
        self.retries > 0
    }

    /// Waits until the next try is to be made: at least half of the longest wait, and the rest by chance.
    pub async fn wait(&mut self) {
        let half = FIRST_WAIT.saturating_mul(1 << self.retries.min(16)) / 2;
        self.retries = self.retries.saturating_add(1);
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        let random = RandomState::new().hash_one(self.retries) % nanos;
        tokio::time::sleep(half + Duration::from_nanos(random)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_waits_grow_differ_and_are_few() {
        let mut totals = HashSet::new();
        for _ in 0..20 {
            let (begun, mut conflicts, mut waits) = (Instant::now(), Conflicts::default(), Vec::new());
            while conflicts.may_retry() {
                let before = Instant::now();
                conflicts.wait().await;
                waits.push(before.elapsed());
            }
            assert!(waits.len() == 3 && waits.is_sorted(), "{waits:?}");
            assert!(
                waits[0] >= FIRST_WAIT / 2 && waits[2] <= FIRST_WAIT * 4 + Duration::from_millis(1),
                "{waits:?}"
            );
            totals.insert(begun.elapsed());
        }
        assert!(totals.len() > 10, "{totals:?}");
    }
}
