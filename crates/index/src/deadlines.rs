//! Due tasks: one record a pod, and one order for each kind of task.

mod due;
mod expiry;
mod notice;
mod order;
mod record;
mod work;

use std::collections::{BTreeMap, HashSet};

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::expiry::{Exemption, PolicyChange, Scope, exemption, standing_exemption};
use tenure_types::projection;

use crate::{
    Uid,
    names::Interner,
    owners::{Controlled, Controller},
    uid::UidMap,
};

pub use due::{BatchCoverage, DueBatch, DueKey, DuePod, DueWork, Outcome, Task, TaskSet};
use expiry::Unready;
pub use expiry::{Ceiling, ReadyUntil};
use notice::Notice;
pub use order::RetryAfter;
use order::{Order, Slot};
pub use record::{BoundRun, ManagedPod};

/// The most pods of a batch. The others are due after it; their owner is still paused only once.
const MOST_IN_BATCH: usize = 2_000;

/// The ceiling that applies to a pod, and the time by which its workload must be ready.
#[derive(Clone, Debug, Default)]
pub struct PodDeadlines {
    pub ceiling: Option<Ceiling>,
    pub ready_until: Option<ReadyUntil>,
    /// True if a queue of the pod, or one on the way to the root, isn't there.
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
    by_controller: Controlled,
    orders: Orders,
    /// Names and controllers of pods that are exempt by priority, by the namespace and the uid of the pod.
    exempt: BTreeMap<(ArcStr, Uid), (Box<str>, Controller)>,
    exempt_in: UidMap<ArcStr>,
    retry_after: RetryAfter,
    /// The ends that were past when a queue went missing, of pods that lack one still: it may have gone for a moment.
    lost: UidMap<i64>,
    /// Pods on which evidence is missing.
    lack_evidence: HashSet<Uid>,
    /// Pods whose workload may show another end than its run has. None: nothing asks for them.
    pub moved_ends: Option<HashSet<Uid>>,
    /// The namespaces and controllers of pods that have left since ends were last followed.
    pub left: HashSet<(ArcStr, Controller)>,
}

/// Pods by the time at which each task is due.
#[derive(Debug, Default)]
struct Orders {
    expiries: Order,
    evictions: Order,
    notices: Order,
}

impl Orders {
    /// Moves a pod to its present places: to none, unless it is `open`.
    fn place(&mut self, uid: Uid, pod: &mut ManagedPod, open: bool) {
        let to = |next: Slot| if open { next } else { Slot::NONE };
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

    /// Adds or updates a pod; says whether its deadlines must be computed.
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

    /// True if a pod is never touched, terminating or not.
    pub fn exempts(&self, pod: &projection::Pod) -> bool {
        standing_exemption(pod, &self.scope).is_some()
    }

    fn keep(&mut self, uid: Uid, pod: &projection::Pod, interner: &mut Interner) -> bool {
        let Some(known) = self.pods.get_mut(&uid) else {
            let Some(pod) = ManagedPod::read(pod, interner, None) else { return false };
            self.by_controller.replace(uid, None, pod.controller.map(|of| of.uid));
            self.pods.insert(uid, Box::new(pod));
            return true;
        };
        let before = known.controller.map(|of| of.uid);
        let stays = known.update(pod, interner);
        let after = known.controller.map(|of| of.uid);
        self.by_controller.replace(uid, before, after);
        if before != after {
            known.revive();
        }
        if !stays {
            self.delete(uid);
        }
        stays
    }

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
        if let Some(moved) = &mut self.moved_ends {
            moved.remove(&uid);
            self.left.extend(pod.controller.map(|of| (pod.namespace.clone(), of)));
        }
        self.orders.place(uid, &mut pod, false);
        self.by_controller.replace(uid, pod.controller.map(|of| of.uid), None);
    }

    /// All pods, exempt ones included.
    pub fn uids(&self) -> impl Iterator<Item = Uid> {
        self.pods.keys().chain(self.exempt_in.keys()).copied()
    }

