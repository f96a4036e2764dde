//! Which pods of a node may go for a preemptor.

use tenure_policy::{expiry::Family, expiry::SYSTEM_CRITICAL_PRIORITY, floor::Floors, tree::QueueTree};
use tenure_types::podgroup::PodGroupKind;

use super::{
    Naive,
    groups::{self, Minimums},
    tally::Tree,
};
use crate::{
    event::Ask,
    wire,
    world::{GroupKey, MILLI, Nanos, OwnerKind, PodObj},
};

impl Naive {
    pub fn tree(&self) -> &QueueTree {
        let Tree(tree) = &self.tree;
        tree
    }

    pub fn floors(&self) -> Floors {
        wire::floors(&self.config)
    }

    /// Pods on a node that take room there.
    pub fn running_on(&self, node: u8) -> Vec<&PodObj> {
        self.pods.values().filter(|pod| pod.bound && pod.node() == node && pod.is_live()).collect()
    }

    /// A question as it is asked: of the pod that wants room, if it is one that waits, and for each node.
    pub fn asked(&self, ask: Ask) -> (Option<&PodObj>, Vec<Ask>) {
        let waiting: Vec<&PodObj> = self.pods.values().filter(|pod| pod.waits()).collect();
        let place = ask.pending.map(|place| usize::from(place) % waiting.len().max(1));
        let pod = place.and_then(|place| waiting.get(place).copied());
        let asked = pod.map_or(ask, |pod| Ask { queue: self.queue(pod), priority: pod.priority(), ..ask });
        let other = ask.other.map(|victims| Ask { node: 1 - ask.node, victims, ..asked });
        let asks = [asked].into_iter().chain(other).filter(|ask| !self.offered(*ask).is_empty());
        (pod, asks.collect())
    }

    /// The pods that a question offers.
    pub fn offered(&self, ask: Ask) -> Vec<&PodObj> {
        let lower = self.running_on(ask.node).into_iter().filter(|pod| pod.priority() < ask.priority);
        lower
            .take(8)
            .enumerate()
            .filter(|(place, _)| ask.victims >> place & 1 == 1)
            .map(|(_, pod)| pod)
            .collect()
    }

    fn workload(&self, pod: &PodObj) -> Option<GroupKey> {
        pod.keys().find(|key| self.groups.contains_key(key))
    }

    /// The earliest start that a pod has shown to the webhook.
    fn start_of(&self, pod: &PodObj) -> Option<Nanos> {
        self.starts.get(&pod.uid).copied()
    }

    /// The queue by whose floor the webhook protects a pod.
    pub fn queue(&self, pod: &PodObj) -> Option<u8> {
        self.floor_queue(pod, self.start_of(pod))
    }

    /// The queue by whose floor a pod with this start is protected. Once it runs, nothing moves it that is made later: it
    /// is in that of its group, if that was there, else in its own.
    pub(super) fn floor_queue(&self, pod: &PodObj, start: Option<Nanos>) -> Option<u8> {
        let group = pod.keys().find(|key| key.0 == PodGroupKind::Runai);
        let named = group.and_then(|key| self.named_by(key));
        let is_late = |made: Option<i64>| made.zip(start).is_some_and(|(made, at)| made * MILLI > at);
        let of_group =
            named.filter(|named| pod.runai.is_none() || !is_late(named.made)).and_then(|of| of.queue);
        of_group.or(pod.runai)
    }

    /// Until when the floor of a pod's workload holds against a preemptor, if it does now.
    fn floor_until(&self, ask: Ask, pod: &PodObj) -> Option<Nanos> {
        let queue = self.queue(pod)?;
        let (tree, floors) = (self.tree(), self.floors());
        let find = |queue: u8| tree.bind(&wire::runai_name(queue));
        let bind = |queue| self.bind(Family::Runai, queue);
        let floor = if ask.queue.map(bind) == Some(bind(queue)) {
            floors.preempt(tree, find(queue), None)
        } else {
            floors.reclaim(tree, ask.queue.and_then(find), find(queue), None)
        };
        let start = self.workload(pod).map_or_else(|| self.start_of(pod), |key| self.gangs[&key].start)?;
        let until = start.min(self.now) + Nanos::try_from(floor.value.to_signed().as_nanos()).unwrap();
        Some(until).filter(|until| self.now < *until)
    }

