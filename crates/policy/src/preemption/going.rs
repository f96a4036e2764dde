//! The pods of a workload that are to go, and the rest of the workload. Only running pods of
//! elastic workloads are counted.

use std::{collections::BTreeMap, ptr};

use super::{PodProgress, Victim, Workload};

/// Pods of one workload, or of one part of it, that are to go together. If the workload isn't
/// elastic, none are counted.
#[derive(Clone, Debug, Default)]
pub struct WorkloadVictims {
    /// The pods that go, of all subgroups.
    pods: u32,
    /// The losses of each subgroup and parent, by number.
    lost: BTreeMap<usize, u32>,
    /// The first subgroup whose rest is below its minimum. None: all keep theirs. Further losses
    /// never change that back.
    short: Option<usize>,
}

/// The things that are counted: pods or subgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedMembers {
    /// Pods, of the whole workload.
    Workload,
    /// Pods, of the victim's subgroup.
    Subgroup,
    /// Pods, of another subgroup that loses some.
    OtherSubgroup,
    /// Subgroups that meet their minimum, where a parent needs only some of its subgroups.
    Subgroups,
}

/// The numbers of pods or subgroups that decide whether a workload keeps enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingMembers {
    /// The things that are counted.
    pub of: CountedMembers,
    /// The number that runs now.
    pub running: u32,
    /// The number that would be evicted.
    pub evicted: u32,
    /// The number that must stay.
    pub min: u32,
}

impl RemainingMembers {
    /// True if the minimum is kept, or no running pod goes. A subgroup that has too few pods
    /// already counts as needed, unless enough other subgroups meet their minimums.
    pub fn is_enough(&self) -> bool {
        let stays = self.evicted == 0 && self.of != CountedMembers::Subgroups;
        stays || self.running.saturating_sub(self.evicted) >= self.min
    }
}

impl WorkloadVictims {
    /// Adds running pods of a subgroup.
    pub fn add(&mut self, workload: &Workload<'_>, subgroup: usize, pods: u32) {
        self.add_to_all(workload, pods);
        self.add_to_subgroup(workload, subgroup, pods);
    }

    /// Adds running pods of any subgroups to those of the whole workload.
    pub fn add_to_all(&mut self, workload: &Workload<'_>, pods: u32) {
        if workload.is_elastic() {
            self.pods = self.pods.saturating_add(pods);
        }
    }

    /// Adds running pods of a subgroup that [`Self::add_to_all`] has counted already.
    pub fn add_to_subgroup(&mut self, workload: &Workload<'_>, subgroup: usize, pods: u32) {
        if workload.is_elastic() {
            workload.pods.running().lose(workload.shape, subgroup, pods, &mut self.lost);
            let is_short = |left: RemainingMembers| !left.is_enough();
            let falls_short = || self.left_in(workload, subgroup).is_some_and(is_short).then_some(subgroup);
            self.short = self.short.or_else(falls_short);
        }
    }

    /// Returns the rest of a workload for a victim of a subgroup. None: the workload isn't elastic.
    ///
    /// The minimum of all pods counts, and those of the victim's subgroup and of the others that
    /// lose pods. A pod of a subgroup that doesn't exist counts towards the minimum of all pods
    /// alone. If several minimums are missed, the first in that order is returned.
    pub fn left(&self, workload: &Workload<'_>, subgroup: usize) -> Option<RemainingMembers> {
        let Workload { shape, pods, .. } = workload;
        // most workloads aren't
        if !pods.is_elastic() {
            return None;
        }
        let running = pods.running().total();
        let all = RemainingMembers {
            of: CountedMembers::Workload,
            running,
            evicted: self.pods,
            min: shape.minimum,
        };
        let own = self.left_in(workload, subgroup);
        let other = || {
            Some(RemainingMembers {
                of: CountedMembers::OtherSubgroup,
                ..self.left_in(workload, self.short?)?
            })
        };
        let parts = || own.filter(|own| !own.is_enough()).or_else(other).or(own);
        Some(all).filter(|all| !all.is_enough()).or_else(parts).or(Some(all))
    }

    /// Returns the rest of a subgroup. None: there is no such subgroup. A whole subgroup may go if
    /// its parent doesn't need it.
    fn left_in(&self, workload: &Workload<'_>, subgroup: usize) -> Option<RemainingMembers> {
        let mut ways = workload.pods.running().left(workload.shape, subgroup, &self.lost);
        let of = |of| move |(running, evicted, min)| RemainingMembers { of, running, evicted, min };
        let own = ways.next().map(of(CountedMembers::Subgroup))?;
        let mut others = ways.map(of(CountedMembers::Subgroups));
        Some(if own.is_enough() { own } else { others.find(RemainingMembers::is_enough).unwrap_or(own) })
    }
}

/// The pods that are to go together, of each workload and of each part that is counted apart. The
/// keys are the addresses of the workloads: two copies of a workload are two workloads here.
#[derive(Clone, Debug, Default)]
pub struct VictimsByWorkload(BTreeMap<*const (), WorkloadVictims>);

impl VictimsByWorkload {
    /// Adds a victim, if it runs, to the pods that go of its workload and of its part.
    pub fn add(&mut self, victim: &Victim<'_>) {
        if victim.progress == PodProgress::Running {
            for counted in victim.counted().filter(|counted| counted.is_elastic()) {
                self.of(counted).add(counted, victim.subgroup, 1);
            }
        }
    }

    /// Returns the pods that go of a workload or part, to add others.
    pub fn of(&mut self, counted: &Workload<'_>) -> &mut WorkloadVictims {
        self.0.entry(ptr::from_ref(counted).cast::<()>()).or_default()
    }

    /// Adds a victim if `may_go` accepts the pods that go together with it. Returns true if the
    /// victim was added.
    pub fn add_if(&mut self, victim: &Victim<'_>, may_go: impl FnOnce(&Self) -> bool) -> bool {
        let own = victim.counted().map(|counted| ptr::from_ref(counted).cast::<()>());
        let mut with_it = Self(own.filter_map(|key| Some((key, self.0.get(&key)?.clone()))).collect());
        with_it.add(victim);
        let may_go = may_go(&with_it);
        if may_go {
            self.0.extend(with_it.0);
        }
        may_go
    }

    /// Returns the rest of a victim's part, or that of its workload where only that is too small.
    /// None: the part isn't elastic.
    pub(super) fn left(&self, victim: &Victim<'_>) -> Option<RemainingMembers> {
        // most workloads aren't
        if !victim.unit().is_elastic() {
            return None;
        }
        let nothing = WorkloadVictims::default();
        let left = |counted: &Workload<'_>| {
            let going = self.0.get(&ptr::from_ref(counted).cast::<()>()).unwrap_or(&nothing);
            going.left(counted, victim.subgroup)
        };
        let own = left(victim.unit())?;
        let whole = || left(victim.workload).filter(|whole| !whole.is_enough());
        let is_apart = own.is_enough() && victim.part.is_some();
        Some(is_apart.then(whole).flatten().unwrap_or(own))
    }
}
