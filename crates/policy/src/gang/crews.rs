//! Seniority in an elastic workload: which pods count first towards its minimums.
//!
//! The index asks [`Crews`] which pods to count when a pod is to go. All users who may create pods
//! in a namespace can add a pod to a workload. So pods that another controller adds never make pods
//! dispensable that were scheduled before them.

use super::{GangShape, Headcount};

/// A live pod of an elastic workload: a pod that runs or waits.
#[derive(Clone, Copy, Debug)]
pub struct CrewMember<C, S> {
    /// The crew of the pod: the pods of its controller, or the pod itself.
    pub crew: C,
    /// True if the pod has a controller.
    pub is_controlled: bool,
    /// The seniority of the pod, where the least is the most senior: running pods come before
    /// waiting ones, and among each the pod that was scheduled first.
    pub seniority: S,
    /// The number of the pod's subgroup.
    pub subgroup: usize,
    /// True if the pod is scheduled.
    pub runs: bool,
}

/// The pods of an elastic workload by crew. A controller's pods are one crew; a pod without a
/// controller is a crew by itself.
///
/// The core of the workload has the pods that the minimums need, by the seniority of the first pod
/// of each crew. A place in the core that becomes free goes to the next pod of the same crew.
///
/// Each headcount takes a step for each subgroup, and users decide on the numbers of crews and
/// subgroups. So only the crews that are asked for are counted.
#[derive(Clone, Debug)]
pub struct Crews<C, S> {
    /// The pods by crew, and within a crew by seniority.
    pods: Vec<CrewMember<C, S>>,
    /// For each pod, true if it is in the core. None: not computed yet.
    core: Option<Vec<bool>>,
    /// The fewest pods that meet the minimums; at least 1.
    least: usize,
}

/// The pods of an elastic workload that count when a preemptor wants one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountedPods {
    /// All pods: no pod of the crew is in the core, or there is no other crew.
    Whole,
    /// The core: all pods of the crew are in it.
    Core,
    /// The pods of the crew. If these don't meet the minimums by themselves, the core is counted
    /// with them.
    Crew(Headcount),
}

impl<C: Ord + Copy, S: Ord + Copy> Crews<C, S> {
    pub(super) fn new(shape: &GangShape, pods: impl Iterator<Item = CrewMember<C, S>>) -> Self {
        let mut pods: Vec<_> = pods.collect();
        pods.sort_unstable_by_key(|pod| (pod.crew, pod.seniority));
        Self { pods, core: None, least: usize::try_from(shape.least()).unwrap_or(usize::MAX).max(1) }
    }

    /// Returns the pods that are counted when pods of a crew are to go, in a workload of this
    /// shape.
    ///
    /// A controller's pods that meet the minimums by themselves are counted alone. Other pods are
    /// counted with the core, so that the core keeps its size. A pod that isn't in the core may go.
    pub fn part(&mut self, shape: &GangShape, crew: C) -> CountedPods {
        let from = self.pods.partition_point(|of| of.crew < crew);
        let to = self.pods.partition_point(|of| of.crew <= crew);
        let all = self.pods.len();
        let Some(own) = self.pods.get(from..to).filter(|own| own.len() < all) else {
            return CountedPods::Whole;
        };
        if own.len() >= self.least && own.first().is_some_and(|of| of.is_controlled) {
            let alone = tally(shape, own.iter());
            if alone.are_enough() {
                return CountedPods::Crew(alone);
            }
        }
        let is_core = self.core.get_or_insert_with(|| core(shape, &self.pods));
        let places = is_core.get(from..to).unwrap_or_default().iter().filter(|is_core| **is_core).count();
        if places == 0 {
            return CountedPods::Whole;
        }
        if places == to.saturating_sub(from) {
            return CountedPods::Core;
        }
        let counted = self.pods.iter().zip(is_core).filter(|(of, is_core)| **is_core || of.crew == crew);
        CountedPods::Crew(tally(shape, counted.map(|(of, _)| of)))
    }

    /// Counts the pods of the core.
    pub fn core(&mut self, shape: &GangShape) -> Headcount {
        let is_core = self.core.get_or_insert_with(|| core(shape, &self.pods));
        let pods = self.pods.iter().zip(is_core).filter(|(_, is_core)| **is_core);
        tally(shape, pods.map(|(of, _)| of))
    }
}

fn tally<'p, C: 'p, S: 'p>(shape: &GangShape, pods: impl Iterator<Item = &'p CrewMember<C, S>>) -> Headcount {
    shape.tally(pods.map(|of| (of.subgroup, of.runs)))
}

/// Returns for each pod whether it is in the core. The pods must be sorted by crew and seniority.
fn core<C: Ord + Copy, S: Ord + Copy>(shape: &GangShape, pods: &[CrewMember<C, S>]) -> Vec<bool> {
    let mut order: Vec<(S, usize, usize)> = Vec::with_capacity(pods.len());
    for crew in pods.chunk_by(|one, other| one.crew == other.crew) {
        let Some(first) = crew.first() else { continue };
        for of in crew {
            order.push((first.seniority, order.len(), of.subgroup));
        }
    }
    order.sort_unstable();
    let needed = shape.needed(order.iter().map(|(_, _, subgroup)| *subgroup));
    let mut is_core = vec![false; pods.len()];
    for ((_, place, _), needed) in order.into_iter().zip(needed) {
        if let Some(is_core) = is_core.get_mut(place) {
            *is_core = needed;
        }
    }
    is_core
}
