//! The returns of workloads whose pods didn't get ready: their delays, their number and their
//! order.
//!
//! The rules are those of Kueue's `requeuingStrategy`, which a queue or the configuration sets. The
//! plan of a pause computes its return by them, and the plugin's `requeue-schedule` prints the
//! delays.

use std::{
    cmp::Ordering,
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::{SignedDuration, Timestamp};
use tenure_types::{
    ExtendedDuration, Grammar, Written,
    runai::v3alpha1::{RequeuingStrategy, RequeuingTimestamp, WaitForPodsReady},
};

/// The largest addition to a delay, as a fraction of the delay. It differs by workload and return:
/// workloads that were paused together must not come back in the same instant.
const JITTER: f64 = 0.0001;

/// The time that a workload may take to get ready, and the delays and the number of its returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The time after its start within which a workload's pods must be ready.
    pub timeout: ExtendedDuration,
    /// The first delay, in seconds.
    pub base_seconds: i32,
    /// The factor from one delay to the next; less than 1 counts as 1.
    pub factor: f64,
    /// The longest delay, in seconds. None, or less than 1: no bound.
    pub max_seconds: Option<i32>,
    /// The number of returns before a workload is deactivated. None: no limit.
    pub limit: Option<i32>,
}

/// One return of a workload that never gets ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of the return, counted from 1.
    pub retry: i32,
    /// The delay before the return, without jitter.
    pub wait: SignedDuration,
    /// The time from the first start until the timeout after this return. After the last return,
    /// the workload is deactivated then.
    pub cumulative: SignedDuration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            timeout: ExtendedDuration::of(SignedDuration::from_mins(5)),
            base_seconds: 1,
            factor: 1.412_847_38,
            max_seconds: None,
            limit: None,
        }
    }
}

impl From<&WaitForPodsReady> for Backoff {
    /// Fields that are left out or can't be valid have their defaults.
    fn from(wait: &WaitForPodsReady) -> Self {
        let (default, unset) = (Self::default(), RequeuingStrategy::default());
        let strategy = wait.requeuing_strategy.as_ref().unwrap_or(&unset);
        let at_least = |least: i32, value: Option<i32>| value.filter(|value| *value >= least);
        Self {
            timeout: positive(wait.timeout.as_ref()).unwrap_or(default.timeout),
            base_seconds: at_least(1, strategy.backoff_base_seconds).unwrap_or(default.base_seconds),
            factor: strategy.backoff_factor.as_deref().and_then(factor).unwrap_or(default.factor),
            max_seconds: at_least(1, strategy.backoff_max_seconds),
            limit: at_least(0, strategy.backoff_limit_count),
        }
    }
}

/// Reads a duration. None: it is left out, zero, or can't be read.
pub(crate) fn positive(written: Option<&Written<ExtendedDuration>>) -> Option<ExtendedDuration> {
    written?.parse().ok().filter(|duration: &ExtendedDuration| !duration.is_zero())
}

/// Reads a `backoffFactor`: a decimal number of at least 1, such as `1.5`, of at most 20
/// characters. None: the text has another form.
pub fn factor(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let good = text.len() <= 20 && digits(whole) && digits(fraction);
    text.parse().ok().filter(|factor| good && *factor >= 1.0)
}

impl Backoff {
    /// Returns the delay before the `count`-th return, without jitter: `base * factor^(count - 1)`,
    /// at most the maximum, and at most the longest duration. Zero if `count` is less than 1.
    ///
    /// In Kueue, the first delay and the jitter may exceed the maximum; here only the jitter may.
    pub fn wait(&self, count: i32) -> SignedDuration {
        if count < 1 || self.base_seconds < 1 {
            return SignedDuration::ZERO;
        }
        // a factor that isn't a number counts as 1
        let grown = f64::from(self.base_seconds) * self.factor.max(1.0).powi(count.saturating_sub(1));
        let bound = self.max_seconds.filter(|max| *max > 0).map_or(f64::INFINITY, f64::from);
        seconds(grown.min(bound))
    }

