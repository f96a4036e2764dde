//! Of which workloads pods are. A question is about thousands, of which many have the same: what was found for one of
//! them is not looked for again.

use std::{collections::HashMap, hash::BuildHasherDefault};

use tenure_policy::{
    preemption::{Place, Victim, Workload},
    toleration::ClassState,
    tree::QueueTree,
};

use super::{Placed, PlacementIndex};
use crate::{
    Uid,
    podgroups::{Counted, GangId, Membership},
    uid::UidHasher,
};

/// What is known of things by where they are: as long as a question lasts, that takes less time than to compare them.
type ByAddress<T, V> = HashMap<*const T, V, BuildHasherDefault<UidHasher>>;

/// Those that were met: pods of one group have the very same.
pub struct Workloads<'q, 'i> {
    index: &'i PlacementIndex,
    tree: &'q QueueTree,
    all: Vec<Workload<'i>>,
    of_groups: HashMap<GangId, usize>,
    /// Pods share them. None if there is no group that they name.
    of_memberships: ByAddress<Membership, Option<InGroup>>,
    classes: ByAddress<u8, ClassState>,
    queues: ByAddress<u8, Place<'i>>,
}

/// The place of a workload among all of them, and the number of a subgroup there.
#[derive(Clone, Copy)]
struct InGroup {
    workload: usize,
    subgroup: usize,
}

/// A pod of a node, with the place of its workload among all of them.
pub struct Here<'i> {
    pub uid: Uid,
    pub pod: &'i Placed,
    class: ClassState,
    workload: usize,
    subgroup: usize,
    pub in_group: bool,
}

impl Here<'_> {
    /// As rules see it, if these are the workloads that it is of.
    pub fn victim<'w>(&self, workloads: &'w [Workload<'_>], pool: Option<&'w str>) -> Option<Victim<'w>> {
        let Self { pod, class, workload, subgroup, .. } = self;
        Some(Victim {
            workload: workloads.get(*workload)?,
            subgroup: *subgroup,
            progress: pod.progress,
            pool,
            class: *class,
            scheduled_at: pod.scheduled,
        })
    }
}

impl<'q, 'i> Workloads<'q, 'i> {
    pub fn new(index: &'i PlacementIndex, tree: &'q QueueTree) -> Self {
        Self {
            index,
            tree,
            all: Vec::new(),
            of_groups: HashMap::new(),
            of_memberships: HashMap::default(),
            classes: HashMap::default(),
            queues: HashMap::default(),
        }
    }

    /// All that were met.
    pub fn all(&self) -> &[Workload<'i>] {
        &self.all
    }

    /// Pods with the places of their workloads. In steps: what they are found by may be anywhere in memory, and a
    /// processor waits for many at once.
    pub fn here(&mut self, pods: impl Iterator<Item = (Uid, &'i Placed)>) -> Vec<Here<'i>> {
        let counted = |(uid, pod): (Uid, &'i Placed)| {
            let known = self.of_memberships.contains_key(&pod.memberships().as_ptr());
            (uid, pod, if known { None } else { self.index.objects.gangs.counted(pod.memberships()) })
        };
        let counted: Vec<_> = pods.map(counted).collect();
        counted.into_iter().map(|(uid, pod, group)| self.one_here(uid, pod, group)).collect()
    }

    /// A pod, with its group unless that is known.
    fn one_here(&mut self, uid: Uid, pod: &'i Placed, group: Option<Counted<'i>>) -> Here<'i> {
        let class = self.class(pod);
        let in_group = if pod.memberships().is_empty() { None } else { self.in_group(pod, group) };
        let Some(InGroup { workload, subgroup }) = in_group else {
            let workload = Workload::alone(self.place(pod), pod.scheduled);
            let workload = self.add(workload);
            return Here { uid, pod, class, workload, subgroup: 0, in_group: false };
        };
        Here { uid, pod, class, workload, subgroup, in_group: true }
    }

    fn class(&mut self, pod: &Placed) -> ClassState {
        let Some(name) = &pod.class else { return ClassState::None };
        let find = || self.index.reader.classes.get(name.as_str()).copied().unwrap_or(ClassState::Missing);
        *self.classes.entry(name.as_ptr()).or_insert_with(find)
    }

    fn in_group(&mut self, pod: &'i Placed, group: Option<Counted<'i>>) -> Option<InGroup> {
        let memberships = pod.memberships();
        if let Some(known) = self.of_memberships.get(&memberships.as_ptr()) {
            return *known;
        }
        let in_group = group.map(|group| {
            let known = self.of_groups.get(&group.id()).copied();
            let workload = known.unwrap_or_else(|| {
                let (place, start) = (self.place(pod), group.start());
                self.add(Workload { place, start, shape: group.shape(), pods: group.count() })
            });
            self.of_groups.insert(group.id(), workload);
            InGroup { workload, subgroup: group.number(memberships) }
        });
        self.of_memberships.insert(memberships.as_ptr(), in_group);
        in_group
    }

    /// Where the workload of a pod is.
    fn place(&mut self, pod: &'i Placed) -> Place<'i> {
        let queue = self.index.queue(pod);
        let place = queue.map(|queue| {
            let find = || Place::find(self.tree, Some(queue));
            *self.queues.entry(queue.as_ptr()).or_insert_with(find)
        });
        place.unwrap_or_default()
    }

    fn add(&mut self, workload: Workload<'i>) -> usize {
        self.all.push(workload);
        self.all.len().saturating_sub(1)
    }
}