    /// The pods of a workload that stand with this one: those of its controller, or itself if it has none.
    fn siblings<'p>(pods: &[&'p PodObj], pod: &PodObj) -> Vec<&'p PodObj> {
        let is_one = |other: &&&PodObj| match pod.controller {
            Some(_) => other.controller == pod.controller,
            None => other.uid == pod.uid,
        };
        pods.iter().filter(is_one).copied().collect()
    }

    /// The first pods of an elastic group that are all that it takes: those of the controllers whose first pod was
    /// scheduled first, less each that can be spared, from the last one on.
    fn core(&self, key: GroupKey) -> Vec<&PodObj> {
        let all = self.members(key);
        let seniority = |pod: &PodObj| {
            let scheduled = pod.scheduled().filter(|_| pod.is_active()).unwrap_or(Nanos::MAX);
            (!pod.is_active(), scheduled, pod.created, wire::uid(pod.uid))
        };
        let of_first = |pod: &PodObj| Self::siblings(&all, pod).into_iter().map(seniority).min();
        let mut core = all.clone();
        core.sort_by_key(|pod| (of_first(pod), seniority(pod)));
        for place in (0..core.len()).rev() {
            let mut without = core.clone();
            without.remove(place);
            if self.has_all(key, &without) {
                core = without;
            }
        }
        core
    }

    /// The pods of a group that must stay enough when this one goes. In an elastic group these are the pods of its
    /// controller, if they are all that it takes; else, if any of them is of the core, they and the core.
    fn crew(&self, key: GroupKey, pod: &PodObj) -> Vec<&PodObj> {
        let all = self.members(key);
        let siblings = Self::siblings(&all, pod);
        if !self.can_spare_one(key, &all) {
            return all;
        }
        if pod.controller.is_some() && self.has_all(key, &siblings) {
            return siblings;
        }
        let core = self.core(key);
        let uids = |pods: &[&PodObj]| pods.iter().map(|pod| pod.uid).collect::<Vec<_>>();
        let (of_core, of_siblings) = (uids(&core), uids(&siblings));
        if !of_siblings.iter().any(|uid| of_core.contains(uid)) {
            return all;
        }
        all.into_iter().filter(|pod| of_core.contains(&pod.uid) || of_siblings.contains(&pod.uid)).collect()
    }

    /// True if `victims` leave enough of these that are live and running: for each minimum that one of them counts for,
    /// unless enough other subgroups have theirs.
    fn leave_enough(&self, key: GroupKey, crew: &[&PodObj], victims: &[&PodObj]) -> bool {
        let count = |of: Option<u8>, pods: &[&PodObj]| {
            let of_it = pods.iter().filter(|pod| pod.is_member(key) && pod.is_active());
            of_it.filter(|pod| of.is_none_or(|of| groups::subgroup(key.0, pod) == of)).count()
        };
        let keeps = |of: Option<u8>, minimum: u32| count(of, crew) - count(of, victims) >= minimum as usize;
        let is_short = |of, minimum| count(of, victims) > 0 && !keeps(of, minimum);
        let Minimums { all, each, parts } = groups::minimums(&self.groups[&key]);
        let left = each.iter().filter(|(of, minimum)| keeps(Some(*of), *minimum)).count();
        !is_short(None, all)
            && (left >= parts || !each.iter().any(|(of, minimum)| is_short(Some(*of), *minimum)))
    }

    /// True if a pod may go together with these others, within its floor: a pod counts for one workload, though it may
    /// name groups of several kinds.
    fn is_spare(&self, key: GroupKey, pod: &PodObj, victims: &[&PodObj]) -> bool {
        let of_it: Vec<&PodObj> =
            victims.iter().copied().filter(|pod| self.workload(pod) == Some(key)).collect();
        let (all, crew) = (self.members(key), self.crew(key, pod));
        let own = if crew.len() == all.len() { of_it.clone() } else { Self::siblings(&of_it, pod) };
        self.can_spare_one(key, &crew)
            && self.leave_enough(key, &crew, &own)
            && self.leave_enough(key, &all, &of_it)
    }

    fn has_all(&self, key: GroupKey, pods: &[&PodObj]) -> bool {
        let Minimums { all, each, parts } = groups::minimums(&self.groups[&key]);
        let count = |of: u8| pods.iter().filter(|pod| groups::subgroup(key.0, pod) == of).count();
        let has = each.iter().filter(|(of, minimum)| count(*of) >= *minimum as usize).count();
        pods.len() >= all as usize && has >= parts
    }

    /// A workload that may lose a pod and run on: it has all of its minimums, and has them without one of its pods.
    fn can_spare_one(&self, key: GroupKey, pods: &[&PodObj]) -> bool {
        let without =
            |gone: &PodObj| pods.iter().copied().filter(|pod| pod.uid != gone.uid).collect::<Vec<_>>();
        self.has_all(key, pods) && pods.iter().any(|pod| self.has_all(key, &without(pod)))
    }

    /// True if any of these is protected when all of them go.
    pub fn are_protected(&self, ask: Ask, victims: &[&PodObj]) -> bool {
        if ask.priority >= SYSTEM_CRITICAL_PRIORITY {
            return false;
        }
        victims.iter().any(|pod| {
            let spares = self.workload(pod).is_some_and(|key| self.is_spare(key, pod, victims));
            !spares && self.floor_until(ask, pod).is_some()
        })
    }

    /// A rigid gang goes as a whole, unless pieces of it were offered.
    pub fn are_whole(&self, victims: &[&PodObj], offered: &[&PodObj]) -> bool {
        victims.iter().filter_map(|pod| Some((self.workload(pod)?, pod))).all(|(key, pod)| {
            let crew = self.crew(key, pod);
            let is_whole = crew.iter().filter(|pod| pod.is_active()).all(|pod| victims.contains(pod));
            let is_of = |pod: &&&PodObj| self.workload(pod) == Some(key) && crew.contains(pod);
            let mut pieces = victims.iter().filter(is_of);
            self.can_spare_one(key, &crew) || is_whole || pieces.all(|pod| offered.contains(pod))
        })
    }

    /// All that might go instead of what is offered, where no workload can spare some of its pods only.
    pub fn all_that_may_go(&self, ask: Ask, offered: &[&PodObj]) -> Option<Vec<&PodObj>> {
        let here = self.running_on(ask.node);
        let by_groups = |pod: &&PodObj| self.workload(pod).is_some();
        if here.iter().any(by_groups) {
            return None;
        }
        let frees = |pod: &&PodObj| {
            let is_static = pod.mirror || matches!(pod.controller, Some((OwnerKind::DaemonSet, _)));
            // perhaps no kubelet admits a pod that was created with its node
            (!is_static && pod.scheduled.is_some()) || offered.contains(pod)
        };
        let may = |pod: &&PodObj| pod.priority() < ask.priority && !self.are_protected(ask, &[pod]);
        Some(here.into_iter().filter(may).filter(frees).collect())
    }
}
