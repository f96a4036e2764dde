//! The victims that a preemptor wanted, and that their floors kept. The extender counts their
//! requests in a metric of resource-seconds that preemptors waited for because of floors.

use jiff::Timestamp;
use tenure_policy::{preemption::Rule, victims::Requests};
use tenure_types::extender::OfferedVictims;

use super::{
    PlacementIndex, PodRecord, PreemptionRequest,
    workloads::{PodWithWorkload, WorkloadCache},
};
use crate::Uid;

/// A victim that was offered, and that its floor kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptPod<'i> {
    /// The victim's uid.
    pub uid: Uid,
    /// The name of the victim's queue, which exists.
    pub queue: String,
    /// The victim's requests.
    pub requests: &'i Requests,
    /// The end of the victim's floor.
    pub until: Timestamp,
}

impl PlacementIndex {
    /// Returns the offered victims of a node that their floors keep from a preemptor, by the starts
    /// that [`Self::recompute`] last computed.
    pub fn kept<'i>(
        &'i self,
        question: &PreemptionRequest<'_>,
        offer: &OfferedVictims<'_>,
    ) -> Vec<KeptPod<'i>> {
        let Some(residents) = self.reader.places.on(&offer.node) else { return Vec::new() };
        let mut workloads = WorkloadCache::new(self, question.rules.tree);
        let mut here: Vec<PodWithWorkload<'_, 'i>> = Vec::new();
        for uid in offer.victims.iter().map(|text| Uid::of(text)) {
            if let Some(pod) = residents.find(uid)
                && here.iter().all(|of| of.uid != uid)
            {
                here.push(workloads.here(uid, pod));
            }
        }
        let pool = self.pool(question.rules.floors, &offer.node);
        let victims = here.iter().filter_map(|of| Some((of, of.victim(&workloads, pool)?)));
        let preemptor = self.preemptor(question);
        let rulings = question.rules.rulings(&preemptor, victims.clone().map(|(_, victim)| victim));
        let kept = victims.zip(rulings).filter_map(|((of, victim), ruling)| {
            let pod: &'i PodRecord = of.pod;
            let is_by_floor = ruling.rule.is_some_and(Rule::is_of_floor);
            // a queue's name becomes the label of a metric: only queues that exist, since users may
            // make up names
            victim.place.queue?;
            let queue = victim.place.name?.to_owned();
            let until = ruling.floor_until.filter(|_| is_by_floor)?;
            Some(KeptPod { uid: of.uid, queue, requests: &pod.requests, until })
        });
        kept.collect()
    }

    /// True if a pod that [`kept`](Self::kept) has returned is still on its node.
    pub fn is_running(&self, uid: Uid) -> bool {
        self.reader.places.get(uid).is_some()
    }
}
