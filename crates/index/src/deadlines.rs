//! Due tasks: one record for each pod, and one order for each kind of task.
//!
//! Only `Ceilings`, the keeper's reading of pods, uses this. The invariant: a pod stands in each
//! order at the place that the `slot` in its record names, so that a pod can be moved without a
//! search.

mod due;
mod expiry;
mod notice;
mod order;
mod record;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Bound,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::expiry::{Exemption, PolicyChange, Scope, exemption, standing_exemption};
use tenure_types::projection;

use crate::{
    Uid,
    names::Interner,
    owners::{ControlledObjects, Controller},
    uid::UidMap,
};

pub use due::{ActionOutcome, BatchCoverage, DueBatch, DueKey, DuePod, DueWork, Task, TaskSet};
use expiry::Unready;
pub use expiry::{Ceiling, ReadyUntil};
use notice::NoticeProgress;
pub use order::RetryAfter;
use order::{DueOrder, OrderSlot};
pub use record::{BoundRun, ManagedPod};

/// The most pods of a batch. Further pods are due after the batch. Their owner is still paused only
/// once.
const MOST_IN_BATCH: usize = 2_000;

/// The ceiling that applies to a pod, and the time by which its workload must be ready.
#[derive(Clone, Debug, Default)]
pub struct PodDeadlines {
    /// None: no ceiling applies.
    pub ceiling: Option<Ceiling>,
    /// None: the workload is ready, or may take any time.
    pub ready_until: Option<ReadyUntil>,
    /// True if a queue of the pod, or a queue on the path to the root, doesn't exist.
    pub lacks_queue: bool,
    /// The facts about its run that stay once it is bound.
    pub run: BoundRun,
}

/// Pods in a few hundred bytes each, ordered by the time of their next task.
#[derive(Debug, Default)]
pub struct Deadlines {
    scope: Scope,
    // boxed: a hash table is up to half empty, and an empty place should be small
    pods: UidMap<Box<ManagedPod>>,
    by_controller: ControlledObjects,
    orders: DueOrders,
    /// Names and controllers of pods that are exempt by priority, by the namespace and the uid of the pod.
    exempt: BTreeMap<(ArcStr, Uid), (Box<str>, Controller)>,
    /// The namespace of each pod in `exempt`, by the pod's uid.
    exempt_in: UidMap<ArcStr>,
    retry_after: RetryAfter,
    /// Ends that were past when a queue went missing, by pod, in milliseconds since the epoch. They
    /// are kept while the pod lacks a queue: the queue may have gone for a moment.
    lost: UidMap<i64>,
    /// Pods on which evidence is to be written.
    lack_evidence: HashSet<Uid>,
    /// The numbers of tries to write evidence on pods without room for it. A number stays while the pod
    /// needs no evidence: a tenant may toggle that.
    full: UidMap<u32>,
    /// Pods whose workload may show another end than its run has. None: nothing asks for them, and
    /// nothing is recorded.
    pub moved_ends: Option<BTreeSet<Uid>>,
    /// The pod of `moved_ends` that was checked last.
    last_moved_end: Option<Uid>,
    /// The namespaces and controllers of pods that have left since ends were last followed.
    pub left: HashSet<(ArcStr, Controller)>,
}

/// Pods by the time at which each task is due.
#[derive(Debug, Default)]
struct DueOrders {
    /// Pods by the end of their run, or by the next try to end it.
    expiries: DueOrder,
    /// Pods by the time by which their workload must be ready, or by the next try to evict them.
    evictions: DueOrder,
    /// Pods by the time of their next notice, or of the next try to give it.
    notices: DueOrder,
}

impl DueOrders {
    /// Moves a pod to the places that its record says. Unless `open`, removes the pod from all
    /// orders.
    fn place(&mut self, uid: Uid, pod: &mut ManagedPod, open: bool) {
        let to = |next: OrderSlot| if open { next } else { OrderSlot::NONE };
        let next = to(pod.expiry.next());
        self.expiries.place(uid, &mut pod.expiry.step.slot, next);
        if let Some(unready) = &mut pod.unready {
            let next = to(unready.next());
            self.evictions.place(uid, &mut unready.step.slot, next);
        }
        if let Some(notice) = &mut pod.notice {
            let next = to(notice.next());
            self.notices.place(uid, &mut notice.step.slot, next);
        }
    }
}

impl Deadlines {
    pub fn new(scope: Scope, retry_after: RetryAfter) -> Self {
        Self { scope, retry_after, ..Self::default() }
    }

    /// Adds or updates a pod. Returns true if its deadlines must be computed. An exempt pod, or a
    /// pod in no queue, isn't kept.
    pub fn apply(&mut self, uid: Uid, pod: &projection::Pod, interner: &mut Interner) -> bool {
        let exemption = exemption(pod, &self.scope);
        if exemption.is_none() {
            self.delete_exempt(uid);
            return self.keep(uid, pod, interner);
        }
        self.delete(uid);
        if exemption == Some(Exemption::Priority) {
            self.keep_exempt(uid, pod, interner);
        }
        false
    }

