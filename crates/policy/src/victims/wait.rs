//! When pods of a node may go that may not go now.

use jiff::Timestamp;

use super::{Candidate, Requests, Search};
use crate::gang::Progress;

/// When a pod may go in place of another, if no other of its workload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayGo {
    /// Nothing protects it.
    Now,
    /// When its protection ends.
    From(Timestamp),
    /// Its protection has no end that is known, or it is none that a preemptor may have.
    Never,
}

impl Search<'_, '_> {
    pub(super) fn may_go(&self, pod: &Candidate<'_>) -> MayGo {
        let is_lower = pod.priority < self.preemptor.claim.priority;
        if !is_lower || !pod.frees || pod.victim.progress != Progress::Running {
            return MayGo::Never;
        }
        let ruling = self.rules.alone(self.preemptor, &pod.victim);
        match (ruling.rule, ruling.until) {
            (None, _) => MayGo::Now,
            (Some(_), Some(until)) => MayGo::From(until),
            (Some(_), None) => MayGo::Never,
        }
    }
}

/// A time before which the pods that may go don't free as much: when enough of them have lost their protection. None if
/// they never do, as far as it is known.
pub fn enough_from(pods: &[Candidate<'_>], may_go: &[MayGo], needed: &Requests) -> Option<Timestamp> {
    let mut freed = Requests::default();
    let mut later: Vec<(Timestamp, &Requests)> = Vec::with_capacity(pods.len());
    for (pod, may_go) in pods.iter().zip(may_go) {
        match may_go {
            MayGo::Now => freed.add(pod.requests),
            MayGo::From(until) => later.push((*until, pod.requests)),
            MayGo::Never => {}
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
