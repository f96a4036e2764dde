//! The workloads of pods, as the rules of preemption need them. Many pods of a question have the
//! same workload, so each is looked up once. Answers, the guard, and the counts of kept and pending
//! victims each use a cache for one question.

use std::{borrow::Cow, collections::HashMap, hash::BuildHasherDefault, ptr};

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{
    gang::CountedPods,
    preemption::{AppliedFloor, OwnProtection, Preemptor, QueuePlace, Rule, Rules, Victim, Workload},
    toleration::ClassState,
    tree::QueueTree,
};
use tenure_types::podgroup::PodGroupKind;

use super::{PlacementIndex, PodRecord, PreemptiblePod};
use crate::{
    Uid,
    podgroups::{Crew, GangId, GroupCrews, GroupQueue, GroupWorkload, Membership, PartId, floor_queue},
    uid::UidHasher,
};

/// Values by address: an address stays the same while a question lasts, and takes less time than a
/// comparison of values.
type ByAddress<A, V> = HashMap<A, V, BuildHasherDefault<UidHasher>>;

/// The workloads of groups, and other values that many pods have in common.
pub struct WorkloadCache<'q, 'i> {
    index: &'i PlacementIndex,
    tree: &'q QueueTree,
    /// The workloads of groups and of their parts. The place in this list is the number of a
    /// workload.
    groups: Vec<Workload<'i>>,
    of_groups: ByAddress<GangId, usize>,
    /// The pods of elastic groups by seniority, by the number of the group.
    crews: ByAddress<usize, GroupCrews>,
    /// The numbers of the parts of groups that are counted apart. None: for this crew, the whole
    /// group is counted.
    parts: ByAddress<(usize, PartId), Option<usize>>,
    /// The groups of pods that were looked up, by the number in this list.
    resolved: Vec<ResolvedGroup<'i>>,
    /// The numbers of the groups of pods, by their memberships, which pods share.
    of_memberships: ByAddress<*const Membership, usize>,
    /// The states of priority classes, by their interned names.
    classes: ByAddress<*const u8, ClassState>,
    /// The places of queues in the tree, by their interned names.
    places: ByAddress<*const u8, QueuePlace<'i>>,
    /// The floors of victims against the preemptor, by the interned names of queue and node pool.
    floors: ByAddress<[*const u8; 2], AppliedFloor<'q>>,
}

/// The protection of a pod no matter which other pods go.
#[derive(Clone, Copy, Default)]
pub struct OwnVerdict {
    /// The rule that protects the pod, and the end of the protection if that is known.
    pub ruled: (Option<Rule>, Option<Timestamp>),
    /// True if the pod is in a group that exists.
    pub in_group: bool,
    /// True if the group can spare pods: then this one may go all the same.
    pub is_elastic: bool,
}

impl OwnVerdict {
    /// True if nothing protects the pod.
    pub const fn is_free(&self) -> bool {
        self.ruled.0.is_none()
    }
}

/// The numbers of a group's workload, of the part of the group that is counted apart, and of the
/// pod's subgroup.
#[derive(Clone, Copy)]
pub struct GroupNumbers {
    pub group: usize,
    /// None: the whole group is counted.
    pub part: Option<usize>,
    pub subgroup: usize,
}

impl GroupNumbers {
    /// Returns the numbers of the workloads in which the pod is counted, in the order of
    /// [`Victim::counted`].
    pub fn counted(self) -> impl Iterator<Item = usize> {
        [Some(self.group), self.part].into_iter().flatten()
    }
}

/// The group that pods name.
#[derive(Clone, Copy)]
struct ResolvedGroup<'i> {
    /// The group, the number of its workload, and that of the subgroup. None: there is no such
    /// group.
    of: Option<(GroupWorkload<'i>, usize, usize)>,
    queue: Option<GroupQueue<&'i ArcStr>>,
    /// True if the group can spare pods.
    is_elastic: bool,
}

/// A pod with its workload.
pub struct PodWithWorkload<'o, 'i> {
    /// The pod's uid as its scheduler writes it. None: the scheduler hasn't named the pod.
    pub text: Option<&'o Cow<'i, str>>,
    pub uid: Uid,
    pub pod: &'i PodRecord,
    place: QueuePlace<'i>,
    class: ClassState,
    of: SchedulingUnit<'i>,
}

