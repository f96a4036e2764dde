//! Pods of elastic workloads that were given away a moment ago, before that is to be seen: a scheduler asks for the next
//! preemptor before the victims of the last one are deleted, and together they could be more than a workload can spare.

use std::collections::{BTreeMap, HashMap, HashSet};

use tenure_policy::{
    gang::Progress,
    preemption::{Going, Preemptor, Rules, Workload},
};

use super::{
    Placed, PlacementIndex,
    answer::{Question, Taken},
    workloads::Workloads,
};
use crate::{Uid, podgroups::GangId};

/// The pods that may be about to go, for a question.
pub struct Pending<'q, 'i> {
    index: &'i PlacementIndex,
    rules: Rules<'q>,
    preemptor: Preemptor<'q>,
    workloads: Workloads<'q, 'i>,
    grants: HashMap<GangId, Vec<Grant<'i>>>,
}

/// A victim of a group of which others were granted pods.
struct Shared<'i> {
    uid: Uid,
    pod: &'i Placed,
    group: GangId,
    subgroup: usize,
}

/// Pods of a group that one preemptor was granted. It gets those of one node.
#[derive(Default)]
struct Grant<'i> {
    uids: HashSet<Uid>,
    all: ByNode<'i>,
    of_subgroups: BTreeMap<usize, ByNode<'i>>,
}

/// How many pods were granted on each node.
#[derive(Default)]
struct ByNode<'i> {
    nodes: HashMap<&'i str, u32>,
    most: (&'i str, u32),
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

    /// The most that a node may lose, if so many of those on this one are counted already.
    fn most_beyond(&self, node: &str, counted: u32) -> u32 {
        let here = self.nodes.get(node).map_or(0, |count| count.saturating_sub(counted));
        let (most, highest) = self.most;
        here.max(if most == node { self.second } else { highest })
    }
}

impl PlacementIndex {
    /// Of the victims that were granted to preemptors, those that aren't to be seen going yet. Once it is known to which
    /// node a preemptor is nominated, only those there are; and none, once it was placed.
    pub fn pending<'q, 'i: 'q, 'p>(
        &'i self,
        question: &Question<'q>,
        granted: impl Iterator<Item = (Uid, &'p [Uid])>,
    ) -> Pending<'q, 'i> {
        let mut grants: HashMap<_, Vec<Grant<'_>>> = HashMap::new();
        for (preemptor, victims) in granted {
            let preemptor = self.reader.places.get(preemptor);
            if preemptor.is_some_and(|pod| pod.progress != Progress::Waiting) {
                continue;
            }
            let nominated = preemptor.and_then(|pod| pod.nominated.as_ref());
            let mut of_groups: HashMap<GangId, Grant<'_>> = HashMap::new();
            for uid in victims {
                let pod = self.reader.places.get(*uid).filter(|pod| pod.progress == Progress::Running);
                let Some((pod, node)) = pod.and_then(|pod| Some((pod, pod.node.as_ref()?))) else { continue };
                let may_go = nominated.is_none_or(|nominated| nominated == node);
                let Some((group, subgroup)) = self.part(pod).filter(|_| may_go) else { continue };
                let grant = of_groups.entry(group).or_default();
                if grant.uids.insert(*uid) {
                    grant.all.add(node);
                    grant.of_subgroups.entry(subgroup).or_default().add(node);
                }
            }
            for (group, grant) in of_groups {
                grants.entry(group).or_default().push(grant);
            }
        }
        Pending {
            index: self,
            rules: question.rules(),
            preemptor: self.preemptor(question),
            workloads: Workloads::new(self, question.tree),
            grants,
        }
    }

    fn part(&self, pod: &Placed) -> Option<(GangId, usize)> {
        let group = self.objects.gangs.counted(pod.memberships())?;
        Some((group.id(), group.number(pod.memberships())))
    }
}

impl<'i> Pending<'_, 'i> {
    /// True if the preemptor may have these victims of a node together with those that may be about to go.
    pub fn spares(&mut self, node: &str, victims: &[Taken<'_>]) -> bool {
        if self.grants.is_empty() {
            return true;
        }
        let shared = |of: &Taken<'_>| {
            let pod: &'i Placed = self.index.reader.places.get(of.uid)?;
            let (group, subgroup) = self.index.part(pod)?;
            self.grants.contains_key(&group).then_some(Shared { uid: of.uid, pod, group, subgroup })
        };
        let victims: Vec<Shared<'i>> = victims.iter().filter_map(shared).collect();
        let here = self.workloads.here(victims.iter().map(|of| (of.uid, of.pod)));
        let pool = self.index.pool(self.rules.floors, node);
        let views = here.iter().filter_map(|of| of.victim(self.workloads.all(), pool));
        let views: Vec<_> = views.zip(&victims).collect();
        let mut all: HashMap<GangId, Going> = HashMap::new();
        for (view, of) in &views {
            let granted = || self.granted(node, &victims, of.group, view.workload);
            let pods = u32::from(view.progress == Progress::Running);
            all.entry(of.group).or_insert_with(granted).add(view.workload, of.subgroup, pods);
        }
        let may_take = |view, going| self.rules.may_take(&self.preemptor, view, going);
        views.iter().all(|(view, of)| all.get(&of.group).is_none_or(|going| may_take(view, going)))
    }

    /// The most that the others take of a group besides these victims of a node.
    fn granted(&self, node: &str, victims: &[Shared<'_>], group: GangId, workload: &Workload<'_>) -> Going {
        let mut going = Going::default();
        for grant in self.grants.get(&group).into_iter().flatten() {
            let counted = |only: Option<usize>| {
                let of_it = victims.iter().filter(|of| {
                    of.group == group
                        && only.is_none_or(|only| only == of.subgroup)
                        && grant.uids.contains(&of.uid)
                });
                u32::try_from(of_it.count()).unwrap_or(u32::MAX)
            };
            going.add_to_all(workload, grant.all.most_beyond(node, counted(None)));
            for (subgroup, by_node) in &grant.of_subgroups {
                let most = by_node.most_beyond(node, counted(Some(*subgroup)));
                going.add_to_subgroup(workload, *subgroup, most);
            }
        }
        going
    }
}
