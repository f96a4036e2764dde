//! Pods that start and stop as one: the pods that count, the minimums, and the start that the pods
//! show.
//!
//! The index counts the pods of each `PodGroup` with this module, and `crate::preemption` decides
//! which of them may go. A pod without a group is a workload of one pod.
//!
//! A minimum has the meaning that its own scheduler gives it. In a `PodGroup`, each subgroup has a
//! minimum of pods. A parent of subgroups has a minimum of children that must meet their own
//! minimums. The whole has a minimum of pods besides.

mod counts;
mod crews;
mod tree;

use jiff::Timestamp;
use tenure_types::{
    podgroup::PodGroupKind,
    projection::{Pod, PodGroupSpec},
};

pub use counts::{AttainedCounts, GangCounts, Headcount};
pub use crews::{CountedPods, CrewMember, Crews};
use tree::SubgroupTree;

/// The subgroup of pods that name none.
const DEFAULT_SUBGROUP: &str = "default";

/// The progress of a pod, as far as a workload counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodProgress {
    /// The pod isn't scheduled yet.
    Waiting,
    /// The pod is scheduled.
    Running,
    /// The pod has ended, or is terminating: it has nothing to lose.
    Gone,
}

/// Returns the progress of a pod.
pub fn progress(pod: &Pod) -> PodProgress {
    if pod.metadata.deletion_timestamp.is_some() || pod.is_finished() {
        PodProgress::Gone
    } else if pod.scheduled_at().is_some() {
        PodProgress::Running
    } else {
        PodProgress::Waiting
    }
}

/// The minimums of a workload, in all and by subgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangShape {
    /// The kind of the workload's group. None: the workload is a pod by itself.
    pub kind: Option<PodGroupKind>,
    /// The minimum of all pods together. The minimums of subgroups apply besides.
    pub minimum: u32,
    /// The subgroups. None: no subgroup has pods.
    tree: Option<Box<SubgroupTree>>,
}

impl GangShape {
    /// Creates the shape of a `PodGroup`. If `minMember` is unset, the minimum of all pods is 1 in
    /// a group without subgroups, and 0 in a group with subgroups, whose own minimums apply.
    pub fn of(kind: PodGroupKind, spec: &PodGroupSpec) -> Self {
        let tree = SubgroupTree::new(&spec.sub_groups, spec.min_sub_group).map(Box::new);
        let unset = u32::from(tree.is_none());
        Self { kind: Some(kind), minimum: spec.min_member.unwrap_or(unset), tree }
    }

    /// Returns the shape of a pod by itself: a minimum of one pod.
    pub const fn alone() -> &'static Self {
        const ALONE: &GangShape = &GangShape { kind: None, minimum: 1, tree: None };
        ALONE
    }

    /// Returns the number of subgroups that have pods. Subgroups are numbered from 0.
    pub fn leaves(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.leaves())
    }

    /// Returns the fewest pods that meet all minimums. `u32::MAX`: no number of pods does.
    pub fn least(&self) -> u32 {
        self.minimum.max(self.tree.as_ref().map_or(0, |tree| tree.least()))
    }

    /// Returns the number of a pod's subgroup. [`Self::leaves`]: the pod names no subgroup that has
    /// pods.
    pub fn subgroup(&self, pod: &Pod) -> usize {
        self.number(self.kind.and_then(|kind| kind.subgroup(pod)))
    }

    /// Returns the number of the subgroup that a pod names. None: the pod names none, and is in
    /// subgroup `default`. The result is [`Self::leaves`] if no subgroup with pods has that name.
    pub fn number(&self, named: Option<&str>) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.find(named.unwrap_or(DEFAULT_SUBGROUP)))
    }

    /// Creates counts of `total` pods. `of_leaf` returns the pods of a subgroup by its number. A
    /// pod of no subgroup counts only towards the total.
    pub fn counts(&self, total: u32, of_leaf: impl Fn(usize) -> u32) -> GangCounts {
        GangCounts { total, nodes: self.tree.as_ref().map_or_else(Box::default, |tree| tree.counts(of_leaf)) }
    }

    /// Counts the pods of a workload. Pods that have ended, or are terminating, don't count.
    pub fn count<'p>(&self, pods: impl Iterator<Item = &'p Pod>) -> Headcount {
        let live =
            pods.map(|pod| (self.subgroup(pod), progress(pod))).filter(|(_, of)| *of != PodProgress::Gone);
        self.tally(live.map(|(number, progress)| (number, progress == PodProgress::Running)))
    }

    /// Counts live pods. `pods` has the number of each pod's subgroup, and true if the pod is
    /// scheduled.
    pub fn tally(&self, pods: impl Iterator<Item = (usize, bool)>) -> Headcount {
        let none = self.counts(0, |_| 0);
        let (mut live, mut running) = (none.clone(), none);
        for (number, runs) in pods {
            live.add(self, number);
            if runs {
                running.add(self, number);
            }
        }
        Headcount::new(self, &live, running)
    }

    /// Sorts the live pods of an elastic workload by [seniority](Crews).
    pub fn crews<C: Ord + Copy, S: Ord + Copy>(
        &self,
        pods: impl Iterator<Item = CrewMember<C, S>>,
    ) -> Crews<C, S> {
        Crews::new(self, pods)
    }

    /// Returns for each pod whether the minimums need it. If they need only some of several pods,
    /// the last ones are spared. `pods` has the number of each pod's subgroup. All pods together
    /// must meet the minimums.
    fn needed(&self, pods: impl DoubleEndedIterator<Item = usize> + Clone) -> Vec<bool> {
        let mut left = self.counts(0, |_| 0);
        pods.clone().for_each(|number| left.add(self, number));
        let mut tight = vec![false; left.nodes.len()];
        let mut needed: Vec<bool> = pods.rev().map(|number| !left.spare(self, number, &mut tight)).collect();
        needed.reverse();
        needed
    }

    /// Returns the start that pods show: the time at which the scheduled pods met the minimums.
    /// None: they don't meet them. `active` has the number of the subgroup and the time of
    /// scheduling of each active pod.
    pub fn shown_start(&self, active: impl Iterator<Item = (usize, Timestamp)>) -> Option<Timestamp> {
        let mut active: Vec<_> = active.map(|(number, at)| (at, number)).collect();
        active.sort_unstable();
        let mut counts = self.counts(0, |_| 0);
        let last = active.into_iter().find(|(_, number)| {
            counts.add(self, *number);
            counts.are_enough(self)
        });
        last.map(|(at, _)| at)
    }

    /// Returns the shape with its minimums lowered to those that these pods meet: a rule can't wait
    /// for pods that weren't created.
    #[must_use]
    pub fn attained_by(&self, pods: &GangCounts) -> Self {
        let tree = self.tree.as_ref().map(|tree| Box::new(tree.attained_by(&pods.nodes)));
        Self { kind: self.kind, minimum: self.minimum.min(pods.total), tree }
    }
}

#[cfg(test)]
pub(crate) mod tests;