    /// Returns the earliest time of the `count`-th return of a workload that was paused at
    /// `paused`, after another workload has left: the first delay later. None for the last return
    /// before it is deactivated: other workloads must not be able to cause that.
    pub fn earliest(&self, paused: Timestamp, count: u32) -> Option<Timestamp> {
        let is_last = self.limit.is_some_and(|limit| i64::from(count) >= i64::from(limit));
        (!is_last).then(|| paused.checked_add(self.wait(1)).unwrap_or(Timestamp::MAX))
    }

    /// Returns a number of at least 0 and less than 1 that looks random. It depends on the workload
    /// and the return alone, so a repeated decision equals the first.
    pub fn random(uid: &str, count: i32) -> f64 {
        let mut hasher = DefaultHasher::new();
        (uid, count).hash(&mut hasher);
        // the upper 32 bits, which a float holds exactly
        let bits = u32::try_from(hasher.finish() >> 32).unwrap_or_default();
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }

    /// Returns the delay of [`Self::wait`] with jitter. `random` is at least 0 and less than 1.
    pub fn wait_with_jitter(&self, count: i32, random: f64) -> SignedDuration {
        let wait = self.wait(count);
        let part = if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) * JITTER };
        wait.saturating_add(seconds(wait.as_secs_f64() * part))
    }

    /// Returns the number of the next return, counted from 1, of a workload that has come back
    /// `count` times and isn't ready in time again. None: it stays paused until a user activates
    /// it.
    pub fn after_timeout(&self, count: i32) -> Option<i32> {
        let next = count.max(0).saturating_add(1);
        (next <= self.limit.unwrap_or(i32::MAX)).then_some(next)
    }

    /// Returns all returns of a workload that never gets ready, until it is deactivated. Without a
    /// limit the sequence is as good as endless.
    pub fn schedule(&self) -> impl Iterator<Item = Retry> + use<> {
        let backoff = *self;
        let retries = 1..=self.limit.unwrap_or(i32::MAX);
        retries.scan(self.timeout.to_signed(), move |cumulative, retry| {
            let wait = backoff.wait(retry);
            *cumulative = cumulative.saturating_add(wait).saturating_add(backoff.timeout.to_signed());
            Some(Retry { retry, wait, cumulative: *cumulative })
        })
    }
}

/// Returns a duration of this many seconds. Too long a duration becomes the longest possible.
fn seconds(seconds: f64) -> SignedDuration {
    SignedDuration::try_from_secs_f64(seconds).unwrap_or(SignedDuration::MAX)
}

/// A workload that waits for its return, as far as the order needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingWorkload {
    /// The priority of its pods: the higher is served first.
    pub priority: i32,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// The time of its pause, for any reason: workloads with time slices take turns as well.
    pub paused: Timestamp,
    /// The name of the workload, the last tie-breaker.
    pub name: String,
}

impl WaitingWorkload {
    /// Returns the time by which the workload is ordered among those of its priority.
    pub fn timestamp(&self, strategy: RequeuingTimestamp) -> Timestamp {
        match strategy {
            RequeuingTimestamp::Eviction => self.paused,
            RequeuingTimestamp::Creation => self.created,
        }
    }
}

/// Returns the order of workloads: the higher priority first, then the earlier time by the
/// strategy, then the name.
pub fn order(strategy: RequeuingTimestamp) -> impl Fn(&WaitingWorkload, &WaitingWorkload) -> Ordering {
    move |one, other| {
        let by_priority = other.priority.cmp(&one.priority);
        let by_time = || one.timestamp(strategy).cmp(&other.timestamp(strategy));
        by_priority.then_with(by_time).then_with(|| one.name.cmp(&other.name))
    }
}

#[cfg(test)]
mod tests;
