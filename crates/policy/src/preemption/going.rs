//! The pods of a workload that are to go, and the rest of the workload.

use std::{collections::BTreeMap, ptr};

use super::Workload;

/// Pods of one workload that are to go together. Of a workload that isn't elastic, none are counted.
#[derive(Clone, Debug, Default)]
pub struct Going {
    pods: u32,
    /// The losses of each subgroup and parent, by number.
    lost: BTreeMap<usize, u32>,
}

/// The things that are counted: pods or subgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOf {
    /// Pods, of the whole workload.
    Workload,
    /// Pods, of the victim's subgroup.
    Subgroup,
    /// Subgroups that meet their minimum, where the workload needs only some of them.
    Subgroups,
}

/// The numbers of pods or subgroups that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The things that are counted.
    pub of: LeftOf,
    /// Running now.
    pub running: u32,
    /// To be evicted.
    pub evicted: u32,
    /// The minimum.
    pub min: u32,
}

impl Left {
    /// True if the minimum is kept, or no running pod goes. A subgroup that has too few pods already counts as needed,
    /// unless enough other subgroups meet their minimums.
    pub fn is_enough(&self) -> bool {
        let stays = self.evicted == 0 && self.of != LeftOf::Subgroups;
        stays || self.running.saturating_sub(self.evicted) >= self.min
    }
}

impl Going {
    /// Adds so many running pods of a subgroup.
    pub fn add(&mut self, workload: &Workload<'_>, subgroup: usize, pods: u32) {
        self.add_to_all(workload, pods);
        self.add_to_subgroup(workload, subgroup, pods);
    }

    /// Adds this number of running pods of any subgroups.
    pub fn add_to_all(&mut self, workload: &Workload<'_>, pods: u32) {
        if workload.is_elastic() {
            self.pods = self.pods.saturating_add(pods);
        }
    }

    /// Adds so many running pods of a subgroup that are among those of all.
    pub fn add_to_subgroup(&mut self, workload: &Workload<'_>, subgroup: usize, pods: u32) {
        if workload.is_elastic() {
            workload.pods.running().lose(workload.shape, subgroup, pods, &mut self.lost);
        }
    }

    /// Returns the rest of a workload for a victim of a subgroup; none if the workload isn't elastic. The minimum of
    /// all pods counts, and that of the subgroup; but a whole subgroup may go if its parent doesn't need it. A pod of a
    /// subgroup that doesn't exist counts towards the minimum of all pods alone.
    pub fn left(&self, workload: &Workload<'_>, subgroup: usize) -> Option<Left> {
        let Workload { shape, pods, .. } = workload;
        let all = Left {
            of: LeftOf::Workload,
            running: pods.running().total(),
            evicted: self.pods,
            min: shape.minimum(),
        };
        let mut ways = pods.running().left(shape, subgroup, &self.lost);
        let of = |of| move |(running, evicted, min)| Left { of, running, evicted, min };
        let own = ways.next().map(of(LeftOf::Subgroup)).filter(|_| all.is_enough());
        let left = own.map_or(all, |own| {
            let mut others = ways.map(of(LeftOf::Subgroups));
            if own.is_enough() { own } else { others.find(Left::is_enough).unwrap_or(own) }
        });
        pods.is_elastic().then_some(left)
    }
}

/// Adds up the pods of each workload.
pub(super) fn going<'w, 'a: 'w>(
    pods: impl Iterator<Item = (&'w Workload<'a>, usize, u32)>,
) -> BTreeMap<*const Workload<'a>, Going> {
    let mut all: BTreeMap<_, Going> = BTreeMap::new();
    for (workload, subgroup, pods) in pods.filter(|(workload, ..)| workload.is_elastic()) {
        all.entry(ptr::from_ref(workload)).or_default().add(workload, subgroup, pods);
    }
    all
}
