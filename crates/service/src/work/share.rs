//! The slots that namespaces have taken, their health, and the pace of namespaces and queue after
//! failures. Called by `state` alone, under the lock of the queue.
//!
//! The calls in flight of a namespace are counted in one of two pools: in `healthy`, or in
//! `degraded` after a slow call.

use std::{collections::HashMap, time::Duration};

use tenure_types::wait::Wait;
use tokio::time::Instant;

use super::limits::{Spread, WorkLimits};

/// The time for which a namespace counts as degraded after a slow call.
const DEGRADED_FOR: Duration = Duration::from_mins(1);

/// The time after the end of its last wait for which a namespace without calls counts as failing.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// Above this number, namespaces that are idle, not failing and not degraded are forgotten.
const MOST_SHARES: usize = 128;

/// The failures of a namespace, or of the queue, since the last success.
#[derive(Clone, Copy, Debug, Default)]
struct FailureStreak {
    /// The number of failures. Failures of calls that were in flight together count once.
    failures: u32,
    /// The time of the first of these failures. None: there was no failure.
    since: Option<Instant>,
    /// The end of the wait after the last failure.
    not_before: Option<Instant>,
}

impl FailureStreak {
    /// True if a call may begin. After a failure, calls begin one at a time.
    fn may_begin(self, in_flight: usize, now: Instant) -> bool {
        self.failures == 0 || (in_flight == 0 && self.not_before.is_none_or(|at| at <= now))
    }

    /// Counts a failure, and begins the next wait. Calls that were in flight at the same time fail
    /// for the same reason, so failures during a wait count as one.
    fn fail(&mut self, wait: Wait, now: Instant) {
        if self.not_before.is_none_or(|at| at <= now) {
            self.not_before = now.checked_add(wait.jittered(self.failures));
            self.failures = self.failures.saturating_add(1);
        }
        self.since.get_or_insert(now);
    }
}

/// The share of one namespace.
#[derive(Debug, Default)]
struct NamespaceShare {
    /// The number of calls in flight.
    taken: usize,
    /// The end of the degraded time. None: the calls in flight are counted in `healthy`.
    degraded_until: Option<Instant>,
    pace: FailureStreak,
}

impl NamespaceShare {
    /// True for a degraded namespace. A degraded time that is over lasts until the last call has
    /// ended, so that all calls of a namespace are in one pool.
    fn is_degraded(&self, now: Instant) -> bool {
        self.degraded_until.is_some_and(|until| self.taken > 0 || until > now)
    }

    /// True if the share is still needed: a call is in flight, or the namespace is failing or
    /// degraded.
    fn is_kept(&self, now: Instant) -> bool {
        let is_failing = self.pace.not_before.is_some_and(|at| at + FORGOTTEN_AFTER > now);
        self.taken > 0 || is_failing || self.is_degraded(now)
    }
}

/// The shares of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Shares {
    by_namespace: HashMap<String, NamespaceShare>,
    /// The calls in flight of healthy namespaces.
    healthy: usize,
    /// The calls in flight of degraded namespaces.
    degraded: usize,
    /// The pace of the whole queue. Only failures with [`Spread::Queue`] change it.
    pace: FailureStreak,
    /// The time before which no call may begin at all.
    rests_until: Option<Instant>,
}

impl Shares {
    pub(super) const fn in_flight(&self) -> usize {
        self.healthy.saturating_add(self.degraded)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_namespace.len()
    }

    pub(super) fn is_degraded(&self, namespace: &str, now: Instant) -> bool {
        self.by_namespace.get(namespace).is_some_and(|share| share.is_degraded(now))
    }

    /// Returns the time of the first failure of a namespace since its last success. None: it has no
    /// failure.
    pub(super) fn failing_since(&self, namespace: &str) -> Option<Instant> {
        self.by_namespace.get(namespace)?.pace.since
    }

    /// True if a call may begin in any namespace, as far as the queue decides.
    pub(super) fn may_begin(&self, now: Instant) -> bool {
        self.pace.may_begin(self.in_flight(), now) && self.rests_until.is_none_or(|until| until <= now)
    }

    /// True if a call may begin in this namespace, as far as the limits and its own failures
    /// decide.
    pub(super) fn has_slot(&self, namespace: &str, limits: &WorkLimits, now: Instant) -> bool {
        let Some(share) = self.by_namespace.get(namespace) else { return self.healthy < limits.at_once };
        let pool = if share.is_degraded(now) { self.degraded } else { self.healthy };
        pool < limits.at_once && share.taken < limits.per_namespace && share.pace.may_begin(share.taken, now)
    }

    /// Counts a call that begins, in the pool of its namespace.
    pub(super) fn begin(&mut self, namespace: &str, now: Instant) {
        let share = self.by_namespace.entry(namespace.to_owned()).or_default();
        share.degraded_until = share.degraded_until.filter(|_| share.is_degraded(now));
        let pool = if share.degraded_until.is_some() { &mut self.degraded } else { &mut self.healthy };
        *pool = pool.saturating_add(1);
        share.taken = share.taken.saturating_add(1);
    }

    /// Counts a namespace with a call in flight as degraded, and moves its calls to the second pool.
    pub(super) fn degrade(&mut self, namespace: &str, now: Instant) {
        let Some(share) = self.by_namespace.get_mut(namespace) else { return };
        if share.degraded_until.replace(now + DEGRADED_FOR).is_none() {
            self.healthy = self.healthy.saturating_sub(share.taken);
            self.degraded = self.degraded.saturating_add(share.taken);
        }
    }

    /// Ends a call that succeeded (true) or failed (false). None: the call was given back, and says
    /// nothing about others.
    pub(super) fn end(
        &mut self,
        namespace: &str,
        succeeded: Option<bool>,
        limits: &WorkLimits,
        now: Instant,
    ) {
        let Self { by_namespace, healthy, degraded, pace, .. } = self;
        let Some(share) = by_namespace.get_mut(namespace) else { return };
        let pool = if share.degraded_until.is_some() { degraded } else { healthy };
        *pool = pool.saturating_sub(1);
        share.taken = share.taken.saturating_sub(1);
        match succeeded {
            Some(true) => (share.pace, *pace) = Default::default(),
            Some(false) if limits.spread == Spread::Namespace => share.pace.fail(limits.retry, now),
            Some(false) if limits.spread == Spread::Queue => {
                share.pace.fail(limits.retry, now);
                pace.fail(limits.retry, now);
            }
            _ => {}
        }
        if !share.is_kept(now) {
            by_namespace.remove(namespace);
        }
        if by_namespace.len() > MOST_SHARES {
            by_namespace.retain(|_, share| share.is_kept(now));
        }
    }

    pub(super) fn rest_until(&mut self, at: Instant) {
        self.rests_until = self.rests_until.max(Some(at));
    }

    /// Forgets failures, waits and the rest of the queue. Trouble stays.
    pub(super) fn reset(&mut self) {
        (self.pace, self.rests_until) = Default::default();
        for share in self.by_namespace.values_mut() {
            share.pace = FailureStreak::default();
        }
    }

    /// Returns the ends of waits that are later than `after`. None: all of them.
    pub(super) fn waits(&self, after: Option<Instant>) -> impl Iterator<Item = Instant> {
        let of_namespaces = self.by_namespace.values().map(|share| share.pace.not_before);
        let all = of_namespaces.chain([self.pace.not_before, self.rests_until]);
        all.flatten().filter(move |at| Some(*at) > after)
    }
}
