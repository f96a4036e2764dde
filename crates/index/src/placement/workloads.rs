//! The workloads of pods. A question is about thousands of pods, many of which have the same workload: each workload is
//! looked up once.

use std::{borrow::Cow, collections::HashMap, hash::BuildHasherDefault, num::NonZeroU64};

use tenure_policy::{
    preemption::{Place, Victim, Workload},
    toleration::ClassState,
    tree::QueueTree,
};

use super::{PlacementIndex, PodRecord, Taken};
use crate::{
    Uid,
    podgroups::{Counted, GangId, Membership},
    uid::UidHasher,
};

/// Values by address: it stays the same while a question lasts, and takes less time than a comparison of values.
type ByAddress<A, V> = HashMap<A, V, BuildHasherDefault<UidHasher>>;

/// The workloads of groups, and other values that many pods have in common.
pub struct WorkloadCache<'q, 'i> {
    index: &'i PlacementIndex,
    tree: &'q QueueTree,
    groups: Vec<Workload<'i>>,
    of_groups: ByAddress<GangId, usize>,
    /// The workloads of pods that count apart from others of their group, by their controller.
    of_crews: ByAddress<(GangId, Option<NonZeroU64>), usize>,
    /// Pods share them. None if there is no group that they name.
    of_memberships: ByAddress<*const Membership, Option<InGroup>>,
    classes: ByAddress<*const u8, ClassState>,
    places: ByAddress<*const u8, Place<'i>>,
}

/// The number of a group among those that were met, and of a subgroup there.
#[derive(Clone, Copy)]
pub struct InGroup {
    pub group: usize,
    pub subgroup: usize,
}

/// A pod with its workload.
pub struct Here<'o, 'i> {
    /// Its uid as its scheduler writes it, if the scheduler has named it.
    pub text: Option<&'o Cow<'i, str>>,
    pub uid: Uid,
    pub pod: &'i PodRecord,
    class: ClassState,
    of: Of<'i>,
}

/// The unit that starts and stops as one: a pod's group, or the pod alone.
enum Of<'i> {
    Group(InGroup),
    /// It is in none.
    Itself(Workload<'i>),
}

impl<'i> Here<'_, 'i> {
    /// None if it is in none.
    pub const fn group(&self) -> Option<InGroup> {
        match self.of {
            Of::Group(group) => Some(group),
            Of::Itself(_) => None,
        }
    }

    /// As a part of an answer.
    pub fn taken(&self) -> Taken<'i> {
        let text = self.text.cloned().unwrap_or_else(|| self.pod.uid(self.uid));
        Taken { text, uid: self.uid, in_group: self.group().is_some() }
    }

    /// As rules see it, on a node of a pool, if it was found among these workloads.
    pub fn victim<'w>(
        &'w self,
        workloads: &'w WorkloadCache<'_, 'i>,
        pool: Option<&'w str>,
    ) -> Option<Victim<'w>> {
        let (workload, subgroup) = match &self.of {
            Of::Group(InGroup { group, subgroup }) => (workloads.groups.get(*group)?, *subgroup),
            Of::Itself(workload) => (workload, 0),
        };
        let PodRecord { progress, scheduled, .. } = *self.pod;
        Some(Victim { workload, subgroup, progress, pool, class: self.class, scheduled_at: scheduled })
    }
}

impl<'q, 'i> WorkloadCache<'q, 'i> {
    pub fn new(index: &'i PlacementIndex, tree: &'q QueueTree) -> Self {
        Self {
            index,
            tree,
            groups: Vec::new(),
            of_groups: HashMap::default(),
            of_crews: HashMap::default(),
            of_memberships: HashMap::default(),
            classes: HashMap::default(),
            places: HashMap::default(),
        }
    }

    /// Finds the workload of a pod.
    pub fn here<'o>(&mut self, uid: Uid, pod: &'i PodRecord) -> Here<'o, 'i> {
        let class = self.class(pod);
        let group = if pod.memberships().is_empty() { None } else { self.in_group(pod) };
        let itself = || Of::Itself(Workload::alone(self.place(pod, None), pod.scheduled));
        Here { text: None, uid, pod, class, of: group.map_or_else(itself, Of::Group) }
    }

    fn class(&mut self, pod: &PodRecord) -> ClassState {
        let Some(name) = &pod.class else { return ClassState::None };
        let find = || self.index.reader.classes.get(name.as_str()).copied().unwrap_or(ClassState::Missing);
        *self.classes.entry(name.as_ptr()).or_insert_with(find)
    }

    fn in_group(&mut self, pod: &'i PodRecord) -> Option<InGroup> {
        let memberships = pod.memberships();
        if let Some(known) = self.of_memberships.get(&memberships.as_ptr()) {
            return *known;
        }
        let in_group = self.index.objects.gangs.counted(memberships).map(|(counted, of)| {
            let all = self.of_groups.get(&counted.id()).copied().unwrap_or_else(|| self.add(pod, counted));
            let crew = self.of_crews.get(&(counted.id(), of.controller)).copied();
            InGroup { group: crew.unwrap_or(all), subgroup: counted.number(of) }
        });
        self.of_memberships.insert(memberships.as_ptr(), in_group);
        in_group
    }

    /// Adds the workload of a group, and those of its crews; returns the number of the first.
    fn add(&mut self, pod: &'i PodRecord, counted: Counted<'i>) -> usize {
        let (place, start, shape) = (self.place(pod, Some(counted)), counted.start(), counted.shape());
        let pods = counted.count();
        let crews = counted.crews(&pods);
        let all = self.groups.len();
        self.of_groups.insert(counted.id(), all);
        self.groups.push(Workload { place, start, shape, pods });
        for (controller, pods) in crews {
            self.of_crews.insert((counted.id(), controller), self.groups.len());
            self.groups.push(Workload { place, start, shape, pods });
        }
        all
    }

    /// Where the workload of a pod is, which is that of its group, if it is in one.
    fn place(&mut self, pod: &'i PodRecord, group: Option<Counted<'i>>) -> Place<'i> {
        let Some(queue) = self.index.queue(pod, group) else { return Place::default() };
        *self.places.entry(queue.as_ptr()).or_insert_with(|| Place::find(self.tree, Some(queue)))
    }
}

impl PlacementIndex {
    /// The queue of a pod's workload, which is in this group: that of its `PodGroup`, even if that is gone, else that of the
    /// first of its pods that names one, so that it is always the same.
    pub(super) fn queue<'i>(&'i self, pod: &'i PodRecord, group: Option<Counted<'i>>) -> Option<&'i str> {
        let queue_of = |uid: &Uid| self.reader.places.get(*uid)?.queue.as_deref();
        let of_members = || group?.members().iter().find_map(queue_of);
        self.objects.gangs.queue(pod.memberships()).or_else(of_members).or(pod.queue.as_deref())
    }
}
