//! What the ledger of usage asks of the cluster.

use arcstr::ArcStr;
use tenure_policy::expiry::Family;
use tenure_types::projection;

use super::{CeilingIndex, limits};
use crate::{RunPlace, Uid};

impl CeilingIndex {
    /// Returns the queues of a pod by the queues, `PodGroup`s and owners that are known, and the end that its ceiling sets;
    /// none if it is in no queue.
    pub fn run_place(&mut self, pod: &projection::Pod) -> Option<RunPlace> {
        let seen = self.see(pod)?;
        self.objects.gangs.compute();
        let of_groups = self.objects.gangs.of(&seen.of);
        let lacking = of_groups.lacking;
        let standing = limits::standing(&mut self.objects, seen.uid, &seen.pod, of_groups);
        if standing.tensorstack.is_none() && standing.runai.is_none() {
            return None;
        }
        let rules = self.reader.pods_ready;
        let ready_until = limits::ready_until(&mut self.objects, rules, &seen.pod, lacking, &standing);
        let is_exempt = self.reader.deadlines.exempts(pod);
        // pods may name any queue: what is counted by queue has no other queues than there are
        let mut existing = |family, queue: Option<ArcStr>| {
            queue.map(
                |queue| {
                    if self.objects.limits(family, &queue).is_some() { queue } else { ArcStr::new() }
                },
            )
        };
        Some(RunPlace {
            tensorstack: existing(Family::Tensorstack, standing.tensorstack),
            runai: existing(Family::Runai, standing.runai),
            is_grouped: standing.is_grouped,
            deadline: standing.expires.map(|(at, _)| at).filter(|_| !is_exempt),
            ready_until: ready_until.map(|of| of.at).filter(|_| !is_exempt && !standing.is_grouped),
        })
    }

    /// The pods of queues that an owner controls, directly or not.
    pub fn controlled_pods(&self, owner: Uid) -> Vec<Uid> {
        let owners = self.objects.owners.with_descendants(owner).into_iter();
        owners.flat_map(|of| self.reader.deadlines.controlled_by(of).map(|(uid, _)| uid)).collect()
    }
}