    /// True if a pod is exempt for another reason than that it is terminating or has ended.
    pub fn exempts(&self, pod: &projection::Pod) -> bool {
        standing_exemption(pod, &self.scope).is_some()
    }

    /// Adds or updates a pod that isn't exempt. Returns true if the pod is in a queue. A pod that
    /// has left its queues is forgotten.
    fn keep(&mut self, uid: Uid, pod: &projection::Pod, interner: &mut Interner) -> bool {
        let Some(known) = self.pods.get_mut(&uid) else {
            let Some(pod) = ManagedPod::read(pod, interner, None) else { return false };
            self.by_controller.replace(uid, None, pod.controller.map(|of| of.uid));
            self.pods.insert(uid, Box::new(pod));
            return true;
        };
        let (before, was_claimed) = (known.controller, known.claims_exemption);
        let stays = known.update(pod, interner);
        let after = known.controller;
        self.by_controller.replace(uid, before.map(|of| of.uid), after.map(|of| of.uid));
        // another kind with the same uid is another owner, and no exemption outlives its claim
        if before != after || was_claimed != known.claims_exemption {
            known.revive();
        }
        if !stays {
            self.delete(uid);
        }
        stays
    }

    /// Records the name and controller of a pod that is exempt by priority. A pod without a
    /// controller isn't recorded.
    fn keep_exempt(&mut self, uid: Uid, pod: &projection::Pod, interner: &mut Interner) {
        let Some(controller) = pod.controller() else { return };
        let controller = Controller::read(controller, &interner.kinds);
        let name = pod.metadata.name.as_deref().unwrap_or_default().into();
        let namespace = interner.names.shared(pod.metadata.namespace.as_deref().unwrap_or_default());
        self.exempt.insert((namespace.clone(), uid), (name, controller));
        self.exempt_in.insert(uid, namespace);
    }

    fn delete_exempt(&mut self, uid: Uid) {
        if let Some(namespace) = self.exempt_in.remove(&uid) {
            self.exempt.remove(&(namespace, uid));
        }
    }

    pub fn delete(&mut self, uid: Uid) {
        self.delete_exempt(uid);
        let Some(mut pod) = self.pods.remove(&uid) else { return };
        self.lost.remove(&uid);
        self.lack_evidence.remove(&uid);
        self.full.remove(&uid);
        if let Some(moved) = &mut self.moved_ends {
            moved.remove(&uid);
            self.left.extend(pod.controller.map(|of| (pod.namespace.clone(), of)));
        }
        self.orders.place(uid, &mut pod, false);
        self.by_controller.replace(uid, pod.controller.map(|of| of.uid), None);
    }

    /// Returns the uids of all pods, pods that are exempt by priority included.
    pub fn uids(&self) -> impl Iterator<Item = Uid> {
        self.pods.keys().chain(self.exempt_in.keys()).copied()
    }

    /// Computes the times of a pod's tasks, after a change of queues if there was one. `deadlines`
    /// computes the limits that apply to the record.
    pub fn schedule(
        &mut self,
        uid: Uid,
        change: Option<PolicyChange>,
        deadlines: impl FnOnce(&ManagedPod) -> PodDeadlines,
    ) {
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        let PodDeadlines { ceiling, ready_until, lacks_queue, run } = deadlines(pod);
        if pod.fix(run) {
            self.lack_evidence.insert(uid);
        } else {
            self.lack_evidence.remove(&uid);
        }
        let lost = self.lost.remove(&uid);
        let (ceiling, lost) = pod.expiry.granted(ceiling, change, lost, lacks_queue);
        self.lost.extend(lost.map(|end| (uid, end)));
        pod.notice = NoticeProgress::plan(pod.notice.take(), pod.created, ceiling.as_ref());
        pod.unready = Unready::plan(pod.unready.take(), ready_until);
        pod.family = ceiling.as_ref().map_or(pod.family, |ceiling| ceiling.family);
        pod.expiry.plan(ceiling, lost);
        self.moved_ends.as_mut().map(|moved| moved.insert(uid));
        self.orders.place(uid, pod, true);
        pod.notice.take_if(|notice| notice.is_idle());
        pod.unready.take_if(|unready| unready.until.is_none());
        // what a driver hides, a later keeper won't know
        let shown = |pod: &ManagedPod| self.driver(pod).filter(|driver| !driver.hides_start)?.started;
        if self.get(uid).is_some_and(|pod| pod.lacks_since(shown(pod))) {
            self.lack_evidence.insert(uid);
        }
    }

    /// Counts the run of a pod from the scheduling of its [driver](Self::driver). Returns true if this
    /// moves the end, or if the pod has no evidence of an earlier start.
    pub fn count_with_driver(&mut self, uid: Uid) -> bool {
        let start = self.get(uid).and_then(|pod| self.driver(pod)?.started);
        self.pods.get_mut(&uid).is_some_and(|pod| pod.count_from(start) || pod.lacks_since(None))
    }

