//! The pods of a workload by controller.

use super::{Headcount, Shape};

/// The pods of an elastic workload by controller. Each headcount takes a step for each subgroup, and users decide on the
/// number of both: so only those are counted that are asked for.
#[derive(Clone, Debug)]
pub struct Crews<C> {
    /// The controller of each pod, the number of its subgroup, and true if it runs; in order.
    pods: Vec<(C, usize, bool)>,
    /// The fewest pods that meet the minimums.
    least: usize,
}

impl<C: Ord + Copy> Crews<C> {
    pub(super) fn new(shape: &Shape, pods: impl Iterator<Item = (C, usize, bool)>) -> Self {
        let mut pods: Vec<_> = pods.collect();
        pods.sort_unstable();
        Self { pods, least: usize::try_from(shape.least()).unwrap_or(usize::MAX).max(1) }
    }

    /// Returns the headcount of a controller's pods, if these alone meet the minimums of the workload of this shape.
    pub fn count(&self, shape: &Shape, controller: C) -> Option<Headcount> {
        let from = self.pods.partition_point(|(of, ..)| *of < controller);
        let crew = self.pods.get(from..)?;
        let crew = crew.get(..crew.partition_point(|(of, ..)| *of == controller))?;
        let count = || shape.tally(crew.iter().map(|(_, number, runs)| (*number, *runs)));
        (crew.len() >= self.least).then(count).filter(Headcount::are_enough)
    }
}
