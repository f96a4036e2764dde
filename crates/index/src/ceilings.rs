//! Queues and pods together: whose ceiling is reached, and when.

mod explain;
mod groups;

use std::collections::HashSet;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tenure_policy::{
    expiry::{self, Clocks, Family, Scope},
    floor::Floors,
    gang::Shape,
    owners::OwnerTable,
    ready::{Lacking, PodsReady, Readiness},
    requeue::order,
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
    paused::{Paused, PausedOwners},
    pod::Pod,
    pods::{Expiry, Fate, Pods, ReadyUntil},
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
    /// When workloads make room that don't get ready, where their queue doesn't say. None: never.
    pub pods_ready: Option<PodsReady>,
    /// For how long workloads are safe from others where no queue says, which no time slice is shorter than.
    pub floors: Floors,
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
    pods_ready: Option<PodsReady>,
}

impl CeilingIndex {
    /// Of an empty cluster.
    pub fn new(settings: Settings) -> Self {
        let mut index = Self {
            readers: Readers::default(),
            queues: Queues::default(),
            pods: Pods::new(settings.scope.clone()),
            paused: PausedOwners::default(),
            moved: Moved::default(),
        };
        index.configure(settings);
        index
    }

    /// Goes by other settings from now on. Which pods count stays as it is.
    pub fn configure(&mut self, settings: Settings) {
        let Settings { scope: _, table, notice, pods_ready, floors } = settings;
        self.queues.owners.set_pausable(self.readers.kinds.pausable(&table));
        self.queues.runai.configure(floors);
        (self.queues.notice, self.queues.pods_ready) = (notice, pods_ready);
        self.moved.everybody = true;
    }

    /// Takes a pod as the API server has it; says whether it was seen before it was ever ready, and is now.
    pub fn apply_pod(&mut self, pod: &projection::Pod) -> bool {
        self.apply_member(pod);
        let uid = pod.metadata.uid.as_deref().map(Uid::of);
        let was_new = uid
            .and_then(|uid| self.pods.get(uid))
            .is_some_and(|pod| pod.standing().readiness == Readiness::NotYet);
        let Some(uid) = self.pods.apply(pod, &mut self.readers) else { return false };
        self.schedule(uid);
        was_new && self.pods.get(uid).is_some_and(|pod| pod.ready)
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

    /// When the next paused owner comes back by itself.
    pub fn next_return(&self) -> Option<Timestamp> {
        self.paused.next_return(&self.queues.owners)
    }

    /// How many paused owners come back by themselves. One that is overdue at `now` and has pods was set going by somebody
    /// else.
    pub fn returning(&self, now: Timestamp) -> usize {
        let Self { queues, pods, paused, .. } = self;
        let waits = |uid: Uid, paused: &Paused| {
            paused.returns.at().is_some_and(|at| at > now) || !has_pods(pods, &queues.owners, uid, paused)
        };
        let returning = paused.roots(&queues.owners).filter(|(_, paused)| paused.returns.comes_back());
        returning.filter(|(uid, paused)| waits(*uid, paused)).count()
    }

    /// Hands out the paused owners that come back at `now`, in the order in which they do. They are not handed out again
    /// before they are settled. One that has pods still is left for later: they would count for its next run. Those
    /// that a person has deactivated are among them, for that to be noted.
    pub fn claim_returns(&mut self, now: Timestamp) -> Vec<Paused> {
        let Self { queues, pods, paused, .. } = self;
        let Queues { owners, .. } = &*queues;
        let may =
            |uid: Uid, paused: &Paused| !paused.returns.comes_back() || !has_pods(pods, owners, uid, paused);
        let mut due = paused.claim_returns(owners, now, may);
        due.sort_by(|one, other| {
            let by_queue = (one.rules_of(), &one.queue).cmp(&(other.rules_of(), &other.queue));
            by_queue.then_with(|| {
                let rules = queues.pods_ready(one.rules_of(), &one.queue);
                let timestamp = rules.map(|of| of.timestamp).unwrap_or_default();
                order(timestamp)(&one.waiting(), &other.waiting())
            })
        });
        // records, too, may name whatever somebody likes
        for paused in due.iter_mut().filter(|paused| !queues.know(paused.rules_of(), &paused.queue)) {
            paused.queue = ArcStr::new();
        }
        due
    }

    /// Takes back an owner that was handed out to come back: it may be again after `not_before`.
    pub fn settle_return(&mut self, uid: Uid, not_before: Timestamp) {
        self.paused.settle_return(uid, not_before);
    }

    /// The same, if that was refused at `now`.
    pub fn refuse_return(&mut self, uid: Uid, now: Timestamp) {
        self.paused.refuse_return(uid, now);
    }

    /// Takes back all that was handed out to come back: who was to bring it back is gone.
    pub fn release_returns(&mut self) {
        self.paused.release();
    }

    /// What applies to workloads of a queue that don't get ready.
    pub fn pods_ready(&mut self, family: Family, queue: &str) -> Option<PodsReady> {
        self.queues.pods_ready(family, queue)
    }

    /// How long workloads of a queue wait whose time slice has ended; none if their ceiling is none.
    pub fn slice_delay(&mut self, family: Family, queue: &str) -> Option<SignedDuration> {
        match family {
            Family::Runai => self.queues.runai.limits(queue)?.slice_delay,
            Family::Tensorstack => None,
        }
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
        pods.schedule(uid, &mut |uid, pod| queues.fate(uid, pod));
    }

    fn reschedule(&mut self) {
        let of_groups = self.queues.gangs.moved();
        let Self { queues, pods, moved, .. } = self;
        let mut fate = |uid, pod: &Pod| queues.fate(uid, pod);
        let Moved { everybody, namespaces } = std::mem::take(moved);
        if everybody {
            pods.schedule_all(&mut fate);
            return;
        }
        for namespace in namespaces {
            pods.schedule_namespace(&namespace, &mut fate);
        }
        for uid in of_groups {
            pods.schedule(uid, &mut fate);
        }
    }
}

fn has_pods(pods: &Pods, owners: &Owners, uid: Uid, paused: &Paused) -> bool {
    pods.any(&paused.namespace, |pod| owners.root(pod.controller) == Some(uid))
}

impl Queues {
    /// What applies to workloads of a queue that don't get ready.
    fn pods_ready(&mut self, family: Family, queue: &str) -> Option<PodsReady> {
        let own = match family {
            Family::Runai => self.runai.limits(queue).and_then(|limits| limits.pods_ready),
            Family::Tensorstack => None,
        };
        own.or(self.pods_ready)
    }

