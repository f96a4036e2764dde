//! The workloads of pods. Many pods of a question have the same one: each workload is looked up once.

use std::{borrow::Cow, collections::HashMap, hash::BuildHasherDefault, num::NonZeroU64};

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{
    gang::{Crews, Progress},
    pod_group::group_counts,
    preemption::{Place, Victim, Workload},
    toleration::ClassState,
    tree::QueueTree,
};
use tenure_types::podgroup::PodGroupKind;

use super::{PlacementIndex, PodRecord, Taken};
use crate::{
    Uid,
    podgroups::{GangId, GroupQueue, GroupWorkload, Membership},
    times::Milliseconds,
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
    /// The pods of groups by their controller.
    crews: ByAddress<GangId, Option<Crews<Option<NonZeroU64>>>>,
    /// The workloads of pods that count apart from others of their group, by their controller. None: they don't.
    of_crews: ByAddress<(GangId, Option<NonZeroU64>), Option<usize>>,
    /// Pods share them.
    of_memberships: ByAddress<*const Membership, Named<'i>>,
    /// The queues of running pods that name none, by their group.
    lent: ByAddress<GangId, Option<&'i str>>,
    classes: ByAddress<*const u8, ClassState>,
    places: ByAddress<*const u8, Place<'i>>,
}

/// The number of a group among those that were met, and of a subgroup there.
#[derive(Clone, Copy)]
pub struct InGroup {
    pub group: usize,
    pub subgroup: usize,
}

/// The group that pods name.
#[derive(Clone, Copy, Default)]
struct Named<'i> {
    /// None if there is no such group.
    in_group: Option<InGroup>,
    queue: Option<GroupQueue<&'i ArcStr>>,
}

/// A pod with its workload.
pub struct Here<'o, 'i> {
    /// Its uid as its scheduler writes it, if the scheduler has named it.
    pub text: Option<&'o Cow<'i, str>>,
    pub uid: Uid,
    pub pod: &'i PodRecord,
    place: Place<'i>,
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
        let Self { place, class, .. } = *self;
        Some(Victim { workload, place, subgroup, progress, pool, class, scheduled_at: scheduled })
    }
}

impl<'q, 'i> WorkloadCache<'q, 'i> {
    pub fn new(index: &'i PlacementIndex, tree: &'q QueueTree) -> Self {
        Self {
            index,
            tree,
            groups: Vec::new(),
            of_groups: HashMap::default(),
            crews: HashMap::default(),
            of_crews: HashMap::default(),
            of_memberships: HashMap::default(),
            lent: HashMap::default(),
            classes: HashMap::default(),
            places: HashMap::default(),
        }
    }

