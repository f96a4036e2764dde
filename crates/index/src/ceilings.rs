//! Queues and pods together: whose ceiling is reached, and when.

mod groups;

use std::collections::HashSet;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tenure_policy::{
    expiry::{self, Clocks, Family, Scope},
    floor::Floors,
    owners::OwnerTable,
};
use tenure_types::{projection, runai::v3alpha1, tensorstack::v1beta1};

use crate::{
    Group, Outcome, Served, Uid,
    gangs::{Gangs, OfGroups},
    kinds::Kinds,
    members::{Membership, memberships},
    names::Names,
    own::OwnCeilings,
    owners::{Controller, Owner, Owners},
    paused::PausedOwners,
    pod::Pod,
    pods::{Expiry, Pods},
    queues::{Limits, RunaiQueues, TensorstackQueues},
    tally::{Counted, Tally},
};

/// What an index is to go by.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which pods count.
    pub scope: Scope,
    /// Which owners can be paused.
    pub table: OwnerTable,
    /// How long before the end of its run a workload is told, where its queue doesn't say. Zero: not at all.
    pub notice: SignedDuration,
}

/// How a pod stands, whether or not it is kept: see [`CeilingIndex::standing`].
#[derive(Clone, Debug)]
pub struct Standing {
    /// The two clocks that its ceilings run by.
    pub clocks: Clocks,
    /// When its workload started: that of its `PodGroup`, if there is one.
    pub start: Option<Timestamp>,
    /// There is one.
    pub is_grouped: bool,
    /// Its queue of the tensorstack family.
    pub tensorstack: Option<ArcStr>,
    /// Its queue of the run.ai family.
    pub runai: Option<ArcStr>,
    /// The least of the ceilings that people have noted on it, its root owner and its `PodGroup`s.
    pub own: Option<SignedDuration>,
    /// When its ceiling is reached, and the family that says so.
    pub expires: Option<(Timestamp, Family)>,
}

/// A pod that was seen, and isn't kept.
#[derive(Debug)]
pub struct Seen {
    pod: Pod,
    of: Box<[Membership]>,
}

/// Everything that a ceiling's expiry depends on.
///
/// Queues, `PodGroup`s and owners can come after their pods, and a change of one moves the deadlines of many: they are
/// computed anew, once, when somebody next asks for a deadline.
#[derive(Debug)]
pub struct CeilingIndex {
    readers: Readers,
    queues: Queues,
    pods: Pods,
    paused: PausedOwners,
    moved: Moved,
}

/// Whose deadlines are to be computed anew.
#[derive(Debug, Default)]
struct Moved {
    everybody: bool,
    namespaces: HashSet<ArcStr>,
}

/// What objects are read with.
#[derive(Debug, Default)]
pub struct Readers {
    pub kinds: Kinds,
    pub names: Names,
    pub own: OwnCeilings,
}

/// All that says which ceiling applies to a pod.
#[derive(Debug, Default)]
struct Queues {
    runai: RunaiQueues,
    tensorstack: TensorstackQueues,
    gangs: Gangs,
    owners: Owners,
    notice: SignedDuration,
}

impl CeilingIndex {
    /// Of an empty cluster.
    pub fn new(settings: Settings) -> Self {
        let Settings { scope, table, notice } = settings;
        let mut index = Self {
            readers: Readers::default(),
            queues: Queues::default(),
            pods: Pods::new(scope),
            paused: PausedOwners::default(),
            moved: Moved::default(),
        };
        index.configure(&table, notice);
        index
    }

    /// Goes by another table of owners and another notice from now on.
    pub fn configure(&mut self, table: &OwnerTable, notice: SignedDuration) {
        self.queues.owners.set_pausable(self.readers.kinds.pausable(table));
        self.queues.notice = notice;
        self.moved.everybody = true;
    }

    /// Takes a pod as the API server has it.
    pub fn apply_pod(&mut self, pod: &projection::Pod) {
        self.apply_member(pod);
        if let Some(uid) = self.pods.apply(pod, &mut self.readers) {
            self.schedule(uid);
        }
    }

    /// Takes a pod as a member of its `PodGroup`s alone: no ceiling is kept of it.
    pub fn apply_member(&mut self, pod: &projection::Pod) {
        if let Some(uid) = pod.metadata.uid.as_deref() {
            self.queues.gangs.apply_pod(Uid::of(uid), pod, &mut self.readers.names);
        }
    }

    /// Forgets a pod.
    pub fn delete_pod(&mut self, uid: Uid) {
        self.queues.gangs.delete_pod(uid);
        self.pods.delete(uid);
    }

    /// Forgets all pods but these.
    pub fn retain_pods(&mut self, uids: &HashSet<Uid>) {
        self.queues.gangs.retain_pods(uids);
        self.pods.retain(uids);
    }

