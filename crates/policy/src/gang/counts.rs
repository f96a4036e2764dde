//! The pods of a workload, counted towards its minimums.
//!
//! The index keeps the [`GangCounts`] and [`AttainedCounts`] of ready pods up to date with each
//! change of a pod. `crate::preemption` reads a [`Headcount`] and computes the losses of a
//! preemption. The count of a parent is always the number of its children that meet their minimums.

use std::collections::BTreeMap;

use super::{GangShape, tree::SubgroupNode};

/// The numbers of pods of a workload and of each subgroup. They must always be used with the shape
/// by which they were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangCounts {
    /// The number of all pods, those of no subgroup included.
    pub(super) total: u32,
    /// For each subgroup, the number of its pods. For each parent, the number of its children that
    /// meet their minimums.
    pub(super) nodes: Box<[u32]>,
}

impl GangCounts {
    /// Returns the number of all pods.
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Returns the number of pods of a subgroup. Zero if no subgroup has this number.
    pub fn of_leaf(&self, shape: &GangShape, number: usize) -> u32 {
        self.nodes.get(number).filter(|_| number < shape.leaves()).copied().unwrap_or_default()
    }

    /// Counts one more pod of a subgroup. The count goes on to a parent only where the pod
    /// completes a minimum.
    pub fn add(&mut self, shape: &GangShape, number: usize) {
        self.total = self.total.saturating_add(1);
        for (number, node) in shape.way_up(number) {
            let Some(count) = self.nodes.get_mut(number) else { return };
            *count = count.saturating_add(1);
            if *count != node.minimum {
                return;
            }
        }
    }

    /// Counts one pod of a subgroup less. The count goes on to a parent only where a minimum isn't
    /// met any more.
    pub fn remove(&mut self, shape: &GangShape, number: usize) {
        self.total = self.total.saturating_sub(1);
        for (number, node) in shape.way_up(number) {
            let Some(count) = self.nodes.get_mut(number) else { return };
            let was_enough = *count == node.minimum;
            *count = count.saturating_sub(1);
            if !was_enough {
                return;
            }
        }
    }

    /// Counts one pod less if the rest still meets the minimums; returns true if so.
    ///
    /// Pods are spared one after the other. A subgroup or parent in `tight` can't lose any more,
    /// and is marked so that no later pod looks above it.
    pub(super) fn spare(&mut self, shape: &GangShape, number: usize, tight: &mut [bool]) -> bool {
        if self.total <= shape.minimum {
            return false;
        }
        // a pod of no subgroup counts only towards the total
        let (mut spares, mut steps) = (true, 0_usize);
        for (number, node) in shape.way_up(number) {
            spares = !tight.get(number).is_some_and(|tight| *tight);
            if !spares {
                break;
            }
            steps = steps.saturating_add(1);
            // a node at its minimum that loses one doesn't count for its parent any more
            spares = self.nodes.get(number).is_some_and(|count| *count != node.minimum);
            if spares {
                break;
            }
        }
        for (number, _) in shape.way_up(number).take(steps) {
            match (self.nodes.get_mut(number), tight.get_mut(number)) {
                (Some(count), _) if spares => *count = count.saturating_sub(1),
                (_, Some(tight)) => *tight = true,
                _ => {}
            }
        }
        self.total = self.total.saturating_sub(u32::from(spares));
        spares
    }

    /// True if the pods meet the workload's minimums.
    pub fn are_enough(&self, shape: &GangShape) -> bool {
        let root = || shape.tree.as_ref().and_then(|tree| tree.nodes.last()).zip(self.nodes.last());
        self.total >= shape.minimum && root().is_none_or(|(root, count)| *count >= root.minimum)
    }

    /// True if the pods meet the minimums, and there is a pod without which the others still do.
    pub fn can_spare_one(&self, shape: &GangShape) -> bool {
        let spare_one = || shape.tree.as_ref().is_none_or(|tree| tree.can_spare_one(self.total, &self.nodes));
        self.total > shape.minimum && self.are_enough(shape) && spare_one()
    }

