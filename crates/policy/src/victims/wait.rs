//! The time from which protected pods of a node may be preempted. The index reports it for a node
//! without victims.

use jiff::Timestamp;

use super::{Requests, VictimCandidate, VictimSearch};
use crate::gang::PodProgress;

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

impl VictimSearch<'_, '_> {
    /// Returns when a pod may go. Never for a pod that isn't of lower priority than the preemptor,
    /// doesn't run, or frees no place.
    pub(super) fn may_go(&self, pod: &VictimCandidate<'_>) -> PreemptibleFrom {
        let is_lower = pod.priority < self.preemptor.claim.priority;
        if !is_lower || !pod.frees || pod.victim.progress != PodProgress::Running {
            return PreemptibleFrom::Never;
        }
        let ruling = self.rules.alone(self.preemptor, &pod.victim);
        match (ruling.rule, ruling.until) {
            (None, _) => PreemptibleFrom::Now,
            (Some(_), Some(until)) => PreemptibleFrom::From(until),
            (Some(_), None) => PreemptibleFrom::Never,
        }
    }
}

/// Returns the time from which enough pods may be preempted to free `needed`. None: no such time is
/// known.
pub fn enough_from(
    pods: &[VictimCandidate<'_>],
    may_go: &[PreemptibleFrom],
    needed: &Requests,
) -> Option<Timestamp> {
    let mut freed = Requests::default();
    let mut later: Vec<(Timestamp, &Requests)> = Vec::with_capacity(pods.len());
    for (pod, may_go) in pods.iter().zip(may_go) {
        match may_go {
            PreemptibleFrom::Now => freed.add(pod.requests),
            PreemptibleFrom::From(until) => later.push((*until, pod.requests)),
            PreemptibleFrom::Never => {}
        }
    }
    later.sort_unstable_by_key(|(until, _)| *until);
    let mut later = later.into_iter();
    let enough = later.find(|(_, requests)| {
        freed.add(requests);
        freed.covers(needed)
    });
    enough.map(|(until, _)| until)
}