    /// Takes a queue of the run.ai family as the API server has it; says whether a decision may have changed.
    pub fn apply_runai(&mut self, name: &str, spec: &v3alpha1::QueueSpec) -> bool {
        let changed = self.queues.runai.apply(name, spec);
        self.moved.everybody |= changed;
        changed
    }

    /// The same of a queue in KAI-Scheduler's version.
    pub fn apply_runai_v2(&mut self, name: &str, queue: &projection::RunaiQueueV2) -> bool {
        let changed = self.queues.runai.apply_v2(name, queue);
        self.moved.everybody |= changed;
        changed
    }

    /// Forgets a queue of the run.ai family.
    pub fn delete_runai(&mut self, name: &str) {
        self.moved.everybody |= self.queues.runai.delete(name);
    }

    /// Forgets all queues of the run.ai family but these.
    pub fn retain_runai(&mut self, names: &HashSet<String>) {
        self.moved.everybody |= self.queues.runai.retain(names);
    }

    /// Takes a queue of the tensorstack family as the API server has it.
    pub fn apply_tensorstack(&mut self, name: &str, spec: &v1beta1::QueueSpec) {
        self.moved.everybody |= self.queues.tensorstack.apply(name, spec);
    }

    /// Forgets a queue of the tensorstack family.
    pub fn delete_tensorstack(&mut self, name: &str) {
        self.moved.everybody |= self.queues.tensorstack.delete(name);
    }

    /// Forgets all queues of the tensorstack family but these.
    pub fn retain_tensorstack(&mut self, names: &HashSet<String>) {
        self.moved.everybody |= self.queues.tensorstack.retain(names);
    }

    /// Takes an object that may own pods. `source` tells apart the kinds, each of which is listed by itself.
    pub fn apply_owner(&mut self, source: u16, metadata: &ObjectMeta) {
        let Some(uid) = metadata.uid.as_deref() else { return };
        let controller = projection::controller(metadata);
        let controller = controller.map(|above| Controller::read(above, &self.readers.kinds));
        self.paused.apply(Uid::of(uid), source, metadata, controller, &mut self.readers.names);
        let owner = Owner { controller, own: self.readers.own.read(metadata), source };
        if self.queues.owners.apply(Uid::of(uid), owner) {
            match metadata.namespace.as_deref() {
                Some(namespace) => {
                    self.moved.namespaces.insert(self.readers.names.shared(namespace));
                }
                // of the whole cluster
                None => self.moved.everybody = true,
            }
        }
    }

    /// Forgets an owner.
    pub fn delete_owner(&mut self, uid: Uid) {
        self.paused.delete(uid);
        self.moved.everybody |= self.queues.owners.delete(uid);
    }

    /// Forgets all owners of a source but these.
    pub fn retain_owners(&mut self, source: u16, uids: &HashSet<Uid>) {
        self.paused.retain(source, uids);
        self.moved.everybody |= self.queues.owners.retain(source, uids);
    }

    /// The next instant at which there may be something to claim.
    pub fn next_due(&mut self) -> Option<Timestamp> {
        self.reschedule();
        self.pods.next_due()
    }

