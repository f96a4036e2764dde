//! A candidate's knowledge of the lease, and the next step that follows from it. No client, no
//! clock: the model test of the keeper runs the same code with times of its own.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use tokio::time::Instant;

/// The lease as one candidate has seen it.
#[derive(Debug)]
pub struct LeaseView {
    name: String,
    identity: String,
    lease_duration: Duration,
    /// The lease as it was last seen, on which the next write is based. None: it doesn't exist, or
    /// wasn't read yet.
    lease: Option<Lease>,
    /// The last content of the lease, even if it was deleted since, and the time at which this
    /// content was first seen. None: no lease was seen yet.
    record: Option<(LeaseSpec, Instant)>,
    /// The time since which the lease is known to be missing. None: it exists, or wasn't read yet.
    missing: Option<Instant>,
}

/// The next step of a candidate.
#[derive(Debug)]
pub enum ElectionStep {
    /// Write this lease, which makes this candidate the leader. A lease without a `resourceVersion`
    /// must be created.
    Claim(Box<Lease>),
    /// Wait: another candidate leads, unless it stops renewing.
    StandBy {
        /// The identity of the leader.
        leader: String,
        /// The end of its lease, if it doesn't renew.
        until: Instant,
    },
}

impl LeaseView {
    /// Creates the view of a candidate that has seen nothing yet. `name` is the Lease's.
    pub fn new(name: String, identity: String, lease_duration: Duration) -> Self {
        Self { name, identity, lease_duration, lease: None, record: None, missing: None }
    }

    /// Takes in an answer that came at `now` at the latest. None: the lease doesn't exist. Only a
    /// change of the content counts as a renewal, not a change of metadata.
    pub fn observe(&mut self, lease: Option<Lease>, now: Instant) {
        if let Some(lease) = &lease {
            let spec = lease.spec.clone().unwrap_or_default();
            if self.record.as_ref().is_none_or(|(known, _)| *known != spec) {
                self.record = Some((spec, now));
            }
            self.missing = None;
        } else {
            self.missing.get_or_insert(now);
        }
        self.lease = lease;
    }

    /// True if the lease exists and has this identity.
    pub fn is_ours(&self) -> bool {
        self.lease.as_ref().and_then(|lease| lease.spec.as_ref()).and_then(holder) == Some(&self.identity)
    }

    /// True if the lease exists and has another identity, or no identity.
    pub fn is_not_ours(&self) -> bool {
        self.lease.is_some() && !self.is_ours()
    }

    /// Returns the next step. `wall` is the time that is written to the lease, for people alone.
    pub fn step(&self, now: Instant, wall: Timestamp) -> ElectionStep {
        match self.other() {
            Some((leader, until)) if now < until => ElectionStep::StandBy { leader: leader.into(), until },
            _ => ElectionStep::Claim(Box::new(self.claim(wall))),
        }
    }

    /// Returns the other candidate that holds the lease, and the end of its lease. None: no other
    /// candidate holds it.
    ///
    /// The holder of a deleted lease doesn't know of the deletion yet, and gets time to create the
    /// lease again, but no longer than a lease of this candidate would last, even if the deleted
    /// one was longer.
    fn other(&self) -> Option<(&str, Instant)> {
        let (spec, seen) = self.record.as_ref()?;
        let leader = holder(spec).filter(|holder| *holder != self.identity)?;
        let expiry = *seen + duration(spec).unwrap_or(self.lease_duration);
        let until = self.missing.map_or(expiry, |missing| expiry.min(missing + self.lease_duration));
        Some((leader, until))
    }

    /// Returns the lease with this identity. The time of acquisition and the number of transitions
    /// follow client-go.
    fn claim(&self, wall: Timestamp) -> Lease {
        let now = Some(MicroTime(wall));
        let mut lease = self.lease.clone().unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        let old = lease.spec.take().unwrap_or_default();
        let transitions = old.lease_transitions.unwrap_or(0).max(0);
        let (acquire_time, transitions) = if self.is_ours() {
            (old.acquire_time.clone().or_else(|| now.clone()), transitions)
        } else if self.lease.is_some() {
            (now.clone(), transitions.saturating_add(1))
        } else {
            (now.clone(), 0)
        };
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(seconds(self.lease_duration)),
            acquire_time,
            renew_time: now,
            lease_transitions: Some(transitions),
            ..old
        });
        lease
    }

    /// Returns the lease without a holder. Its duration is a second, because some candidates look
    /// at that alone. None: the lease doesn't have this identity.
    pub fn release(&self, wall: Timestamp) -> Option<Lease> {
        let mut lease = self.lease.clone().filter(|_| self.is_ours())?;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time = Some(MicroTime(wall));
        spec.renew_time = Some(MicroTime(wall));
        Some(lease)
    }
}

