//! Retries of changes whose object was changed since it was read.
//!
//! The `Pauser` and the controllers of returns and hand-backs have one [`ConflictRetries`] for each
//! change.

use std::time::Duration;

use tenure_types::wait::Wait;

/// The most reads of an object that other writers keep changing.
const READS: u32 = 4;

/// The waits before each further read.
const RETRY: Wait = Wait { first: Duration::from_millis(100), last: Duration::from_secs(1) };

/// The retries of a change. Each reads the object again, after a wait: two writers that retry at
/// once would conflict each time.
#[derive(Debug, Default)]
pub struct ConflictRetries {
    /// The number of waits so far.
    retries: u32,
}

impl ConflictRetries {
    /// True if the object may be read once more.
    pub const fn may_retry(&self) -> bool {
        self.retries < READS.saturating_sub(1)
    }

    /// True if a try has failed.
    pub const fn is_retry(&self) -> bool {
        self.retries > 0
    }

    /// Waits before the next try: at least half of the growing wait, and the rest at random.
    pub async fn wait(&mut self) {
        tokio::time::sleep(RETRY.jittered(self.retries)).await;
        self.retries = self.retries.saturating_add(1);
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
            let (begun, mut conflicts, mut waits) = (Instant::now(), ConflictRetries::default(), Vec::new());
            while conflicts.may_retry() {
                let before = Instant::now();
                conflicts.wait().await;
                waits.push(before.elapsed());
            }
            assert!(waits.len() == 3 && waits.is_sorted(), "{waits:?}");
            assert!(
                waits[0] >= RETRY.first / 2 && waits[2] <= RETRY.first * 4 + Duration::from_millis(1),
                "{waits:?}"
            );
            totals.insert(begun.elapsed());
        }
        assert!(totals.len() > 10, "{totals:?}");
    }
}
