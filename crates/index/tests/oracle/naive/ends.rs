//! The ends that objects show.

use std::collections::BTreeMap;

use super::{
    Naive,
    dues::{Millis, NEVER},
};
use crate::world::{MILLI, PodObj};

/// A pod that runs for less than this needn't show its end.
const SETTLED: Millis = 10_000;

/// A workload whose object shows another end than its run has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleEnd {
    pub namespace: u8,
    /// Its root owner, or a pod without one.
    pub object: u32,
    pub end: Option<Millis>,
    /// The pod whose run ends first.
    pub pod: u32,
    pub shown: Option<Millis>,
}

impl Naive {
    pub fn stale_ends(&self) -> Vec<StaleEnd> {
        let mut workloads: BTreeMap<(u8, u32), Vec<&PodObj>> = BTreeMap::new();
        for pod in self.kept() {
            let object = self.root(pod.controller).unwrap_or(pod.uid);
            workloads.entry((pod.namespace, object)).or_default().push(pod);
        }
        workloads.into_iter().filter_map(|(of, pods)| self.stale_end(of, &pods)).collect()
    }

    fn stale_end(&self, (namespace, object): (u8, u32), pods: &[&PodObj]) -> Option<StaleEnd> {
        let end = |pod: &PodObj| self.dues[&pod.uid].expires.unwrap_or(NEVER);
        let first = pods.iter().min_by_key(|pod| (end(pod), pod.uid))?;
        let owner = self.owners.get(&object);
        let is_known = object == first.uid || owner.is_some_and(|owner| owner.namespace == namespace);
        let shown = self.shown.get(&object).copied().filter(|_| is_known);
        let end = Some(end(first)).filter(|end| *end != NEVER);
        let begun = self.started(first).map_or(first.created, |at| at / MILLI);
        let now = self.now.div_euclid(MILLI);
        let is_right = shown == end || end.is_some_and(|end| end <= now);
        let is_settled = now - begun >= SETTLED;
        (!is_right && is_settled).then_some(StaleEnd { namespace, object, end, pod: first.uid, shown })
    }

    /// True if a try was made to show this end, and nothing has changed since.
    pub fn was_tried(&self, stale: &StaleEnd) -> bool {
        self.tried_ends.contains_key(&(stale.namespace, stale.object))
    }

    pub fn try_end(&mut self, stale: &StaleEnd) {
        self.tried_ends.insert((stale.namespace, stale.object), (stale.end, stale.shown));
    }

    /// The end of a workload was not written.
    pub fn doubt_end(&mut self, stale: &StaleEnd) {
        self.tried_ends.remove(&(stale.namespace, stale.object));
    }

    pub fn forget_ends(&mut self) {
        self.tried_ends.clear();
    }

    pub(super) fn observe_ends(&mut self) {
        if self.tried_ends.is_empty() {
            return;
        }
        let stale = self.stale_ends();
        self.tried_ends.retain(|of, tried| {
            stale.iter().any(|now| (now.namespace, now.object) == *of && (now.end, now.shown) == *tried)
        });
    }
}
