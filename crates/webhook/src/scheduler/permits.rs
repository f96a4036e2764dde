//! The recent grants of the extender, for the guard: the deletion of a victim names no preemptor.
//!
//! The extender grants and revokes permits, and the guard of the same replica reads them. Nothing
//! is shared between replicas.

use std::{collections::VecDeque, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenure_index::Uid;

/// The time for which a permit is valid. A scheduler deletes its victims at once, and retries for
/// some time on failure.
const VALID_FOR: SignedDuration = SignedDuration::from_secs(60);

/// The most victims in all permits together: some megabytes. Beyond that, the oldest permits are
/// forgotten.
const MOST_VICTIMS: usize = 500_000;

/// Permits of the last minute. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Permits(Arc<Mutex<PermitQueue>>);

/// A permit. Its victims are sorted at the guard's first lookup, not at the grant: a scheduler
/// waits for the grant.
#[derive(Debug)]
struct PermitEntry {
    permit: Permit,
    is_sorted: bool,
}

#[derive(Debug, Default)]
struct PermitQueue {
    /// The oldest first.
    permits: VecDeque<PermitEntry>,
    /// The number of victims in all permits together.
    victims: usize,
}

/// The victims that a preemptor may have.
#[derive(Clone, Debug)]
pub struct Permit {
    /// The uid of the pod that wants room.
    pub preemptor: String,
    /// The preemptor's namespace.
    pub namespace: String,
    /// The preemptor's name.
    pub name: String,
    /// The time of the grant.
    pub at: Timestamp,
    /// The victims on all nodes.
    pub victims: Vec<Uid>,
}

impl Permits {
    /// Grants a permit, in place of an earlier one of the same preemptor.
    pub fn grant(&self, permit: Permit) {
        let mut granted = self.0.lock();
        granted.retain(|old| old.preemptor != permit.preemptor && is_valid(old, permit.at));
        granted.victims = granted.victims.saturating_add(permit.victims.len());
        granted.permits.push_back(PermitEntry { permit, is_sorted: false });
        while granted.victims > MOST_VICTIMS && granted.permits.len() > 1 {
            if let Some(oldest) = granted.permits.pop_front() {
                granted.victims = granted.victims.saturating_sub(oldest.permit.victims.len());
            }
        }
    }

    /// Forgets the permit that was granted to a preemptor at that time.
    pub fn revoke(&self, preemptor: &str, at: Timestamp) {
        self.0.lock().retain(|permit| permit.preemptor != preemptor || permit.at != at);
    }

    /// Returns the namespace and name of the preemptor that may have this victim, by the latest
    /// valid permit. None: no valid permit has it.
    pub fn covering(&self, victim: Uid, now: Timestamp) -> Option<(String, String)> {
        let mut granted = self.0.lock();
        let mut valid = granted.permits.iter_mut().rev().filter(|entry| is_valid(&entry.permit, now));
        let PermitEntry { permit, .. } = valid.find_map(|entry| entry.covers(victim).then_some(entry))?;
        Some((permit.namespace.clone(), permit.name.clone()))
    }
}

impl PermitEntry {
    /// True if the permit has this victim.
    fn covers(&mut self, victim: Uid) -> bool {
        if !self.is_sorted {
            self.permit.victims.sort_unstable();
            self.is_sorted = true;
        }
        self.permit.victims.binary_search(&victim).is_ok()
    }
}

impl PermitQueue {
    /// Keeps the permits that `keep` is true for, and counts their victims.
    fn retain(&mut self, keep: impl Fn(&Permit) -> bool) {
        self.permits.retain(|entry| keep(&entry.permit));
        self.victims = self.permits.iter().map(|entry| entry.permit.victims.len()).sum();
    }
}

/// True while the guard may use a permit.
fn is_valid(permit: &Permit, now: Timestamp) -> bool {
    now.duration_since(permit.at) < VALID_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(preemptor: &str, at: i64, victims: &[&str]) -> Permit {
        Permit {
            preemptor: preemptor.to_owned(),
            namespace: "ns".to_owned(),
            name: preemptor.to_owned(),
            at: second(at),
            victims: victims.iter().map(|uid| Uid::of(uid)).collect(),
        }
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn covering(permits: &Permits, victim: &str, at: i64) -> Option<String> {
        permits.covering(Uid::of(victim), second(at)).map(|(_, name)| name)
    }

    #[test]
    fn a_permit_covers_its_victims_for_a_minute() {
        let permits = Permits::default();
        permits.grant(permit("p", 0, &["b", "a"]));
        assert_eq!(covering(&permits, "a", 59).as_deref(), Some("p"));
        assert_eq!(covering(&permits, "b", 59).as_deref(), Some("p"));
        assert_eq!(covering(&permits, "c", 59), None);
        assert_eq!(covering(&permits, "a", 60), None);
    }

    #[test]
    fn the_last_answer_to_a_preemptor_is_the_one_that_counts() {
        let permits = Permits::default();
        permits.grant(permit("p", 0, &["a"]));
        permits.grant(permit("other", 0, &["c"]));
        permits.grant(permit("p", 1, &["b"]));
        assert_eq!(covering(&permits, "a", 2), None);
        assert_eq!(covering(&permits, "b", 2).as_deref(), Some("p"));
        assert_eq!(covering(&permits, "c", 2).as_deref(), Some("other"));
    }

    #[test]
    fn a_revoked_permit_covers_no_victim_and_one_that_was_granted_later_stays() {
        let permits = Permits::default();
        permits.grant(permit("p", 0, &["a"]));
        permits.revoke("p", second(0));
        assert_eq!(covering(&permits, "a", 1), None);
        permits.grant(permit("p", 1, &["a"]));
        permits.revoke("p", second(0));
        permits.revoke("other", second(1));
        assert_eq!(covering(&permits, "a", 1).as_deref(), Some("p"));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_newest_always_is() {
        let permits = Permits::default();
        let victims: Vec<String> = (0..MOST_VICTIMS).map(|uid| uid.to_string()).collect();
        let victims: Vec<&str> = victims.iter().map(String::as_str).collect();
        permits.grant(permit("first", 0, &["a"]));
        permits.grant(permit("second", 0, &victims));
        assert_eq!(covering(&permits, "a", 1), None);
        assert_eq!(covering(&permits, "7", 1).as_deref(), Some("second"));
        permits.grant(permit("third", 70, &["a"]));
        assert_eq!(permits.0.lock().victims, 1);
    }
}
