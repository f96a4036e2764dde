//! The recent grants of the extender.
//!
//! The guard reads them because the deletion of a victim names no preemptor. The extender reads the
//! latest ones because a scheduler asks again before it has deleted its victims: so two grants
//! together don't take more of a group than the group can lose.
//!
//! Nothing is shared between replicas.

use std::{collections::VecDeque, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenure_index::Uid;

/// The time for which a permit is valid. A scheduler deletes its victims at once, and retries for
/// some time on failure.
const VALID_FOR: SignedDuration = SignedDuration::from_secs(60);

/// The time after which a permit is settled: the deletions of its victims are visible in the index.
pub const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// The most victims in all permits together: some megabytes. Beyond that, the oldest settled
/// permits are forgotten.
const MOST_VICTIMS: usize = 500_000;

/// The most permits if none is settled: more than a scheduler asks for in that time. Beyond that,
/// the oldest is forgotten.
const MOST_UNSETTLED: usize = 1_000;

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
    /// The victims in groups, on all nodes.
    pub of_groups: Vec<Uid>,
    /// The other victims, on all nodes.
    pub others: Vec<Uid>,
}

impl Permits {
    /// Grants a permit, in place of an earlier one of the same preemptor.
    pub fn grant(&self, permit: Permit) {
        let mut granted = self.0.lock();
        let now = permit.at;
        granted.retain(|old| old.preemptor != permit.preemptor && !is_older(old, VALID_FOR, now));
        granted.victims = granted.victims.saturating_add(permit.victims());
        granted.permits.push_back(PermitEntry { permit, is_sorted: false });
        granted.shrink(now);
    }

    /// Forgets the permit that was granted to a preemptor at that time.
    pub fn revoke(&self, preemptor: &str, at: Timestamp) {
        self.0.lock().retain(|permit| permit.preemptor != preemptor || permit.at != at);
    }

    /// Returns the namespace and name of the preemptor that may have this victim, by the latest
    /// valid permit. None: no valid permit has it.
    pub fn covering(&self, victim: Uid, now: Timestamp) -> Option<(String, String)> {
        let mut granted = self.0.lock();
        let mut valid =
            granted.permits.iter_mut().rev().filter(|entry| !is_older(&entry.permit, VALID_FOR, now));
        let PermitEntry { permit, .. } = valid.find_map(|entry| entry.covers(victim).then_some(entry))?;
        Some((permit.namespace.clone(), permit.name.clone()))
    }

    /// Returns the permits of other preemptors that aren't settled: each preemptor with its victims
    /// in groups. Copies them, so that the guard needn't wait for an answer to a scheduler.
    pub fn unsettled(&self, preemptor: &str, now: Timestamp) -> Vec<(Uid, Vec<Uid>)> {
        let granted = self.0.lock();
        let permits = granted.permits.iter().map(|entry| &entry.permit);
        let of_others = permits.filter(|of| of.preemptor != preemptor && !is_older(of, SETTLED_AFTER, now));
        of_others.map(|of| (Uid::of(&of.preemptor), of.of_groups.clone())).collect()
    }
}

impl Permit {
    /// Returns the number of victims.
    fn victims(&self) -> usize {
        self.of_groups.len().saturating_add(self.others.len())
    }
}

impl PermitEntry {
    /// True if the permit has this victim.
    fn covers(&mut self, victim: Uid) -> bool {
        let Permit { of_groups, others, .. } = &mut self.permit;
        if !self.is_sorted {
            of_groups.sort_unstable();
            others.sort_unstable();
            self.is_sorted = true;
        }
        of_groups.binary_search(&victim).is_ok() || others.binary_search(&victim).is_ok()
    }
}

impl PermitQueue {
    /// Keeps the permits that `keep` is true for, and counts their victims.
    fn retain(&mut self, keep: impl Fn(&Permit) -> bool) {
        self.permits.retain(|entry| keep(&entry.permit));
        self.victims = self.permits.iter().map(|entry| entry.permit.victims()).sum();
    }

    /// Forgets the oldest permits until the others are within the bounds.
    fn shrink(&mut self, now: Timestamp) {
        while let Some(PermitEntry { permit: oldest, .. }) = self.permits.front() {
            let is_within = if is_older(oldest, SETTLED_AFTER, now) {
                self.victims <= MOST_VICTIMS
            } else {
                self.permits.len() <= MOST_UNSETTLED
            };
            if is_within {
                return;
            }
            self.victims = self.victims.saturating_sub(oldest.victims());
            self.permits.pop_front();
        }
    }
}

/// True if a permit was granted at least this time ago.
fn is_older(permit: &Permit, age: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(permit.at) >= age
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
            of_groups: victims.iter().map(|uid| Uid::of(uid)).collect(),
            others: vec![Uid::of("alone")],
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
        assert_eq!(covering(&permits, "alone", 59).as_deref(), Some("p"));
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

    fn unsettled(permits: &Permits, of: &str, at: i64) -> Vec<Uid> {
        permits.unsettled(of, second(at)).into_iter().flat_map(|(_, victims)| victims).collect()
    }

    #[test]
    fn the_victims_of_others_in_groups_count_as_gone_until_the_deletions_are_visible() {
        let permits = Permits::default();
        permits.grant(permit("p", 0, &["a"]));
        permits.grant(permit("q", 1, &["b"]));
        permits.grant(permit("p", 2, &["c"]));
        assert_eq!(unsettled(&permits, "p", 5), [Uid::of("b")]);
        assert_eq!(unsettled(&permits, "r", 5), [Uid::of("b"), Uid::of("c")]);
        assert_eq!(unsettled(&permits, "r", 6), [Uid::of("c")]);
        assert_eq!(unsettled(&permits, "r", 7), []);
    }

    #[test]
    fn the_oldest_settled_permits_go_when_there_are_too_many_victims() {
        let permits = Permits::default();
        let victims: Vec<String> = (0..MOST_VICTIMS).map(|uid| uid.to_string()).collect();
        let victims: Vec<&str> = victims.iter().map(String::as_str).collect();
        permits.grant(permit("first", 0, &["a"]));
        permits.grant(permit("second", 4, &victims));
        assert_eq!(covering(&permits, "a", 4).as_deref(), Some("first"), "its deletions may not be visible");
        permits.grant(permit("third", 5, &["b"]));
        assert_eq!(covering(&permits, "a", 5), None);
        assert_eq!(covering(&permits, "7", 5).as_deref(), Some("second"));
        permits.grant(permit("fourth", 70, &["a"]));
        assert_eq!(permits.0.lock().victims, 2);
    }

    #[test]
    fn no_more_unsettled_permits_are_kept_than_a_scheduler_gets_to() {
        let permits = Permits::default();
        for number in 0..=MOST_UNSETTLED {
            permits.grant(permit(&number.to_string(), 0, &[&number.to_string()]));
        }
        assert_eq!(permits.0.lock().permits.len(), MOST_UNSETTLED);
        assert_eq!((covering(&permits, "0", 1), covering(&permits, "1", 1)), (None, Some("1".to_owned())));
    }
}
