//! Pods of elastic workloads that were granted a moment ago, and whose deletion isn't visible yet.
//! A scheduler asks for the next preemptor before the victims of the last one are deleted, and the
//! victims of both together could be more than a workload can spare. The extender checks each of
//! its answers with this.

use std::collections::{BTreeMap, HashMap, HashSet};

use tenure_policy::{
    gang::PodProgress,
    preemption::{Preemptor, Rules, VictimsByWorkload, Workload, WorkloadVictims},
};

use super::{
    PlacementIndex,
    answer::{PreemptiblePod, PreemptionRequest},
    workloads::{GroupNumbers, PodWithWorkload, WorkloadCache},
};
use crate::Uid;

/// The pods that may be about to go, as a question has to consider them.
pub struct Pending<'q, 'i> {
    index: &'i PlacementIndex,
    rules: Rules<'q>,
    preemptor: Preemptor<'q>,
    workloads: WorkloadCache<'q, 'i>,
    /// The grants, by the number of a group, or of a part of a group that is counted apart.
    grants: HashMap<usize, Vec<GrantedPods<'i>>>,
}

/// Pods of a group that one preemptor was granted. The preemptor gets those of one node only.
#[derive(Default)]
struct GrantedPods<'i> {
    uids: HashSet<Uid>,
    /// The numbers of granted pods by subgroup. None: in all subgroups.
    parts: BTreeMap<Option<usize>, ByNode<'i>>,
}

/// The number of pods that were granted on each node.
#[derive(Default)]
struct ByNode<'i> {
    nodes: HashMap<&'i str, u32>,
    /// The node with the most granted pods, and their number.
    most: (&'i str, u32),
    /// The greatest number of granted pods on any other node.
    second: u32,
}

impl<'i> ByNode<'i> {
    fn add(&mut self, node: &'i str) {
        let count = self.nodes.entry(node).or_default();
        *count = count.saturating_add(1);
        let (most, highest) = self.most;
        if *count > highest {
            self.second = if most == node { self.second } else { highest };
            self.most = (node, *count);
        } else if most != node {
            self.second = self.second.max(*count);
        }
    }

    /// Returns the most pods that one node may lose, where `counted` of the pods on `node` are
    /// counted already.
    fn most_beyond(&self, node: &str, counted: u32) -> u32 {
        let here = self.nodes.get(node).map_or(0, |count| count.saturating_sub(counted));
        let (most, highest) = self.most;
        here.max(if most == node { self.second } else { highest })
    }
}

impl PlacementIndex {
    /// Returns the victims that were granted to preemptors, and whose deletion isn't visible yet.
    /// Once a preemptor is nominated to a node, only its victims on that node count. Once it is
    /// placed, none count.
    ///
    /// `granted` has each preemptor's uid with the uids of its victims.
    pub fn pending<'q, 'i: 'q, 'p>(
        &'i self,
        question: &PreemptionRequest<'q>,
        granted: impl Iterator<Item = (Uid, &'p [Uid])>,
    ) -> Pending<'q, 'i> {
        let mut workloads = WorkloadCache::new(self, question.rules.tree);
        let mut grants: HashMap<usize, Vec<GrantedPods<'_>>> = HashMap::new();
        for (preemptor, victims) in granted {
            let preemptor = self.reader.places.get(preemptor);
            if preemptor.is_some_and(|pod| pod.progress != PodProgress::Waiting) {
                continue;
            }
            let nominated = preemptor.and_then(|pod| pod.nominated.as_ref());
            let mut of_groups: HashMap<usize, GrantedPods<'_>> = HashMap::new();
            for uid in victims {
                let pod = self.reader.places.get(*uid).filter(|pod| pod.progress == PodProgress::Running);
                let Some((pod, node)) = pod.and_then(|pod| Some((pod, pod.node.as_ref()?))) else { continue };
                if nominated.is_some_and(|nominated| nominated != node) {
                    continue;
                }
                let Some(of) = workloads.here(*uid, pod).group() else { continue };
                for counted in of.counted() {
                    let grant = of_groups.entry(counted).or_default();
                    if grant.uids.insert(*uid) {
                        for part in [None, Some(of.subgroup)] {
                            grant.parts.entry(part).or_default().add(node);
                        }
                    }
                }
            }
            for (group, grant) in of_groups {
                grants.entry(group).or_default().push(grant);
            }
        }
        Pending { index: self, rules: question.rules, preemptor: self.preemptor(question), workloads, grants }
    }
}

impl Pending<'_, '_> {
    /// True if the preemptor may have these victims of a node, together with the pods that may be
    /// about to go.
    pub fn spares(&mut self, node: &str, victims: &[PreemptiblePod<'_>]) -> bool {
        if self.grants.is_empty() {
            return true;
        }
        let Self { index, rules, preemptor, workloads, grants } = self;
        let shared = |of: &PreemptiblePod<'_>| {
            let here = workloads.here(of.uid, index.reader.places.get(of.uid)?);
            Some((here.group().filter(|of| grants.contains_key(&of.group))?, here))
        };
        let shared: Vec<(GroupNumbers, PodWithWorkload<'_, '_>)> =
            victims.iter().filter_map(shared).collect();
        let pool = index.pool(rules.floors, node);
        let victims = shared.iter().filter_map(|(of, here)| Some((*of, here.victim(workloads, pool)?)));
        let (mut all, mut known) = (VictimsByWorkload::default(), HashSet::new());
        for (of, victim) in victims.clone() {
            for (number, counted) in of.counted().zip(victim.counted()) {
                if known.insert(number) {
                    let grants = grants.get(&number).into_iter().flatten();
                    let here = shared.iter().filter(|(of, _)| of.counted().any(|of| of == number));
                    let here = here.map(|(of, here)| (of.subgroup, here.uid));
                    *all.of(counted) = going(grants, node, &here, counted);
                }
            }
            all.add(&victim);
        }
        let mut victims = victims;
        victims.all(|(_, victim)| rules.may_take(preemptor, &victim, &all))
    }
}

/// Returns the most pods of a group that other preemptors may take, besides the victims on this
/// node, in all and by subgroup.
fn going<'g, 'i: 'g>(
    grants: impl Iterator<Item = &'g GrantedPods<'i>>,
    node: &str,
    victims: &(impl Iterator<Item = (usize, Uid)> + Clone),
    workload: &Workload<'_>,
) -> WorkloadVictims {
    let mut going = WorkloadVictims::default();
    for grant in grants {
        for (part, by_node) in &grant.parts {
            let of_it = victims.clone().filter(|(subgroup, uid)| {
                part.is_none_or(|part| part == *subgroup) && grant.uids.contains(uid)
            });
            let most = by_node.most_beyond(node, u32::try_from(of_it.count()).unwrap_or(u32::MAX));
            match part {
                None => going.add_to_all(workload, most),
                Some(subgroup) => going.add_to_subgroup(workload, *subgroup, most),
            }
        }
    }
    going
}