    /// Finds the workload of a pod.
    pub fn here<'o>(&mut self, uid: Uid, pod: &'i PodRecord) -> Here<'o, 'i> {
        let class = self.class(pod);
        let Named { in_group, queue } = self.named(pod);
        let queue = pod.queue_with(queue).or_else(|| self.lent(pod));
        let place = self.place(queue);
        let itself = || Of::Itself(Workload::alone(place, pod.scheduled));
        Here { text: None, uid, pod, place, class, of: in_group.map_or_else(itself, Of::Group) }
    }

    fn class(&mut self, pod: &PodRecord) -> ClassState {
        let Some(name) = &pod.class else { return ClassState::None };
        let find = || self.index.reader.classes.get(name.as_str()).copied().unwrap_or(ClassState::Missing);
        *self.classes.entry(name.as_ptr()).or_insert_with(find)
    }

    fn named(&mut self, pod: &'i PodRecord) -> Named<'i> {
        let memberships = pod.memberships();
        if memberships.is_empty() {
            return Named::default();
        }
        if let Some(known) = self.of_memberships.get(&memberships.as_ptr()) {
            return *known;
        }
        let gangs = &self.index.objects.gangs;
        let queue = gangs.queue(memberships, PodGroupKind::Runai);
        let in_group = gangs.workload(memberships).map(|(group, of)| {
            let place = queue.map(|(name, _)| name.as_str());
            let all = self.of_groups.get(&group.id()).copied().unwrap_or_else(|| self.add(place, group));
            let crew = self.crew(all, group, of.controller);
            InGroup { group: crew.unwrap_or(all), subgroup: group.number(of) }
        });
        let named = Named { in_group, queue };
        self.of_memberships.insert(memberships.as_ptr(), named);
        named
    }

    /// The queue of another member, for a pod that names none.
    fn lent(&mut self, pod: &'i PodRecord) -> Option<&'i str> {
        let (group, _) = self.index.objects.gangs.workload(pod.memberships())?;
        let lent = || self.index.lent(pod, group);
        if pod.progress == Progress::Waiting {
            return lent();
        }
        *self.lent.entry(group.id()).or_insert_with(lent)
    }

    /// Adds the workload of a group in a queue; returns its number.
    fn add(&mut self, queue: Option<&'i str>, group: GroupWorkload<'i>) -> usize {
        let GroupWorkload { start, shape, .. } = group;
        let (place, all, pods) = (self.place(queue), self.groups.len(), group.count());
        self.of_groups.insert(group.id(), all);
        self.groups.push(Workload { place, start, shape, pods });
        all
    }

    /// The number of the workload of a controller's pods, if they count apart from others of their group.
    fn crew(
        &mut self,
        all: usize,
        group: GroupWorkload<'i>,
        controller: Option<NonZeroU64>,
    ) -> Option<usize> {
        let id = (group.id(), controller);
        if let Some(known) = self.of_crews.get(&id) {
            return *known;
        }
        let Workload { place, start, shape, ref pods } = *self.groups.get(all)?;
        let crews = self.crews.entry(group.id()).or_insert_with(|| group.crews(pods));
        let pods = crews.as_ref().and_then(|crews| crews.count(shape, controller));
        let crew = pods.map(|pods| {
            let number = self.groups.len();
            self.groups.push(Workload { place, start, shape, pods });
            number
        });
        self.of_crews.insert(id, crew);
        crew
    }

    #[cfg(test)]
    pub fn counted(&self) -> usize {
        self.groups.len()
    }

    fn place(&mut self, queue: Option<&'i str>) -> Place<'i> {
        let Some(queue) = queue else { return Place::default() };
        *self.places.entry(queue.as_ptr()).or_insert_with(|| Place::find(self.tree, Some(queue)))
    }
}

impl PodRecord {
    /// The queue of a pod: the one that its group names, if it does and that [counts](group_counts), else the pod's own.
    fn queue_with<'i>(&'i self, of_group: Option<GroupQueue<&'i ArcStr>>) -> Option<&'i str> {
        let own = self.queue.as_deref();
        let counts = |made: Option<Milliseconds>| {
            let scheduled = self.scheduled.map(Timestamp::as_millisecond);
            own.is_none() || group_counts(made.map(Milliseconds::get), scheduled, || false)
        };
        of_group.filter(|(_, made)| counts(*made)).map(|(name, _)| name.as_str()).or(own)
    }
}

impl PlacementIndex {
    /// The queue of a pod: as the pod and its group say, or a member lends it.
    pub(super) fn queue<'i>(&'i self, pod: &'i PodRecord) -> Option<&'i str> {
        let gangs = &self.objects.gangs;
        let lent = || self.lent(pod, gangs.workload(pod.memberships())?.0);
        pod.queue_with(gangs.queue(pod.memberships(), PodGroupKind::Runai)).or_else(lent)
    }

    /// The queue that a member of a group gets from the others: always that of the first scheduled member that names one. A
    /// member that waits lends its queue only to others that wait: users may make such pods at any time.
    fn lent<'i>(&'i self, pod: &PodRecord, group: GroupWorkload<'i>) -> Option<&'i str> {
        let waits = |of: &PodRecord| of.progress == Progress::Waiting;
        let members = group.members.iter().filter_map(|uid| Some((uid, self.reader.places.get(*uid)?)));
        let lenders = members.filter_map(|(uid, of)| {
            let order = (waits(of), of.scheduled.is_none(), of.scheduled, *uid);
            Some((order, of.queue.as_deref()?)).filter(|_| waits(pod) || !waits(of))
        });
        lenders.min_by_key(|(order, _)| *order).map(|(_, queue)| queue)
    }
}