    /// Computes the times of a pod's tasks, after a change of queues if there was one.
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
        pod.notice = Notice::plan(pod.notice.take(), pod.created, ceiling.as_ref());
        pod.unready = Unready::plan(pod.unready.take(), ready_until);
        pod.family = ceiling.as_ref().map_or(pod.family, |ceiling| ceiling.family);
        pod.expiry.plan(ceiling);
        self.moved_ends.as_mut().map(|moved| moved.insert(uid));
        self.orders.place(uid, pod, true);
        pod.notice.take_if(|notice| notice.is_idle());
        pod.unready.take_if(|unready| unready.until.is_none());
        let controller = pod.lacks_since().then_some(pod.controller);
        if controller.is_some_and(|of| of.is_none_or(|of| !self.pods.contains_key(&of.uid))) {
            self.lack_evidence.insert(uid);
        }
    }

    /// True if both pods are kept, and in one namespace.
    pub fn are_neighbours(&self, uid: Uid, other: Uid) -> bool {
        let namespace = |uid| self.get(uid).map(|pod| &pod.namespace);
        namespace(uid).is_some() && namespace(uid) == namespace(other)
    }

    /// Counts the run of a pod from the scheduling of the pod that controls it, if that is kept. Returns true if that moves its end,
    /// or if its evidence depends on that pod.
    pub fn count_with(&mut self, uid: Uid, driver: Uid) -> bool {
        let is_here = self.are_neighbours(uid, driver);
        let start = self.get(driver).and_then(|driver| driver.started).filter(|_| is_here);
        self.pods.get_mut(&uid).is_some_and(|pod| pod.count_from(start) || pod.lacks_since())
    }

    pub fn controlled_by(&self, controller: Uid) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        let pods = self.by_controller.by(controller);
        let pods = pods.filter_map(|uid| Some((uid, self.pods.get(&uid)?.as_ref())));
        pods.filter(move |(_, pod)| pod.controller.is_some_and(|of| of.uid == controller))
    }

    /// The time at which the next pod's ceiling is reached, or was.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let first = self.orders.expiries.may_be_first().filter_map(|uid| self.pods.get(&uid));
        Timestamp::from_millisecond(first.map(|pod| pod.expiry.at).min()?).ok()
    }

    /// The next instant after `now` at which one more task is overdue: a moment after the task's own time.
    pub fn next_due_after(&self, now: Timestamp) -> Option<Timestamp> {
        let Orders { expiries, evictions, notices } = &self.orders;
        let orders = [expiries, evictions, notices].into_iter();
        let next = orders.filter_map(|order| order.next_from(now.as_millisecond())).min()?;
        Timestamp::from_millisecond(next.saturating_add(1)).ok()
    }

    /// Names and controllers of the pods of a namespace that are exempt by priority.
    pub fn exempt(&self, namespace: &str) -> impl Iterator<Item = (&str, Controller)> {
        let namespace = ArcStr::from(namespace);
        let here = self.exempt.range((namespace.clone(), Uid::MIN)..=(namespace, Uid::MAX));
        here.map(|(_, (name, controller))| (&**name, *controller))
    }

    /// The bound pods on which evidence is missing.
    pub fn lacking_evidence(&self) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        self.lack_evidence.iter().filter_map(|uid| Some((*uid, self.get(*uid)?)))
    }

    /// The number of pods with an expiry, past or future.
    pub fn under_ceiling(&self) -> usize {
        self.orders.expiries.len()
    }

    /// Takes the pods whose workload may show another end than its run has: at first, all.
    pub fn take_moved_ends(&mut self) -> HashSet<Uid> {
        self.moved_ends.take().unwrap_or_else(|| self.pods.keys().copied().collect())
    }

    /// Takes pods off the list of those whose workload may show another end.
    pub fn end_is_shown(&mut self, pods: &[Uid]) {
        if let Some(moved) = &mut self.moved_ends {
            for pod in pods {
                moved.remove(pod);
            }
        }
    }

    /// Has the workload of a pod looked at.
    pub fn doubt_end(&mut self, pod: Uid) {
        self.moved_ends.as_mut().map(|moved| moved.insert(pod));
    }

    /// True if a task is due that wasn't tried yet.
    pub fn is_pressed(&self, now: Timestamp) -> bool {
        let Orders { expiries, evictions, notices } = &self.orders;
        [expiries, evictions, notices].into_iter().any(|order| order.is_pressed(now.as_millisecond()))
    }

    pub fn overdue(&self, now: Timestamp) -> usize {
        self.orders.expiries.due(now.as_millisecond()).count()
    }

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
