//! Seniority in a workload: the controllers, and the pods without one, that count before others.
//!
//! All who may create pods in a namespace may add one to a workload. So what a pod of another controller adds makes none
//! of those dispensable that were scheduled before it.

use super::{Headcount, Shape};

/// A live pod of an elastic workload.
#[derive(Clone, Copy, Debug)]
pub struct CrewMember<C, S> {
    /// The pods with which it stands: those of its controller, or itself.
    pub crew: C,
    /// True if it has a controller.
    pub is_controlled: bool,
    /// Its seniority: running pods come before waiting ones, and among each the one that was scheduled first.
    pub seniority: S,
    /// The number of its subgroup.
    pub subgroup: usize,
    /// True if it runs.
    pub runs: bool,
}

/// The pods of an elastic workload by crew: a controller's pods are one, and a pod without a controller is one by itself.
///
/// The core of the workload is the fewest of its pods that meet the minimums, by the seniority of the first pod of each
/// crew. A place in the core that becomes free goes to the next pod of the same crew.
///
/// Each headcount takes a step for each subgroup, and users decide on the number of both: so only those crews are counted
/// that are asked for.
#[derive(Clone, Debug)]
pub struct Crews<C, S> {
    /// The pods by crew; of a crew, the most senior first.
    pods: Vec<CrewMember<C, S>>,
    /// For each pod, true if it is of the core. None: not computed yet.
    core: Option<Vec<bool>>,
    /// The fewest pods that meet the minimums.
    least: usize,
}

/// The pods of an elastic workload that are counted when one of them is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountedPods {
    /// All pods: those of its crew are not of the core.
    Whole,
    /// The core: it has all pods of the crew.
    Core,
    /// The pods of the crew, with those of the core that the crew lacks to meet the minimums.
    Crew(Headcount),
}

impl<C: Ord + Copy, S: Ord + Copy> Crews<C, S> {
    pub(super) fn new(shape: &Shape, pods: impl Iterator<Item = CrewMember<C, S>>) -> Self {
        let mut pods: Vec<_> = pods.collect();
        pods.sort_unstable_by_key(|pod| (pod.crew, pod.seniority));
        Self { pods, core: None, least: usize::try_from(shape.least()).unwrap_or(usize::MAX).max(1) }
    }

    /// Returns the pods that are counted when pods of a crew are to go, in a workload of this shape.
    ///
    /// A controller's pods that meet the minimums by themselves are counted alone. Else they are counted with the core of
    /// the others, so that those of the core stay as many as they are. Any pod may go that is not of the core.
    pub fn part(&mut self, shape: &Shape, crew: C) -> CountedPods {
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
    pub fn core(&mut self, shape: &Shape) -> Headcount {
        let is_core = self.core.get_or_insert_with(|| core(shape, &self.pods));
        let pods = self.pods.iter().zip(is_core).filter(|(_, is_core)| **is_core);
        tally(shape, pods.map(|(of, _)| of))
    }
}

fn tally<'p, C: 'p, S: 'p>(shape: &Shape, pods: impl Iterator<Item = &'p CrewMember<C, S>>) -> Headcount {
    shape.tally(pods.map(|of| (of.subgroup, of.runs)))
}

/// Returns for each pod whether it is of the core.
fn core<C: Ord + Copy, S: Ord + Copy>(shape: &Shape, pods: &[CrewMember<C, S>]) -> Vec<bool> {
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
