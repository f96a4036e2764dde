//! Namespaces whose pods can't be written, as their admission webhook is down.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time until the pods of a namespace are tried again, after the first failure.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// The longest such time. It grows with each failure.
const LAST_WAIT: Duration = Duration::from_mins(1);

/// A namespace that had no failure for so long after its last wait counts as one without failures.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// The namespaces whose pods couldn't be written of late.
#[derive(Debug, Default)]
pub struct FailingNamespaces(Mutex<HashMap<String, Failing>>);

#[derive(Clone, Copy, Debug)]
struct Failing {
    wait: Duration,
    not_before: Instant,
}

impl FailingNamespaces {
    /// True if the pods of a namespace may be tried now.
    pub fn may_try(&self, namespace: &str) -> bool {
        self.0.lock().get(namespace).is_none_or(|failing| failing.not_before <= Instant::now())
    }

    /// Notes a failure. Returns true if it is the first of its namespace.
    pub fn failed(&self, namespace: &str) -> bool {
        let now = Instant::now();
        let mut failing = self.0.lock();
        failing.retain(|_, failing| failing.not_before + FORGOTTEN_AFTER > now);
        let wait = match failing.get(namespace) {
            // one of several calls at the same time
            Some(last) if last.not_before > now => return false,
            Some(last) => last.wait.saturating_mul(2).min(LAST_WAIT),
            None => FIRST_WAIT,
        };
        failing.insert(namespace.to_owned(), Failing { wait, not_before: now + wait }).is_none()
    }

    /// A pod was written.
    pub fn worked(&self, namespace: &str) {
        self.0.lock().remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_fails_is_tried_less_and_less_often_until_it_works() {
        let failing = FailingNamespaces::default();
        for (number, seconds) in [5_u64, 10, 20, 40, 60, 60].into_iter().enumerate() {
            assert!(failing.may_try("a"));
            assert_eq!(failing.failed("a"), number == 0, "told once");
            assert!(!failing.failed("a") && !failing.may_try("a") && failing.may_try("b"));
            advance(Duration::from_millis(seconds * 1_000 - 1)).await;
            assert!(!failing.may_try("a"), "{seconds}");
            advance(Duration::from_millis(1)).await;
        }
        failing.worked("a");
        assert!(failing.failed("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_is_gone_takes_no_room() {
        let failing = FailingNamespaces::default();
        failing.failed("gone");
        advance(FORGOTTEN_AFTER * 2).await;
        failing.failed("a");
        assert_eq!(failing.0.lock().len(), 1);
    }
}