/// Returns the identity in a lease. None: it is absent or empty.
fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Returns the duration of a lease. None: it is absent or not positive.
fn duration(spec: &LeaseSpec) -> Option<Duration> {
    let seconds = spec.lease_duration_seconds.filter(|seconds| *seconds > 0)?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// Returns a duration in seconds, rounded up so that other candidates don't take the lease too
/// early.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Duration = Duration::from_secs(15);
    const SECOND: Duration = Duration::from_secs(1);

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn view() -> LeaseView {
        LeaseView::new("test".into(), "us".into(), OWN)
    }

    /// A lease as the API server would show it.
    fn lease(holder: &str, seconds: i32, renewed: i64) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some("7".into());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(MicroTime(wall(1))),
            renew_time: Some(MicroTime(wall(renewed))),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        });
        lease
    }

    #[track_caller]
    fn assert_claims(view: &LeaseView, now: Instant) -> LeaseSpec {
        match view.step(now, wall(100)) {
            ElectionStep::Claim(lease) => lease.spec.unwrap(),
            ElectionStep::StandBy { leader, until } => {
                panic!("stands by for {leader} until {:?}", until - now)
            }
        }
    }

    #[track_caller]
    fn assert_stands_by(view: &LeaseView, now: Instant, expected: Instant) {
        match view.step(now, wall(100)) {
            ElectionStep::Claim(_) => panic!("claims"),
            ElectionStep::StandBy { leader, until } => {
                assert_eq!((leader.as_str(), until), ("them", expected));
            }
        }
    }

    #[test]
    fn a_lease_that_is_not_there_is_created() {
        let mut view = view();
        let now = Instant::now();
        view.observe(None, now);
        let ElectionStep::Claim(lease) = view.step(now, wall(100)) else { panic!("stands by") };
        assert_eq!(lease.metadata.name.as_deref(), Some("test"));
        assert_eq!(lease.metadata.resource_version, None);
        let spec = LeaseSpec {
            holder_identity: Some("us".into()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(wall(100))),
            renew_time: Some(MicroTime(wall(100))),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        assert_eq!(lease.spec, Some(spec));
    }

    #[test]
    fn another_leads_for_as_long_as_its_lease_says_since_it_was_first_seen_by_any_clock() {
        for renewed in [-1_000_000, 100, 1_000_000_000] {
            let mut view = view();
            let now = Instant::now();
            view.observe(Some(lease("them", 30, renewed)), now);
            assert_stands_by(&view, now, now + 30 * SECOND);
            view.observe(Some(lease("them", 30, renewed)), now + 20 * SECOND);
            assert_stands_by(&view, now + 29 * SECOND, now + 30 * SECOND);
            assert_claims(&view, now + 30 * SECOND);
        }
    }

    #[test]
    fn each_renewal_counts_from_when_it_was_seen() {
        let mut view = view();
        let now = Instant::now();
        view.observe(Some(lease("them", 15, 1)), now);
        view.observe(Some(lease("them", 15, 2)), now + 14 * SECOND);
        assert_stands_by(&view, now + 28 * SECOND, now + 29 * SECOND);
    }

    #[test]
    fn a_label_is_no_renewal() {
        let mut view = view();
        let now = Instant::now();
        view.observe(Some(lease("them", 15, 1)), now);
        let mut labelled = lease("them", 15, 1);
        labelled.metadata.resource_version = Some("8".into());
        labelled.metadata.labels = Some([("a".into(), "b".into())].into());
        view.observe(Some(labelled), now + 14 * SECOND);
        let ElectionStep::Claim(claim) = view.step(now + 15 * SECOND, wall(100)) else { panic!("stands by") };
        assert_eq!(claim.metadata.resource_version.as_deref(), Some("8"), "based on the latest");
        assert_eq!(claim.metadata.labels.unwrap().len(), 1);
    }

    #[test]
    fn a_lease_of_another_that_expired_or_was_released_changes_hands() {
        let mut view = view();
        let now = Instant::now();
        for (holder, now) in [("them", now + 15 * SECOND), ("", now)] {
            view.observe(Some(lease(holder, 15, 1)), now);
            let spec = assert_claims(&view, now + 15 * SECOND);
            assert_eq!(spec.lease_transitions, Some(5));
            assert_eq!(spec.acquire_time, Some(MicroTime(wall(100))));
        }
    }

    #[test]
    fn our_own_lease_is_renewed_at_once_and_does_not_change_hands() {
        let mut view = view();
        let now = Instant::now();
        view.observe(Some(lease("us", 60, 50)), now);
        let spec = assert_claims(&view, now);
        assert_eq!(spec.lease_transitions, Some(4));
        assert_eq!(spec.acquire_time, Some(MicroTime(wall(1))));
        assert_eq!(spec.renew_time, Some(MicroTime(wall(100))));
        assert_eq!(spec.lease_duration_seconds, Some(15));
    }

    #[test]
    fn the_holder_of_a_deleted_lease_has_time_to_create_it_again() {
        let mut view = view();
        let now = Instant::now();
        view.observe(Some(lease("them", 10, 1)), now);
        view.observe(None, now + SECOND);
        view.observe(None, now + 2 * SECOND);
        assert_stands_by(&view, now + 3 * SECOND, now + 10 * SECOND);
        view.observe(Some(lease("them", 10, 2)), now + 4 * SECOND);
        assert_stands_by(&view, now + 4 * SECOND, now + 14 * SECOND);
        view.observe(None, now + 5 * SECOND);
        assert_eq!(assert_claims(&view, now + 14 * SECOND).lease_transitions, Some(0));
    }

    #[test]
    fn a_deleted_lease_that_would_have_lasted_for_ever_does_not() {
        let mut view = view();
        let now = Instant::now();
        view.observe(Some(lease("them", i32::MAX, 1)), now);
        view.observe(None, now + SECOND);
        assert_stands_by(&view, now + 2 * SECOND, now + 16 * SECOND);
    }

    #[test]
    fn our_own_lease_is_created_again_at_once() {
        let mut view = view();
        let now = Instant::now();
        view.observe(Some(lease("us", 15, 1)), now);
        view.observe(None, now);
        assert_claims(&view, now);
    }

    #[test]
    fn nonsense_is_lived_with() {
        let now = Instant::now();
        for seconds in [i32::MIN, -1, 0] {
            let mut view = view();
            view.observe(Some(lease("them", seconds, 1)), now);
            assert_stands_by(&view, now, now + OWN);
        }
        for transitions in [i32::MIN, i32::MAX] {
            let mut view = view();
            let mut lease = lease("", 15, 1);
            lease.spec.as_mut().unwrap().lease_transitions = Some(transitions);
            view.observe(Some(lease), now);
            assert!(assert_claims(&view, now).lease_transitions.unwrap() > 0);
        }
        let mut view = view();
        view.observe(Some(Lease { spec: None, ..lease("", 1, 1) }), now);
        assert_eq!(assert_claims(&view, now).lease_transitions, Some(1));
    }

    #[test]
    fn only_our_own_lease_is_released() {
        let mut view = view();
        let now = Instant::now();
        for other in [None, Some(lease("them", 15, 1)), Some(lease("", 15, 1))] {
            view.observe(other, now);
            assert_eq!(view.release(wall(100)), None);
        }
        view.observe(Some(lease("us", 15, 1)), now);
        let released = view.release(wall(100)).unwrap();
        assert_eq!(released.metadata.resource_version.as_deref(), Some("7"));
        let spec = released.spec.unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(""), Some(1)));
        assert_eq!(spec.lease_transitions, Some(4));
    }

    #[test]
    fn a_part_of_a_second_counts_as_a_whole_one_for_others() {
        for (milliseconds, expected) in [(1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(seconds(Duration::from_millis(milliseconds)), expected);
        }
    }
}
