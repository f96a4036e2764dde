//! The grants of the last seconds whose victims are in groups: a scheduler asks again before it has
//! deleted its victims. So two grants together don't take more of a group than the group can lose.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use tenure_index::Uid;

/// The time after which the deletions of a grant are visible in the index.
pub const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// The most grants that are kept: more than a scheduler asks for in that time. Beyond it the oldest
/// is dropped.
const MOST: usize = 1_000;

/// The last grants, the oldest first.
#[derive(Debug, Default)]
pub struct RecentGrants(VecDeque<RecentGrant>);

#[derive(Debug)]
struct RecentGrant {
    preemptor: Uid,
    at: Timestamp,
    victims: Vec<Uid>,
}

impl RecentGrants {
    /// Adds a grant, in place of an earlier one to the same preemptor. Without victims, only
    /// removes that.
    pub fn add(&mut self, preemptor: Uid, at: Timestamp, victims: Vec<Uid>) {
        self.0.retain(|old| old.preemptor != preemptor && is_recent(old, at));
        if victims.is_empty() {
            return;
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(RecentGrant { preemptor, at, victims });
    }

    /// Forgets the grant to a preemptor at that time.
    pub fn remove(&mut self, preemptor: Uid, at: Timestamp) {
        self.0.retain(|grant| grant.preemptor != preemptor || grant.at != at);
    }

    /// Returns the recent grants to other preemptors, each with its victims.
    pub fn to_others(&self, preemptor: Uid, now: Timestamp) -> impl Iterator<Item = (Uid, &[Uid])> {
        let others = self.0.iter().filter(move |of| of.preemptor != preemptor && is_recent(of, now));
        others.map(|of| (of.preemptor, of.victims.as_slice()))
    }
}

/// True until the deletions of a grant are visible.
fn is_recent(grant: &RecentGrant, now: Timestamp) -> bool {
    now.duration_since(grant.at) < SETTLED_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_others(recent_grants: &RecentGrants, of: &str, at: i64) -> Vec<Uid> {
        let now = Timestamp::from_second(at).unwrap();
        recent_grants.to_others(Uid::of(of), now).flat_map(|(_, victims)| victims.to_vec()).collect()
    }

    #[test]
    fn what_others_were_granted_last_counts_for_a_moment() {
        let mut recent_grants = RecentGrants::default();
        let mut add = |preemptor: &str, at, victim: &str| {
            recent_grants.add(Uid::of(preemptor), Timestamp::from_second(at).unwrap(), vec![Uid::of(victim)]);
        };
        add("p", 0, "a");
        add("q", 1, "b");
        add("p", 2, "c");
        assert_eq!(to_others(&recent_grants, "p", 5), [Uid::of("b")]);
        assert_eq!(to_others(&recent_grants, "r", 5), [Uid::of("b"), Uid::of("c")]);
        assert_eq!(to_others(&recent_grants, "r", 6), [Uid::of("c")]);
        assert_eq!(to_others(&recent_grants, "r", 7), []);
    }

    #[test]
    fn no_more_are_kept_than_a_scheduler_gets_to() {
        let mut recent_grants = RecentGrants::default();
        for number in 0..=MOST {
            recent_grants.add(Uid::of(&number.to_string()), Timestamp::UNIX_EPOCH, vec![Uid::of("v")]);
        }
        assert_eq!(recent_grants.0.len(), MOST);
    }
}
