//! Pods that start and stop as one: which of them count, how many it takes, and what they show of their start.
//!
//! A minimum is what its own scheduler takes it for. In a `PodGroup`, each subgroup takes so many pods; what holds
//! subgroups takes so many of these to have theirs; and the whole takes so many pods besides.

mod counts;
mod tree;

use jiff::Timestamp;
use tenure_types::{
    podgroup::PodGroupKind,
    projection::{Pod, PodGroupSpec},
};

pub use counts::{Counts, Headcount};
use tree::Tree;

/// The subgroup of pods that name none.
const DEFAULT_SUBGROUP: &str = "default";

/// The progress of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It wasn't scheduled yet.
    Waiting,
    /// It was scheduled.
    Running,
    /// It has ended, or is terminating: it has nothing to lose.
    Gone,
}

/// How far a pod has come. One whose manifest says no more than its node was scheduled.
pub fn progress(pod: &Pod) -> Progress {
    if pod.metadata.deletion_timestamp.is_some() || pod.is_finished() {
        Progress::Gone
    } else if pod.scheduled_at().is_some() || pod.spec.node_name.is_some() {
        Progress::Running
    } else {
        Progress::Waiting
    }
}

/// How many pods a workload takes, in all and by subgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The kind of its group; none of a pod by itself.
    kind: Option<PodGroupKind>,
    /// Of all pods together.
    minimum: u32,
    /// Of its subgroups, if it has any.
    tree: Option<Box<Tree>>,
}

impl Shape {
    /// Of a `PodGroup`: its subgroups, or all of it if it has none.
    pub fn of(kind: PodGroupKind, spec: &PodGroupSpec) -> Self {
        let tree = Tree::new(&spec.sub_groups, spec.min_sub_group).map(Box::new);
        let unset = u32::from(tree.is_none());
        Self { kind: Some(kind), minimum: spec.min_member.unwrap_or(unset), tree }
    }

    /// Of a pod by itself.
    pub const fn alone() -> &'static Self {
        const ALONE: &Shape = &Shape { kind: None, minimum: 1, tree: None };
        ALONE
    }

    /// The kind of its group; none of a pod by itself.
    pub const fn kind(&self) -> Option<PodGroupKind> {
        self.kind
    }

    /// How many subgroups have pods. Their numbers are below that.
    pub fn leaves(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.leaves())
    }

    /// How many pods a subgroup takes; none, if there is no such.
    pub fn leaf_minimum(&self, number: usize) -> u32 {
        let leaf = self.tree.as_ref().filter(|_| number < self.leaves()).and_then(|tree| tree.node(number));
        leaf.map_or(0, |leaf| leaf.minimum)
    }

    /// How many pods it takes in all, besides what its subgroups take.
    pub const fn minimum(&self) -> u32 {
        self.minimum
    }

    /// The fewest pods that meet all of its minimums; the greatest number, if none do.
    pub fn least(&self) -> u32 {
        self.minimum.max(self.tree.as_ref().map_or(0, |tree| tree.least()))
    }

    /// The number of a pod's subgroup; that of [none](Self::leaves), if it names none that has pods.
    pub fn subgroup(&self, pod: &Pod) -> usize {
        self.number(self.kind.and_then(|kind| kind.subgroup(pod)))
    }

    /// The number of the subgroup of a pod that names this one.
    pub fn number(&self, named: Option<&str>) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.find(named.unwrap_or(DEFAULT_SUBGROUP)))
    }

    /// True if so many pods, of which each subgroup has so many, are what it takes.
    pub fn is_met(&self, total: u32, of_leaf: impl Fn(usize) -> u32) -> bool {
        self.counts(total, of_leaf).are_enough(self)
    }

    /// True if it can do without one of so many pods: then each of its minimums that binds leaves room.
    pub fn is_elastic(&self, total: u32, of_leaf: impl Fn(usize) -> u32) -> bool {
        self.counts(total, of_leaf).can_spare_one(self)
    }

    /// Counts pods by subgroup, of which those that are in none are a part of the total alone.
    pub fn counts(&self, total: u32, of_leaf: impl Fn(usize) -> u32) -> Counts {
        Counts::new(total, self.tree.as_ref().map_or_else(Box::default, |tree| tree.counts(of_leaf)))
    }

    /// Counts the pods that there are. Pods that have ended, or are about to, don't count.
    pub fn count<'p>(&self, pods: impl Iterator<Item = &'p Pod>) -> Headcount {
        let live =
            pods.map(|pod| (self.subgroup(pod), progress(pod))).filter(|(_, of)| *of != Progress::Gone);
        self.tally(live.map(|(number, progress)| (number, progress == Progress::Running)))
    }

    /// The same of pods of which the number of the subgroup is known, and whether they run.
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

    /// Of the pods of an elastic workload, those of each controller that have all that it takes: they count alone. So pods
    /// of another controller that join it make none of them dispensable. Of each pod: its controller, the number of its
    /// subgroup, and whether it runs.
    pub fn crews<C: Ord + Copy>(&self, pods: impl Iterator<Item = (C, usize, bool)>) -> Vec<(C, Headcount)> {
        let mut pods: Vec<_> = pods.collect();
        pods.sort_unstable();
        let least = usize::try_from(self.least()).unwrap_or(usize::MAX);
        let crews = pods.chunk_by(|one, other| one.0 == other.0).filter(|crew| crew.len() >= least);
        let tallied = crews.filter_map(|crew| {
            let (controller, ..) = crew.first()?;
            Some((*controller, self.tally(crew.iter().map(|(_, number, runs)| (*number, *runs)))))
        });
        tallied.filter(|(_, crew)| crew.are_enough()).collect()
    }

    /// When pods show that they started: as soon as those that were scheduled were as many as it takes. None if they are
    /// not. Of each pod that is active: the number of its subgroup, and when it was scheduled.
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

    /// The same with minimums that these pods meet: those that were not created can't be waited for.
    #[must_use]
    pub fn attained_by(&self, pods: &Counts) -> Self {
        let tree = self.tree.as_ref().map(|tree| Box::new(tree.attained_by(pods.of_nodes())));
        Self { kind: self.kind, minimum: self.minimum.min(pods.total()), tree }
    }
}

#[cfg(test)]
pub(crate) mod tests;