    /// Returns the pod that controls another. None: no such pod is kept in the same namespace.
    pub fn driver(&self, pod: &ManagedPod) -> Option<&ManagedPod> {
        self.get(pod.controller?.uid).filter(|driver| driver.namespace == pod.namespace)
    }

    /// Returns the pods that a controller controls directly, with their records.
    pub fn controlled_by(&self, controller: Uid) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        let pods = self.by_controller.by(controller);
        pods.filter_map(|uid| Some((uid, self.pods.get(&uid)?.as_ref())))
    }

    /// Returns the time at which the next pod's ceiling is reached, or was. None: no run is to be
    /// ended.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let first = self.orders.expiries.may_be_first().filter_map(|uid| self.pods.get(&uid));
        Timestamp::from_millisecond(first.map(|pod| pod.expiry.at).min()?).ok()
    }

    /// Returns the next instant after `now` at which one more task is overdue: one millisecond
    /// after the task's own time. None: no more task is planned.
    pub fn next_due_after(&self, now: Timestamp) -> Option<Timestamp> {
        let DueOrders { expiries, evictions, notices } = &self.orders;
        let orders = [expiries, evictions, notices].into_iter();
        let next = orders.filter_map(|order| order.next_from(now.as_millisecond())).min()?;
        Timestamp::from_millisecond(next.saturating_add(1)).ok()
    }

    /// Returns the names and controllers of the pods of a namespace that are exempt by priority.
    pub fn exempt(&self, namespace: &str) -> impl Iterator<Item = (&str, Controller)> {
        let namespace = ArcStr::from(namespace);
        let here = self.exempt.range((namespace.clone(), Uid::MIN)..=(namespace, Uid::MAX));
        here.map(|(_, (name, controller))| (&**name, *controller))
    }

    /// Returns the bound pods on which evidence is to be written.
    pub fn lacking_evidence(&self) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        self.lack_evidence.iter().filter_map(|uid| Some((*uid, self.get(*uid)?)))
    }

    /// Counts a try to write evidence on a pod without room for it. Returns the number of earlier
    /// tries.
    pub fn count_full(&mut self, uid: Uid) -> u32 {
        if !self.pods.contains_key(&uid) {
            return 0;
        }
        let tries = self.full.entry(uid).or_default();
        let before = *tries;
        *tries = before.saturating_add(1);
        before
    }

    /// Forgets the tries on a pod that had room for evidence.
    pub fn forget_full(&mut self, uid: Uid) {
        self.full.remove(&uid);
    }

    /// Returns the number of pods whose run must end, now or later.
    pub fn under_ceiling(&self) -> usize {
        self.orders.expiries.len()
    }

    /// Returns up to `most` pods whose workload may show another end than its run has, in turn: those
    /// with the next uids after the last call's, and then the first ones. Without a list, all pods
    /// are listed.
    pub fn next_moved_ends(&mut self, most: usize) -> Vec<Uid> {
        let moved = self.moved_ends.get_or_insert_with(|| self.pods.keys().copied().collect());
        let after = self.last_moved_end.map_or(Bound::Unbounded, Bound::Excluded);
        let next = moved.range((after, Bound::Unbounded)).chain(moved.iter());
        let next: Vec<Uid> = next.take(most.min(moved.len())).copied().collect();
        self.last_moved_end = next.last().copied();
        next
    }

    /// Takes pods off the list of those whose workload may show another end.
    pub fn end_is_shown(&mut self, pods: &[Uid]) {
        if let Some(moved) = &mut self.moved_ends {
            for pod in pods {
                moved.remove(pod);
            }
        }
    }

    /// Has the workload of a pod checked.
    pub fn doubt_end(&mut self, pod: Uid) {
        self.moved_ends.as_mut().map(|moved| moved.insert(pod));
    }

    /// True if a task is due. Repeated tries to end a run by its ceiling don't count.
    pub fn is_pressed(&self, now: Timestamp) -> bool {
        let DueOrders { expiries, evictions, notices } = &self.orders;
        [expiries, evictions, notices].into_iter().any(|order| order.is_pressed(now.as_millisecond()))
    }

    /// Returns the number of pods whose run must end by `now`. Pods that wait for another try
    /// aren't counted.
    pub fn overdue(&self, now: Timestamp) -> usize {
        self.orders.expiries.due(now.as_millisecond()).count()
    }

    /// Returns the number of pods to evict by `now`. Pods that wait for another try aren't counted.
    pub fn unready(&self, now: Timestamp) -> usize {
        self.orders.evictions.due(now.as_millisecond()).count()
    }

    pub fn get(&self, uid: Uid) -> Option<&ManagedPod> {
        self.pods.get(&uid).map(AsRef::as_ref)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Uid, &ManagedPod)> {
        self.pods.iter().map(|(uid, pod)| (*uid, pod.as_ref()))
    }
}