    /// Whether there is such a queue.
    fn know(&mut self, family: Family, queue: &str) -> bool {
        match family {
            Family::Runai => self.runai.limits(queue).is_some(),
            Family::Tensorstack => self.tensorstack.limits(queue).is_some(),
        }
    }

    /// What is to happen to a pod.
    fn fate(&mut self, uid: Uid, pod: &Pod) -> Fate {
        let of_groups = self.gangs.of(self.gangs.memberships(uid));
        let lacking = of_groups.lacking;
        let (standing, limits) = self.standing(pod, of_groups);
        let ready_until = self.ready_until(pod, lacking, &standing, &limits);
        let Some((at, family)) = standing.expires else { return Fate { expiry: None, ready_until } };
        let (queue, limits) = match family {
            Family::Tensorstack => (standing.tensorstack, limits.tensorstack),
            Family::Runai => (standing.runai, limits.runai),
        };
        let notice = limits.and_then(|limits| limits.notice).unwrap_or(self.notice);
        Fate { expiry: Some(Expiry { at, family, queue, notice }), ready_until }
    }

    /// Until when the workload of a pod must be ready. One that takes no room may wait.
    fn ready_until(
        &self,
        pod: &Pod,
        lacking: Option<Lacking>,
        standing: &Standing,
        limits: &LimitsOf,
    ) -> Option<ReadyUntil> {
        let (family, queue) = match (&standing.runai, &standing.tensorstack) {
            (Some(queue), _) => (Family::Runai, queue),
            (None, Some(queue)) => (Family::Tensorstack, queue),
            (None, None) => return None,
        };
        let own = limits.runai.and_then(|limits| limits.pods_ready);
        let pods_ready = own.or(self.pods_ready)?;
        pod.started?;
        let lacking =
            if standing.is_grouped { lacking } else { Lacking::of(&Shape::alone(), &[pod.standing()], None) };
        let (at, cause) = pods_ready.deadline(lacking?)?;
        let is_known = match family {
            Family::Tensorstack => limits.tensorstack.is_some(),
            Family::Runai => limits.runai.is_some(),
        };
        // pods may name whatever they like: what is counted by queue has no other queues than there are
        let queue = if is_known { queue.clone() } else { ArcStr::new() };
        Some(ReadyUntil { at, cause, family, queue })
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
mod requeue_tests;
#[cfg(test)]
mod tests;
