//! Queues and pods together: whose ceiling is reached, and when.

use std::collections::HashSet;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tenure_policy::{
    expiry::{self, Clocks, Family, Scope},
    owners::OwnerTable,
};
use tenure_types::{keys, projection, runai::v3alpha1, tensorstack::v1beta1};

use crate::{
    Group, Outcome, Served, Uid,
    groups::{PodGroup, PodGroups},
    kinds::Kinds,
    names::Names,
    own::OwnCeilings,
    owners::{Controller, Owner, Owners},
    pod::{Membership, Pod},
    pods::{Expiry, Pods},
    queues::{Limits, RunaiQueues, TensorstackQueues},
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
    /// Its queue of the tensorstack family.
    pub tensorstack: Option<ArcStr>,
    /// Its queue of the run.ai family.
    pub runai: Option<ArcStr>,
    /// The least of the ceilings that people have noted on it, its root owner and its `PodGroup`s.
    pub own: Option<SignedDuration>,
    /// When its ceiling is reached, and the family that says so.
    pub expires: Option<(Timestamp, Family)>,
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
    runai_groups: PodGroups,
    tensorstack_groups: PodGroups,
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
        if let Some(uid) = self.pods.apply(pod, &mut self.readers) {
            self.schedule(uid);
        }
    }

    /// Forgets a pod.
    pub fn delete_pod(&mut self, uid: Uid) {
        self.pods.delete(uid);
    }

    /// Forgets all pods but these.
    pub fn retain_pods(&mut self, uids: &HashSet<Uid>) {
        self.pods.retain(uids);
    }

    /// Takes a queue of the run.ai family as the API server has it.
    pub fn apply_runai(&mut self, name: &str, spec: &v3alpha1::QueueSpec) {
        self.moved.everybody |= self.queues.runai.apply(name, spec);
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

    /// Takes a `PodGroup` as the API server has it.
    pub fn apply_group(&mut self, family: Family, metadata: &ObjectMeta, spec: &projection::PodGroupSpec) {
        let queue = spec.queue.as_deref().filter(|queue| !queue.is_empty());
        let queue = match family {
            Family::Tensorstack => Some(queue.unwrap_or(keys::TENSORSTACK_DEFAULT_QUEUE)),
            Family::Runai => queue,
        };
        let group = PodGroup {
            queue: queue.map(|queue| self.readers.names.shared(queue)),
            own: self.readers.own.read(metadata),
        };
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let namespace = self.readers.names.shared(namespace.unwrap_or_default());
        let name = self.readers.names.shared(name.unwrap_or_default());
        if self.queues.groups(family).apply(&namespace, name, group) {
            self.moved.namespaces.insert(namespace);
        }
    }

    /// Forgets a `PodGroup`.
    pub fn delete_group(&mut self, family: Family, namespace: &str, name: &str) {
        if self.queues.groups(family).delete(namespace, name) {
            self.moved.namespaces.insert(self.readers.names.shared(namespace));
        }
    }

    /// Forgets all `PodGroup`s of a family but these, by namespace and name.
    pub fn retain_groups(&mut self, family: Family, keys: &HashSet<(String, String)>) {
        self.moved.everybody |= self.queues.groups(family).retain(keys);
    }

    /// Takes an object that may own pods. `source` tells apart the kinds, each of which is listed by itself.
    pub fn apply_owner(&mut self, source: u16, metadata: &ObjectMeta) {
        let Some(uid) = metadata.uid.as_deref() else { return };
        let controller = projection::controller(metadata);
        let controller = controller.map(|above| Controller::read(above, &self.readers.kinds));
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
        self.moved.everybody |= self.queues.owners.delete(uid);
    }

    /// Forgets all owners of a source but these.
    pub fn retain_owners(&mut self, source: u16, uids: &HashSet<Uid>) {
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
        let pod = Pod::read(pod, &mut self.readers)?;
        let (standing, _) = self.queues.standing(&pod);
        (standing.tensorstack.is_some() || standing.runai.is_some()).then_some(standing)
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

    fn schedule(&mut self, uid: Uid) {
        let Self { queues, pods, .. } = self;
        pods.schedule(uid, &mut |pod| queues.expiry(pod));
    }

    fn reschedule(&mut self) {
        let Self { queues, pods, moved, .. } = self;
        let Moved { everybody, namespaces } = std::mem::take(moved);
        if everybody {
            pods.schedule_all(&mut |pod| queues.expiry(pod));
        } else {
            for namespace in namespaces {
                pods.schedule_namespace(&namespace, &mut |pod| queues.expiry(pod));
            }
        }
    }
}

impl Queues {
    fn groups(&mut self, family: Family) -> &mut PodGroups {
        match family {
            Family::Tensorstack => &mut self.tensorstack_groups,
            Family::Runai => &mut self.runai_groups,
        }
    }

    /// When a pod expires.
    fn expiry(&mut self, pod: &Pod) -> Option<Expiry> {
        let (standing, limits) = self.standing(pod);
        let (at, family) = standing.expires?;
        let (queue, limits) = match family {
            Family::Tensorstack => (standing.tensorstack, limits.tensorstack),
            Family::Runai => (standing.runai, limits.runai),
        };
        let notice = limits.and_then(|limits| limits.notice).unwrap_or(self.notice);
        Some(Expiry { at, queue, notice })
    }

    /// How a pod stands, and what applies in its queues.
    fn standing(&mut self, pod: &Pod) -> (Standing, LimitsOf) {
        let root = self.owners.own_ceiling(pod.controller);
        let (tensorstack, t9k_own) = place(&self.tensorstack_groups, pod, &pod.tensorstack);
        let (runai, runai_own) = place(&self.runai_groups, pod, &pod.runai);
        let own = [root, pod.own_ceiling(), t9k_own, runai_own].into_iter().flatten().min();
        let limits = LimitsOf {
            tensorstack: tensorstack.as_deref().and_then(|queue| self.tensorstack.limits(queue)),
            runai: runai.as_deref().and_then(|queue| self.runai.limits(queue)),
        };
        // a pod that names no queue of a family has no ceiling there, not even its own
        let ceiling =
            |limits: &Option<Limits>| limits.and_then(|limits| limits.ceiling.into_iter().chain(own).min());
        let clocks = pod.clocks();
        let expires = expiry::deadline(clocks, ceiling(&limits.tensorstack), ceiling(&limits.runai));
        (Standing { clocks, tensorstack, runai, own, expires }, limits)
    }
}

/// What applies to a pod in each of its queues.
struct LimitsOf {
    tensorstack: Option<Limits>,
    runai: Option<Limits>,
}

/// The queue that a pod is in, and the own ceiling of its group: a group's queue counts, if there is such a group.
fn place(groups: &PodGroups, pod: &Pod, named: &Membership) -> (Option<ArcStr>, Option<SignedDuration>) {
    let group = named.group.as_deref().and_then(|group| groups.get(&pod.namespace, group));
    let queue = group.and_then(|group| group.queue.clone());
    (queue.or_else(|| named.queue.clone()), group.and_then(|group| group.own))
}

#[cfg(test)]
mod tests;