    /// Returns, for a subgroup and then for each of its parents from the bottom up: the count, the
    /// losses, and the minimum. `lost` has the losses by the number of the node.
    pub(crate) fn left<'c>(
        &'c self,
        shape: &'c GangShape,
        number: usize,
        lost: &'c BTreeMap<usize, u32>,
    ) -> impl Iterator<Item = (u32, u32, u32)> {
        let of = |(number, node): (usize, &SubgroupNode)| {
            let lost = lost.get(&number).copied().unwrap_or_default();
            (self.nodes.get(number).copied().unwrap_or_default(), lost, node.minimum)
        };
        shape.way_up(number).map(of)
    }

    /// Adds the losses when this number of pods of a subgroup goes: the pods, and one at each
    /// parent of a node that thereby falls below its minimum.
    pub(crate) fn lose(&self, shape: &GangShape, number: usize, pods: u32, lost: &mut BTreeMap<usize, u32>) {
        let mut less = pods;
        for (number, node) in shape.way_up(number) {
            let all = self.nodes.get(number).copied().unwrap_or_default();
            let lost = lost.entry(number).or_default();
            let before = all.saturating_sub(*lost);
            *lost = lost.saturating_add(less);
            let falls_short = before >= node.minimum && before.saturating_sub(less) < node.minimum;
            if !falls_short {
                return;
            }
            less = 1;
        }
    }
}

/// Some pods of a workload, counted towards the minimums that all its present pods can meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttainedCounts {
    /// The workload's shape with the [attained](GangShape::attained_by) minimums.
    shape: GangShape,
    counts: GangCounts,
}

impl AttainedCounts {
    /// Counts `some` of `all` present pods. Both were counted by `shape`.
    pub fn new(shape: &GangShape, all: &GangCounts, some: &GangCounts) -> Self {
        let attained = shape.attained_by(all);
        let counts = attained.counts(some.total(), |number| some.of_leaf(shape, number));
        Self { shape: attained, counts }
    }

    /// Counts one more pod of a subgroup. The pod is one of those that are present.
    pub fn add(&mut self, number: usize) {
        self.counts.add(&self.shape, number);
    }

    /// Counts one pod of a subgroup less. The pod stays present.
    pub fn remove(&mut self, number: usize) {
        self.counts.remove(&self.shape, number);
    }

    /// True if the pods meet the minimums.
    pub fn are_enough(&self) -> bool {
        self.counts.are_enough(&self.shape)
    }
}

impl GangShape {
    /// Returns the subgroup of this number and its parents, from the bottom up. Nothing if no
    /// subgroup has this number.
    fn way_up(&self, number: usize) -> impl Iterator<Item = (usize, &SubgroupNode)> {
        let tree = self.tree.as_ref().filter(|tree| number < tree.leaves());
        tree.into_iter().flat_map(move |tree| tree.way_up(number))
    }
}

/// The numbers of pods that decide what a workload can spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headcount {
    /// The number of pods that run or wait.
    live: u32,
    /// True if the live pods meet the minimums.
    are_enough: bool,
    /// True if the live pods can spare one.
    is_elastic: bool,
    /// The scheduled pods.
    running: GangCounts,
}

impl Headcount {
    /// Returns the headcount of a workload of one running pod, which can't be spared.
    pub fn alone() -> Self {
        let running = GangCounts { total: 1, nodes: Box::default() };
        Self { live: 1, are_enough: true, is_elastic: false, running }
    }

    /// Creates a headcount. `live` has the pods that run or wait, without those that have ended or
    /// terminate. `running` has the running ones among them.
    pub fn new(shape: &GangShape, live: &GangCounts, running: GangCounts) -> Self {
        let (are_enough, is_elastic) = (live.are_enough(shape), live.can_spare_one(shape));
        Self { live: live.total, are_enough, is_elastic, running }
    }

    /// True if the pods that run or wait meet the minimums.
    pub(super) const fn are_enough(&self) -> bool {
        self.are_enough
    }

    /// True if the workload may lose a pod and run on.
    pub const fn is_elastic(&self) -> bool {
        self.is_elastic
    }

    /// True if the workload has several pods and can spare none of them.
    pub const fn is_rigid(&self) -> bool {
        !self.is_elastic && self.live > 1
    }

    /// Returns the scheduled pods.
    pub const fn running(&self) -> &GangCounts {
        &self.running
    }
}