    /// When the next pod's ceiling is reached, or was if it is overdue.
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.reschedule();
        self.pods.next_expiry()
    }

    /// Hands out the pod that is most overdue at `now`, with the others of its controller that are overdue too.
    /// They are not handed out again before they are taken back. What has expired comes first.
    pub fn claim(&mut self, now: Timestamp) -> Option<Group> {
        self.reschedule();
        self.pods.claim(now)
    }

    /// Takes back a group, of which those that were `served` had this `outcome`. The others are due again at once.
    pub fn settle(&mut self, group: &Group, served: Served, outcome: Outcome, now: Timestamp) {
        self.pods.settle(&group.first, group.task, outcome, now);
        for pod in &group.rest {
            if served == Served::All {
                self.pods.settle(pod, group.task, outcome, now);
            } else {
                self.pods.release(pod.uid, served == Served::First);
            }
        }
        for pod in group.pods() {
            self.schedule(pod.uid);
        }
    }

    /// Takes back everything that was handed out: who was to act on it is gone.
    pub fn release_all(&mut self) {
        for uid in self.pods.release_all() {
            self.schedule(uid);
        }
    }

    /// The controllers of the live pods of a namespace that are exempt by priority.
    pub fn exempt_controllers(&self, namespace: &str) -> Vec<OwnerReference> {
        self.pods.exempt_controllers(namespace)
    }

    /// When the first of the pods of a root owner expires, as far as it is known whose they are.
    pub fn first_end(&mut self, namespace: &str, root: Uid) -> Option<Timestamp> {
        self.reschedule();
        let Self { queues, pods, .. } = self;
        pods.first_end(namespace, |pod| queues.owners.root(pod.controller) == Some(root))
    }

    /// How a pod stands by the queues, `PodGroup`s and owners that are known, without keeping it; none if it is in no
    /// queue. Whether it is exempt doesn't matter here.
    pub fn standing(&mut self, pod: &projection::Pod) -> Option<Standing> {
        let seen = self.see(pod)?;
        self.standing_of(&seen)
    }

    /// What is to be known of a pod to say later how it stands, when all are known that are in its `PodGroup`s.
    pub fn see(&mut self, pod: &projection::Pod) -> Option<Seen> {
        let of = memberships(pod, |text| self.readers.names.shared(text));
        Some(Seen { pod: Pod::read(pod, &mut self.readers)?, of })
    }

    /// How a pod stands that was seen.
    pub fn standing_of(&mut self, seen: &Seen) -> Option<Standing> {
        self.queues.gangs.compute();
        let of_groups = self.queues.gangs.of(&seen.of);
        let (standing, _) = self.queues.standing(&seen.pod, of_groups);
        (standing.tensorstack.is_some() || standing.runai.is_some()).then_some(standing)
    }

    /// What is to be said of the queues of the run.ai family.
    pub fn tally(&mut self, floors: &Floors, now: Timestamp) -> Tally {
        self.reschedule();
        let Self { queues: Queues { runai, tensorstack, gangs, owners, .. }, pods, paused, .. } = &*self;
        Counted { runai, tensorstack, gangs, pods, owners, paused }.count(floors, now)
    }

    /// How many pods run under a ceiling, apart from those that are claimed.
    pub fn pods_under_ceiling(&mut self) -> usize {
        self.reschedule();
        self.pods.scheduled()
    }

    /// How many pods are overdue, apart from those that are claimed.
    pub fn overdue(&mut self, now: Timestamp) -> usize {
        self.reschedule();
        self.pods.overdue(now)
    }

    /// How many pods are kept.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// How many groups anything is known of, and how many pods are in any.
    #[cfg(test)]
    pub fn group_counts(&self) -> (usize, usize) {
        self.queues.gangs.len()
    }

    /// How much is kept of groups for those that ask.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.queues.gangs.waiting()
    }

    fn schedule(&mut self, uid: Uid) {
        let Self { queues, pods, .. } = self;
        pods.schedule(uid, &mut |uid, pod| queues.expiry(uid, pod));
    }

    fn reschedule(&mut self) {
        let of_groups = self.queues.gangs.moved();
        let Self { queues, pods, moved, .. } = self;
        let mut expiry = |uid, pod: &Pod| queues.expiry(uid, pod);
        let Moved { everybody, namespaces } = std::mem::take(moved);
        if everybody {
            pods.schedule_all(&mut expiry);
            return;
        }
        for namespace in namespaces {
            pods.schedule_namespace(&namespace, &mut expiry);
        }
        for uid in of_groups {
            pods.schedule(uid, &mut expiry);
        }
    }
}

impl Queues {
    /// When a pod expires.
    fn expiry(&mut self, uid: Uid, pod: &Pod) -> Option<Expiry> {
        let of_groups = self.gangs.of(self.gangs.memberships(uid));
        let (standing, limits) = self.standing(pod, of_groups);
        let (at, family) = standing.expires?;
        let (queue, limits) = match family {
            Family::Tensorstack => (standing.tensorstack, limits.tensorstack),
            Family::Runai => (standing.runai, limits.runai),
        };
        let notice = limits.and_then(|limits| limits.notice).unwrap_or(self.notice);
        Some(Expiry { at, family, queue, notice })
    }

    /// How a pod stands, and what applies in its queues.
    fn standing(&mut self, pod: &Pod, of_groups: OfGroups) -> (Standing, LimitsOf) {
        let root = self.owners.own_ceiling(pod.controller);
        let own = [root, pod.own_ceiling(), of_groups.own].into_iter().flatten().min();
        // a group's queue counts, if there is such a group
        let tensorstack = of_groups.tensorstack.or_else(|| pod.tensorstack.clone());
        let runai = of_groups.runai.or_else(|| pod.runai.clone());
        let limits = LimitsOf {
            tensorstack: tensorstack.as_deref().and_then(|queue| self.tensorstack.limits(queue)),
            runai: runai.as_deref().and_then(|queue| self.runai.limits(queue)),
        };
        // a pod that names no queue of a family has no ceiling there, not even its own
        let ceiling =
            |limits: &Option<Limits>| limits.and_then(|limits| limits.ceiling.into_iter().chain(own).min());
        let OfGroups { is_grouped, start, .. } = of_groups;
        let alone = pod.clocks();
        // a workload may never have as many pods as it takes: those that it has run all the same
        let clocks = Clocks { started: start.or(alone.started), ..alone };
        let start = if is_grouped { start } else { alone.started };
        let expires = expiry::deadline(clocks, ceiling(&limits.tensorstack), ceiling(&limits.runai));
        (Standing { clocks, start, is_grouped, tensorstack, runai, own, expires }, limits)
    }
}

/// What applies to a pod in each of its queues.
struct LimitsOf {
    tensorstack: Option<Limits>,
    runai: Option<Limits>,
}

#[cfg(test)]
mod tests;