/// The unit that starts and stops as one: a pod's group, or the pod alone.
enum SchedulingUnit<'i> {
    Group(GroupNumbers),
    /// The pod is in no group.
    Itself(Workload<'i>),
}

impl<'i> PodWithWorkload<'_, 'i> {
    /// Returns the numbers of the pod's group. None: the pod is in no group.
    pub const fn group(&self) -> Option<GroupNumbers> {
        match self.of {
            SchedulingUnit::Group(group) => Some(group),
            SchedulingUnit::Itself(_) => None,
        }
    }

    /// Returns the pod as a part of an answer.
    pub fn taken(&self) -> PreemptiblePod<'i> {
        let text = self.text.cloned().unwrap_or_else(|| self.pod.uid(self.uid));
        PreemptiblePod { text, uid: self.uid, in_group: self.group().is_some() }
    }

    /// Returns the pod as rules see it, on a node of a pool. None: the pod wasn't found with this
    /// cache.
    pub fn victim<'w>(
        &'w self,
        workloads: &'w WorkloadCache<'_, 'i>,
        pool: Option<&'w str>,
    ) -> Option<Victim<'w>> {
        let (workload, part, subgroup) = match &self.of {
            SchedulingUnit::Group(GroupNumbers { group, part, subgroup }) => {
                let part = part.and_then(|part| workloads.groups.get(part));
                (workloads.groups.get(*group)?, part, *subgroup)
            }
            SchedulingUnit::Itself(workload) => (workload, None, 0),
        };
        let PodRecord { progress, scheduled, .. } = *self.pod;
        let Self { place, class, .. } = *self;
        Some(Victim { workload, part, place, subgroup, progress, pool, class, scheduled_at: scheduled })
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
            parts: HashMap::default(),
            resolved: Vec::new(),
            of_memberships: HashMap::default(),
            classes: HashMap::default(),
            places: HashMap::default(),
            floors: HashMap::default(),
        }
    }

    /// Returns the protection of a pod on a node of a pool from a preemptor, no matter which other
    /// pods go. All calls must be for the same rules and the same preemptor.
    pub fn own(
        &mut self,
        rules: &Rules<'q>,
        preemptor: &Preemptor<'_>,
        pod: &'i PodRecord,
        pool: Option<&str>,
    ) -> OwnVerdict {
        let (class, scheduled_at) = (self.class(pod), pod.scheduled);
        let ResolvedGroup { of, queue, is_elastic } = self.named(pod);
        let start = of.as_ref().map_or(scheduled_at, |(group, ..)| group.start);
        let (in_group, queue, is_elastic) = (of.is_some(), *queue, *is_elastic);
        let queue = floor_queue(queue, pod.queue.as_deref(), scheduled_at);
        let floor = self.floor(rules, preemptor, queue, pool);
        let victim = OwnProtection { start, floor, class, scheduled_at, progress: pod.progress };
        OwnVerdict { ruled: rules.own(preemptor, &victim), in_group, is_elastic }
    }

    /// Returns the floor of the victims of a queue on nodes of a pool against the preemptor.
    fn floor(
        &mut self,
        rules: &Rules<'q>,
        preemptor: &Preemptor<'_>,
        queue: Option<&'i str>,
        pool: Option<&str>,
    ) -> AppliedFloor<'q> {
        let key = [queue, pool].map(|name| name.map_or(ptr::null(), str::as_ptr));
        if let Some(known) = self.floors.get(&key) {
            return *known;
        }
        let place = self.place(queue);
        let floor = rules.applied(preemptor, &place, pool);
        self.floors.insert(key, floor);
        floor
    }

    /// Finds the workload of a pod, and the part of it that is counted apart, which takes a pass over
    /// all pods of the group. `uid` is the key of the record.
    pub fn here<'o>(&mut self, uid: Uid, pod: &'i PodRecord) -> PodWithWorkload<'o, 'i> {
        let class = self.class(pod);
        let ResolvedGroup { of, queue, .. } = *self.named(pod);
        let place = self.place(floor_queue(queue, pod.queue.as_deref(), pod.scheduled));
        let of = match of {
            Some((of, group, subgroup)) => {
                let part = self.part(group, of, Crew::of(uid, pod.memberships()));
                SchedulingUnit::Group(GroupNumbers { group, part, subgroup })
            }
            None => SchedulingUnit::Itself(Workload::alone(place, pod.scheduled)),
        };
        PodWithWorkload { text: None, uid, pod, place, class, of }
    }

    fn class(&mut self, pod: &PodRecord) -> ClassState {
        let Some(name) = &pod.class else { return ClassState::None };
        let find = || self.index.reader.classes.get(name.as_str()).copied().unwrap_or(ClassState::Missing);
        *self.classes.entry(name.as_ptr()).or_insert_with(find)
    }

    /// Returns the group that a pod names, and adds the group's workload if it is new.
    fn named(&mut self, pod: &'i PodRecord) -> &ResolvedGroup<'i> {
        const NONE: &ResolvedGroup<'static> = &ResolvedGroup { of: None, queue: None, is_elastic: false };
        let memberships = pod.memberships();
        if memberships.is_empty() {
            return NONE;
        }
        let known = self.of_memberships.get(&memberships.as_ptr()).copied();
        let number = known.unwrap_or_else(|| self.resolve(memberships));
        self.resolved.get(number).unwrap_or(NONE)
    }

    /// Looks the group of these memberships up. Returns its number.
    fn resolve(&mut self, memberships: &'i [Membership]) -> usize {
        let gangs = &self.index.objects.gangs;
        let group = gangs.workload(memberships);
        // a group of another kind names no such queue, and a queue counts even if its group is gone
        let of_runai = group.filter(|(_, of)| of.group.kind == PodGroupKind::Runai);
        let queue = of_runai
            .map_or_else(|| gangs.queue(memberships, PodGroupKind::Runai), |(group, _)| group.queue());
        let of = group.map(|(group, of)| {
            let place = queue.map(|(name, _)| name.as_str());
            let all = self.of_groups.get(&group.id()).copied().unwrap_or_else(|| self.add(place, group));
            (group, all, group.number(of))
        });
        let all = of.and_then(|(_, all, _)| self.groups.get(all));
        let is_elastic = all.is_some_and(Workload::is_elastic);
        let number = self.resolved.len();
        self.resolved.push(ResolvedGroup { of, queue, is_elastic });
        self.of_memberships.insert(memberships.as_ptr(), number);
        number
    }

    /// Adds the workload of a group in a queue. Returns the workload's number.
    fn add(&mut self, queue: Option<&'i str>, group: GroupWorkload<'i>) -> usize {
        let GroupWorkload { start, shape, .. } = group;
        let (place, all, pods) = (self.place(queue), self.groups.len(), group.count());
        self.of_groups.insert(group.id(), all);
        self.groups.push(Workload { place, start, shape, pods });
        all
    }

    /// Returns the number of the part of a group that is counted apart when pods of a crew go.
    /// None: the whole group is counted.
    fn part(&mut self, all: usize, group: GroupWorkload<'i>, crew: Crew) -> Option<usize> {
        let Workload { place, start, shape, ref pods } = *self.groups.get(all)?;
        if !pods.is_elastic() {
            return None;
        }
        let key = (all, PartId::Crew(crew));
        if let Some(known) = self.parts.get(&key) {
            return *known;
        }
        let number = self.groups.len();
        let mut add = |pods| {
            self.groups.push(Workload { place, start, shape, pods });
            Some(number)
        };
        let crews = self.crews.entry(all).or_insert_with(|| group.crews());
        let part = match crews.part(shape, crew) {
            CountedPods::Whole => None,
            CountedPods::Crew(pods) => add(pods),
            CountedPods::Core => {
                *self.parts.entry((all, PartId::Core)).or_insert_with(|| add(crews.core(shape)))
            }
        };
        self.parts.insert(key, part);
        part
    }

    #[cfg(test)]
    pub fn counted(&self) -> usize {
        self.groups.len()
    }

    fn place(&mut self, queue: Option<&'i str>) -> QueuePlace<'i> {
        let Some(queue) = queue else { return QueuePlace::default() };
        *self.places.entry(queue.as_ptr()).or_insert_with(|| QueuePlace::find(self.tree, Some(queue)))
    }
}

impl PlacementIndex {
    /// Returns the queue of a pod, as [`floor_queue`] has it.
    pub(super) fn queue<'i>(&'i self, pod: &'i PodRecord) -> Option<&'i str> {
        self.objects.gangs.floor_queue(pod.memberships(), pod.queue.as_deref(), pod.scheduled)
    }
}
