//! Waiting for a condition, with a deadline. The testbed and the end-to-end tests poll by
//! [`eventually`].

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

/// The shortest and the longest time between two polls.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// The divisor of the time waited so far. The quotient is a lower bound of the time between polls.
const PATIENCE: u32 = 5;

/// Polls until `poll` returns a value.
///
/// The time between two polls is 100 ms, or twice the time that the poll took, or a fifth of the
/// time waited so far, but at most 500 ms: polls by kubectl would keep a processor busy, and so
/// would those of many tests that wait at the same time.
///
/// `Ok(None)` and `Err` both mean "not yet". The error after `deadline` names `what` was awaited,
/// with the error of the last poll. A poll that is under way at the deadline is dropped.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// let mut polls = 0;
/// let third = tenure_testbed::eventually("the third poll", Duration::from_secs(5), async || {
///     polls += 1;
///     Ok((polls == 3).then_some(polls))
/// });
/// assert_eq!(third.await?, 3);
/// # Ok(())
/// # }
/// ```
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut poll: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    let end = start + deadline;
    let mut reason: Option<anyhow::Error> = None;
    loop {
        let begin = Instant::now();
        match timeout_at(end, poll()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => reason = None,
            Ok(Err(error)) => reason = Some(error),
            Err(_) => break,
        }
        if Instant::now() >= end {
            break;
        }
        let between = begin.elapsed().saturating_mul(2).max(start.elapsed() / PATIENCE);
        sleep(between.clamp(INTERVALS.0, INTERVALS.1)).await;
    }
    let waited = format!("waited {deadline:?} in vain for {what}");
    Err(match reason {
        Some(reason) => reason.context(waited),
        None => anyhow!(waited),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[tokio::test]
    async fn error_says_what_was_awaited_and_the_last_reason() {
        let mut polls = 0;
        let error = eventually::<()>("the moon", Duration::from_millis(120), async || {
            polls += 1;
            bail!("cloudy at poll {polls}")
        })
        .await
        .unwrap_err();
        let message = format!("{error:#}");
        assert!(message.starts_with("waited 120ms in vain for the moon: cloudy at poll "), "{message}");
        assert!(polls > 1);
    }

    #[tokio::test]
    async fn poll_that_hangs_ends_at_the_deadline() {
        let hangs =
            eventually::<()>("nothing", Duration::from_millis(20), async || std::future::pending().await);
        assert!(hangs.await.is_err());
    }
}
