//! Growing waits between tries.

use std::time::Duration;

/// The waits after failures. Each is twice as long as the one before, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub last: Duration,
}

impl Wait {
    /// Returns the wait after one more failure than `failures`.
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(16)).min(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_until_the_longest() {
        let wait = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };
        let waits = [0, 1, 2, 3, 4, 16, u32::MAX].map(|failures| wait.after(failures).as_secs());
        assert_eq!(waits, [5, 10, 20, 40, 40, 40, 40]);
        let endless = Wait { last: Duration::MAX, ..wait };
        assert_eq!(endless.after(u32::MAX), Duration::from_secs(5 << 16));
    }
}
