//! Verdicts on requests to delete or evict a pod. The webhook's guard asks for each request that
//! could concern a protected pod. The index gathers the facts about the pod; the verdict itself is
//! the policy's.

use std::cmp::Reverse;

use tenure_policy::{
    gang::PodProgress,
    guard::{GuardVerdict, GuardedPod, NominatedPod, PodFacts, RemovalRequest, spared},
    preemption::{Preemptor, QueuePlace, Rules},
    toleration,
};
use tenure_types::projection::Pod;

use super::{PlacementIndex, workloads::WorkloadCache};
use crate::Uid;

/// The inputs of a verdict besides the pods.
#[derive(Clone, Debug)]
pub struct GuardInput<'q> {
    /// The rules that decide.
    pub rules: Rules<'q>,
    /// True while some objects of the cluster aren't known yet.
    pub syncing: bool,
    /// The namespace and name of a preemptor that the extender has granted the pod to. None: no
    /// such permit is known.
    pub permit: Option<(String, String)>,
}

/// The pod that is to go.
#[derive(Clone, Copy, Debug)]
pub enum RemovedPod<'q> {
    /// The pod of the name in the request.
    Named,
    /// This pod, as the request shows it: fresher than the index's record.
    Shown(&'q Pod),
}

impl PlacementIndex {
    /// Returns the verdict on a request, by the starts that [`Self::recompute`] last computed.
    pub fn guard(
        &self,
        guarding: &GuardInput<'_>,
        asked: &RemovalRequest<'_>,
        sought: RemovedPod<'_>,
    ) -> GuardVerdict {
        let uid = match sought {
            RemovedPod::Named => self.reader.places.named(asked.namespace, asked.name),
            RemovedPod::Shown(pod) => pod.metadata.uid.as_deref().map(Uid::of),
        };
        let placed = uid.and_then(|uid| Some((uid, self.reader.places.get(uid)?)));
        let mut found = PodFacts {
            spared: match sought {
                RemovedPod::Named => placed.and_then(|(_, pod)| pod.spared),
                RemovedPod::Shown(pod) => spared(pod),
            },
            namespace_goes: self.reader.terminating_namespaces.contains_key(asked.namespace),
            syncing: guarding.syncing,
            known: None,
            permit: guarding.permit.clone(),
        };
        let Some((uid, placed)) = placed else { return found.verdict(asked) };
        let fresher = match sought {
            // the pod was bound a moment ago
            RemovedPod::Shown(shown) if placed.progress == PodProgress::Waiting => {
                Some(placed.as_shown(shown))
            }
            RemovedPod::Shown(_) | RemovedPod::Named => None,
        };
        let pod = fresher.as_ref().unwrap_or(placed);
        let node = pod.node.as_deref();
        let mut workloads = WorkloadCache::new(self, guarding.rules.tree);
        let here = workloads.here(uid, pod);
        let pool = node.and_then(|node| self.pool(guarding.rules.floors, node));
        let Some(mut victim) = here.victim(&workloads, pool) else { return found.verdict(asked) };
        if victim.place.queue.is_none() {
            victim.place = QueuePlace::default();
        }
        found.known = Some(GuardedPod {
            rules: guarding.rules,
            victim,
            priority: pod.priority,
            class: pod.class.as_deref(),
            nominated: node.map(|node| self.nominated(guarding, node)).unwrap_or_default(),
        });
        found.verdict(asked)
    }

    /// True if there is such a pod, and it isn't scheduled yet. The extender asks for the pods that
    /// it may have to wake.
    pub fn waits(&self, uid: Uid) -> bool {
        self.reader.places.get(uid).is_some_and(|pod| pod.progress == PodProgress::Waiting)
    }

    /// Returns the pods that wait for room on a node, the most important first.
    fn nominated<'i>(&'i self, guarding: &GuardInput<'_>, node: &str) -> Vec<NominatedPod<'i>> {
        let waiting = self.reader.places.nominated_to(node);
        let waiting = waiting.filter_map(|uid| {
            let pod = self.reader.places.get(uid)?;
            let place = QueuePlace::find(guarding.rules.tree, self.queue(pod));
            let claim =
                toleration::PreemptorClaim { priority: pod.priority, never_preempts: pod.never_preempts };
            let preemptor = Preemptor { place, claim };
            Some(NominatedPod { namespace: &pod.namespace, name: &pod.name, preemptor })
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|of| (Reverse(of.preemptor.claim.priority), of.namespace, of.name));
        waiting
    }
}
