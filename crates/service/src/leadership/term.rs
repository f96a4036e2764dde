//! The leadership of this process, for code that acts only as the leader. `election` is the only
//! writer; each controller of the keeper and the client of the leader read.

use std::{future::pending, sync::Arc};

use tokio::{
    select,
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Says whether this process leads. Check it right before each write. Clones share the terms.
///
/// A process leads while a renewal succeeded that was sent less than the renew deadline ago, by the
/// local monotonic clock. So a process that was stopped, or is cut off, leads no longer than that.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The last term. None: this process always leads.
    terms: Option<Arc<watch::Sender<Option<LeadershipTerm>>>>,
}

/// A time of leading without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeadershipTerm {
    /// The beginning, which identifies the term.
    since: Instant,
    /// The time since which no renewal has failed.
    unbroken: Instant,
    /// The end, which each renewal moves.
    until: Instant,
}

impl LeadershipTerm {
    fn holds(&self) -> bool {
        Instant::now() < self.until
    }
}

impl Leadership {
    /// Creates the leadership of a process that needs no election.
    pub fn always() -> Self {
        Self { terms: None }
    }

    /// Creates the leadership of a process that may be elected.
    pub(super) fn not_yet() -> Self {
        Self { terms: Some(Arc::new(watch::Sender::new(None))) }
    }

    /// True if this process leads now.
    pub fn holds(&self) -> bool {
        self.terms.as_ref().is_none_or(|terms| terms.borrow().is_some_and(|term| term.holds()))
    }

    /// Returns the time since which this process leads and reaches the API server: what it knew
    /// before may be out of date. Without a term this is now. None: the process needs no election.
    pub fn unbroken_since(&self) -> Option<Instant> {
        self.terms.as_ref().map(|terms| terms.borrow().map_or_else(Instant::now, |term| term.unbroken))
    }

    /// Returns when this process leads.
    pub async fn acquired(&self) {
        if let Some(terms) = &self.terms {
            // an error would mean that the sender is gone, but here it is
            let _ = terms.subscribe().wait_for(|term| term.is_some_and(|term| term.holds())).await;
        }
    }

    /// Runs the work while this process leads, until the work is done or, without the lead, until
    /// `shutdown`. When the lead is lost, the running work is dropped, and `lost` cleans up after
    /// it. With the next term the work begins again. During a term the work itself must heed
    /// `shutdown`.
    pub async fn work(&self, shutdown: &CancellationToken, mut work: impl AsyncFnMut(), lost: impl Fn()) {
        loop {
            select! {
                () = self.acquired() => {}
                () = shutdown.cancelled() => return,
            }
            select! {
                biased;
                () = self.lost() => lost(),
                () = work() => return,
            }
        }
    }

    /// Returns when this process no longer leads, at the latest when the renew deadline has passed.
    /// Returns at once without the lead. A gap ends the term, even if the process leads again
    /// since.
    pub async fn lost(&self) {
        let Some(terms) = &self.terms else {
            return pending().await;
        };
        let mut terms = terms.subscribe();
        let since = terms.borrow().map(|term| term.since);
        loop {
            let until = match *terms.borrow_and_update() {
                Some(term) if Some(term.since) == since && term.holds() => term.until,
                _ => return,
            };
            select! {
                () = sleep_until(until) => {}
                _ = terms.changed() => {}
            }
        }
    }

    /// Extends the term to `until`, or begins one, by a renewal sent at `sent`. `has_failed` is
    /// true for the first renewal after a failure.
    pub(super) fn renew(&self, sent: Instant, until: Instant, has_failed: bool) {
        if let Some(terms) = &self.terms {
            terms.send_modify(|term| {
                let known = term.filter(LeadershipTerm::holds);
                let since = known.map_or(sent, |term| term.since);
                let unbroken = known.filter(|_| !has_failed).map_or(sent, |term| term.unbroken);
                *term = Some(LeadershipTerm { since, unbroken, until });
            });
        }
    }

    /// Ends the term. True if this process led.
    pub(super) fn end(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.send_replace(None).is_some_and(|term| term.holds()))
    }

    /// True if the last term ran out without being ended.
    pub(super) fn ran_out(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.borrow().is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    #[tokio::test]
    async fn who_needs_no_election_always_leads() {
        let leadership = Leadership::always();
        assert!(leadership.holds());
        leadership.acquired().await;
        assert_eq!(leadership.lost().now_or_never(), None);
    }

    #[tokio::test]
    async fn no_process_leads_before_a_renewal_or_after_the_end() {
        let leadership = Leadership::not_yet();
        assert!(!leadership.holds());
        assert_eq!(leadership.acquired().now_or_never(), None);
        let now = Instant::now();
        leadership.renew(now, now + LONG, false);
        assert!(leadership.holds());
        leadership.acquired().await;
        assert_eq!(leadership.lost().now_or_never(), None);
        assert!(leadership.end());
        assert!(!leadership.holds());
        leadership.lost().await;
        assert!(!leadership.end(), "twice");
    }

    #[tokio::test]
    async fn a_term_runs_out_without_anybody_doing_anything() {
        let leadership = Leadership::not_yet();
        let now = Instant::now();
        leadership.renew(now, now + Duration::from_millis(20), false);
        leadership.lost().await;
        assert!(Instant::now() >= now + Duration::from_millis(20));
        assert!(!leadership.holds() && leadership.ran_out());
    }

    #[tokio::test]
    async fn a_renewal_that_was_answered_too_late_makes_no_leader() {
        let leadership = Leadership::not_yet();
        let now = Instant::now();
        leadership.renew(now, now, false);
        assert!(!leadership.holds());
        assert_eq!(leadership.acquired().now_or_never(), None);
        leadership.lost().await;
    }

    #[tokio::test]
    async fn a_renewal_in_time_prolongs_the_term() {
        let leadership = Leadership::not_yet();
        let now = Instant::now();
        leadership.renew(now, now + Duration::from_millis(20), false);
        let lost = leadership.lost();
        tokio::pin!(lost);
        assert_eq!((&mut lost).now_or_never(), None);
        leadership.renew(now, now + LONG, false);
        sleep_until(now + Duration::from_millis(30)).await;
        assert_eq!(lost.now_or_never(), None);
    }

    #[tokio::test]
    async fn a_gap_is_a_loss_even_if_it_leads_again() {
        let leadership = Leadership::not_yet();
        let now = Instant::now();
        leadership.renew(now, now + LONG, false);
        let lost = leadership.lost();
        tokio::pin!(lost);
        assert_eq!((&mut lost).now_or_never(), None);
        leadership.end();
        leadership.renew(now + Duration::from_nanos(1), now + LONG, false);
        assert!(leadership.holds());
        assert_eq!(lost.now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn what_was_known_before_a_failed_renewal_or_before_the_term_may_be_out_of_date() {
        assert_eq!(Leadership::always().unbroken_since(), None);
        let leadership = Leadership::not_yet();
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        leadership.renew(at(0), at(100), false);
        leadership.renew(at(2), at(102), false);
        assert_eq!(leadership.unbroken_since(), Some(at(0)));
        leadership.renew(at(4), at(104), true);
        leadership.renew(at(6), at(106), false);
        assert_eq!(leadership.unbroken_since(), Some(at(4)), "the term goes on");
        leadership.end();
        leadership.renew(at(8), at(108), false);
        assert_eq!(leadership.unbroken_since(), Some(at(8)));
    }
}
