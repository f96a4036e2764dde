//! The time from which protected pods of a node may be preempted. The index reports it for a node
//! without victims.

use jiff::Timestamp;

use super::{Requests, VictimCandidate, VictimSearch};
use crate::{
    gang::PodProgress,
    preemption::{Rule, Victim},
};

/// The time from which a pod may be preempted in place of another, if no other pod of its workload
/// goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptibleFrom {
    /// Nothing protects the pod.
    Now,
    /// The protection of the pod ends at this time.
    From(Timestamp),
    /// The protection of the pod has no known end, or the pod may never be preempted.
    Never,
}

impl PreemptibleFrom {
    /// Reads the rule that protects a pod, and the end of its protection.
    pub fn ruled((rule, until): (Option<Rule>, Option<Timestamp>)) -> Self {
        match (rule, until) {
            (None, _) => Self::Now,
            (Some(_), Some(until)) => Self::From(until),
            (Some(_), None) => Self::Never,
        }
    }
}

impl VictimSearch<'_, '_> {
    /// Returns when a pod may go. Never for a pod that isn't of lower priority than the preemptor,
    /// doesn't run, or frees no place.
    pub(super) fn may_go(&self, pod: &VictimCandidate<'_>) -> PreemptibleFrom {
        let is_lower = pod.priority < self.preemptor.claim.priority;
        if !is_lower || !pod.frees || pod.victim.progress != PodProgress::Running {
            return PreemptibleFrom::Never;
        }
        if !pod.victim.unit().is_elastic() {
            return PreemptibleFrom::ruled(self.own(&pod.victim));
        }
        let ruling = self.rules.alone(self.preemptor, &pod.victim);
        PreemptibleFrom::ruled((ruling.rule, ruling.until))
    }

    /// Returns the rule that protects a victim no matter which other pods go, and the end of its
    /// protection.
    pub(super) fn own(&self, victim: &Victim<'_>) -> (Option<Rule>, Option<Timestamp>) {
        let floor = self.rules.applied(self.preemptor, &victim.place, victim.pool);
        self.rules.own(self.preemptor, &victim.own(floor))
    }
}

/// The requests of a node's pods, by the time from which each pod may be preempted.
#[derive(Debug, Default)]
pub struct RoomOverTime<'r> {
    /// The requests of the pods that may be preempted now.
    now: Requests,
    later: Vec<(Timestamp, &'r Requests)>,
}

impl<'r> RoomOverTime<'r> {
    /// Forgets all pods, and keeps the memory for others.
    pub fn clear(&mut self) {
        self.now = Requests::default();
        self.later.clear();
    }

    /// Adds a pod.
    pub fn add(&mut self, from: PreemptibleFrom, requests: &'r Requests) {
        match from {
            PreemptibleFrom::Now => self.now.add(requests),
            PreemptibleFrom::From(until) => self.later.push((until, requests)),
            PreemptibleFrom::Never => {}
        }
    }

    /// True if the pods that may be preempted now free `needed`.
    pub fn is_enough(&self, needed: &Requests) -> bool {
        self.now.covers(needed)
    }

    /// Returns the time from which enough other pods may be preempted to free `needed`. None: no
    /// such time is known.
    pub fn enough_from(&mut self, needed: &Requests) -> Option<Timestamp> {
        self.later.sort_unstable_by_key(|(until, _)| *until);
        let mut later = self.later.iter();
        let enough = later.find(|(_, requests)| {
            self.now.add(requests);
            self.now.covers(needed)
        });
        enough.map(|(until, _)| *until)
    }
}
