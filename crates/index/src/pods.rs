//! Pods in a few hundred bytes each, ordered by when something is to be done about them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_policy::expiry::{Exemption, Scope, exemption};
use tenure_types::projection;

use crate::{
    Due, Group, Task, Uid,
    ceilings::Readers,
    names::Names,
    pod::{Milliseconds, NEVER, Pod},
};

/// How far [`Pods::claim`] looks for more pods of the same controller. Those beyond are claimed by themselves; their
/// owner is paused only once all the same.
const GROUP_WINDOW: usize = 2_000;

/// The first and the longest time until a pod that was settled is due again.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
const LAST_RETRY: SignedDuration = SignedDuration::from_secs(40);

/// The time until a workload that couldn't be told is told again.
const TELL_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// When a pod's ceiling is reached, in which queue, and how long before that its workload is told.
#[derive(Clone, Debug)]
pub struct Expiry {
    pub at: Timestamp,
    pub queue: Option<ArcStr>,
    /// Zero: not at all.
    pub notice: SignedDuration,
}

/// Pods by when something is due: milliseconds since the epoch.
type Order = BTreeSet<(i64, Uid)>;

#[derive(Debug)]
pub struct Pods {
    scope: Scope,
    // boxed: a hash table is up to half empty, and an empty place should be small
    by_uid: HashMap<Uid, Box<Pod>>,
    deadlines: Order,
    notices: Order,
    exempt: HashMap<Uid, (ArcStr, OwnerReference)>,
}

impl Pods {
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            by_uid: HashMap::new(),
            deadlines: Order::new(),
            notices: Order::new(),
            exempt: HashMap::new(),
        }
    }

    /// Takes a pod; returns its uid if its deadline is to be computed.
    pub fn apply(&mut self, pod: &projection::Pod, readers: &mut Readers) -> Option<Uid> {
        let uid = Uid::of(pod.metadata.uid.as_deref()?);
        match exemption(pod, &self.scope) {
            None => {
                self.exempt.remove(&uid);
                self.keep(uid, pod, readers)
            }
            Some(exemption) => {
                self.delete(uid);
                if exemption == Exemption::Priority {
                    self.keep_exempt(uid, pod, &mut readers.names);
                }
                None
            }
        }
    }

    fn keep(&mut self, uid: Uid, pod: &projection::Pod, readers: &mut Readers) -> Option<Uid> {
        let Some(known) = self.by_uid.get_mut(&uid) else {
            self.by_uid.insert(uid, Box::new(Pod::read(pod, readers)?));
            return Some(uid);
        };
        if known.update(pod, readers) {
            return Some(uid);
        }
        self.delete(uid);
        None
    }

    fn keep_exempt(&mut self, uid: Uid, pod: &projection::Pod, names: &mut Names) {
        let Some(controller) = pod.controller().cloned() else {
            return;
        };
        let namespace = names.shared(pod.metadata.namespace.as_deref().unwrap_or_default());
        self.exempt.insert(uid, (namespace, controller));
    }

    pub fn delete(&mut self, uid: Uid) {
        self.exempt.remove(&uid);
        if let Some(mut pod) = self.by_uid.remove(&uid) {
            place(&mut self.deadlines, uid, &mut pod.deadline, None);
            place(&mut self.notices, uid, &mut pod.notice, None);
        }
    }

    pub fn retain(&mut self, uids: &HashSet<Uid>) {
        let gone: Vec<Uid> =
            self.by_uid.keys().chain(self.exempt.keys()).copied().filter(|uid| !uids.contains(uid)).collect();
        for uid in gone {
            self.delete(uid);
        }
    }

    /// Computes when something is to be done about a pod.
    pub fn schedule(&mut self, uid: Uid, expiry: &mut impl FnMut(&Pod) -> Option<Expiry>) {
        let Self { by_uid, deadlines, notices, .. } = self;
        let Some(pod) = by_uid.get_mut(&uid).filter(|pod| !pod.claimed) else {
            return;
        };
        let expiry = expiry(pod);
        pod.expires = expiry.as_ref().map_or(NEVER, |expiry| milliseconds_up(expiry.at));
        let deadline = Milliseconds::new(pod.expires.max(pod.not_before));
        let notice = notice(pod, expiry.as_ref())
            .and_then(|notice| Milliseconds::new(notice.max(pod.not_told_before)));
        if let Some(expiry) = expiry {
            pod.queue = expiry.queue;
        }
        place(deadlines, uid, &mut pod.deadline, deadline);
        place(notices, uid, &mut pod.notice, notice);
    }

    pub fn schedule_all(&mut self, expiry: &mut impl FnMut(&Pod) -> Option<Expiry>) {
        let uids: Vec<Uid> = self.by_uid.keys().copied().collect();
        for uid in uids {
            self.schedule(uid, expiry);
        }
    }

    /// Later than the time itself, at which nothing is overdue yet.
    pub fn next_due(&self) -> Option<Timestamp> {
        let (deadline, notice) = (self.deadlines.first(), self.notices.first());
        let (next, _) = deadline.into_iter().chain(notice).min()?;
        Timestamp::from_millisecond(next.saturating_add(1)).ok()
    }

    /// When the next pod's ceiling is reached, or was.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let (_, uid) = self.deadlines.first()?;
        Timestamp::from_millisecond(self.by_uid.get(uid)?.expires).ok()
    }

    /// What has expired comes before what is to be told.
    pub fn claim(&mut self, now: Timestamp) -> Option<Group> {
        let now = now.as_millisecond();
        let Self { by_uid, deadlines, notices, .. } = self;
        if let Some(group) = claim_of(deadlines, by_uid, now) {
            return self.take(Task::Expire, &group);
        }
        let group = claim_of(notices, by_uid, now)?;
        let withdrawn =
            group.first().and_then(|(_, uid)| by_uid.get(uid)).is_some_and(|pod| pod.expires == NEVER);
        self.take(if withdrawn { Task::Withdraw } else { Task::Announce }, &group)
    }

    fn take(&mut self, task: Task, group: &[(i64, Uid)]) -> Option<Group> {
        let Self { by_uid, deadlines, notices, .. } = self;
        let mut taken = group.iter().filter_map(|(since, uid)| {
            let pod = by_uid.get_mut(uid)?;
            pod.claimed = true;
            place(deadlines, *uid, &mut pod.deadline, None);
            place(notices, *uid, &mut pod.notice, None);
            Some(pod.due(*uid, *since))
        });
        let first: Due = taken.next()?;
        Some(Group { task, first, rest: taken.collect() })
    }

    /// The pod may be claimed again, at once, and by itself.
    pub fn release(&mut self, uid: Uid) {
        if let Some(pod) = self.by_uid.get_mut(&uid) {
            (pod.claimed, pod.alone) = (false, true);
        }
    }

    /// The pod may be claimed again, after a while.
    pub fn settle(&mut self, uid: Uid, now: Timestamp) {
        let Some(pod) = self.by_uid.get_mut(&uid) else {
            return;
        };
        let wait = FIRST_RETRY.saturating_mul(1 << pod.attempts.min(8)).min(LAST_RETRY);
        (pod.claimed, pod.alone) = (false, false);
        pod.attempts = pod.attempts.saturating_add(1);
        pod.not_before = later(now, wait);
    }

    /// Nothing more is done about the pod.
    pub fn settle_for_good(&mut self, uid: Uid) {
        if let Some(pod) = self.by_uid.get_mut(&uid) {
            (pod.claimed, pod.not_before) = (false, NEVER);
        }
    }

    /// The pod's workload was told when its run ends, or that no end is set any more.
    pub fn settle_told(&mut self, uid: Uid, end: Option<Timestamp>) {
        if let Some(pod) = self.by_uid.get_mut(&uid) {
            (pod.claimed, pod.told) = (false, end.and_then(|end| Milliseconds::new(end.as_millisecond())));
        }
    }

    /// The pod's workload couldn't be told: it is told after a while.
    pub fn settle_untold(&mut self, uid: Uid, now: Timestamp) {
        if let Some(pod) = self.by_uid.get_mut(&uid) {
            (pod.claimed, pod.not_told_before) = (false, later(now, TELL_RETRY));
        }
    }

    /// Takes back all that is claimed; returns which.
    pub fn release_all(&mut self) -> Vec<Uid> {
        let claimed = self.by_uid.iter_mut().filter(|(_, pod)| pod.claimed);
        let released = claimed.map(|(uid, pod)| {
            pod.claimed = false;
            *uid
        });
        released.collect()
    }

    pub fn exempt_controllers(&self, namespace: &str) -> Vec<OwnerReference> {
        let here = self.exempt.values().filter(|(of, _)| of == namespace);
        let by_uid: BTreeMap<&str, &OwnerReference> = here.map(|(_, owner)| (&*owner.uid, owner)).collect();
        by_uid.into_values().cloned().collect()
    }

    pub fn scheduled(&self) -> usize {
        self.deadlines.len()
    }

    pub fn overdue(&self, now: Timestamp) -> usize {
        self.deadlines.iter().take_while(|(deadline, _)| *deadline < now.as_millisecond()).count()
    }

    pub fn len(&self) -> usize {
        self.by_uid.len()
    }
}

/// When a pod's workload is to be told when its run ends: some time before, or at once if that has changed since.
fn notice(pod: &Pod, expiry: Option<&Expiry>) -> Option<i64> {
    match (pod.told, expiry) {
        (None, None) => None,
        (None, Some(expiry)) => {
            let before = expiry.at.checked_sub(expiry.notice).map_or(i64::MIN, Timestamp::as_millisecond);
            (!expiry.notice.is_zero()).then_some(before)
        }
        (Some(told), _) => {
            (told.get() != pod.expires).then_some(told.get().min(pod.expires).min(pod.created))
        }
    }
}

/// Moves a pod within an order.
fn place(order: &mut Order, uid: Uid, from: &mut Option<Milliseconds>, to: Option<Milliseconds>) {
    if *from == to {
        return;
    }
    if let Some(old) = std::mem::replace(from, to) {
        order.remove(&(old.get(), uid));
    }
    order.extend(to.map(|new| (new.get(), uid)));
}

/// The first pod of an order, if it is due, with those of the same controller that are due too.
fn claim_of(order: &Order, by_uid: &HashMap<Uid, Box<Pod>>, now: i64) -> Option<Vec<(i64, Uid)>> {
    let entry = *order.first().filter(|(since, _)| *since < now)?;
    let first = by_uid.get(&entry.1)?;
    let is_sibling = |uid: &Uid| {
        by_uid.get(uid).is_some_and(|pod| {
            !pod.alone
                && pod.controller == first.controller
                && pod.namespace == first.namespace
                && (pod.expires == NEVER) == (first.expires == NEVER)
        })
    };
    let mut group = vec![entry];
    if !first.alone && first.controller.is_some() {
        let due = order.iter().take(GROUP_WINDOW).take_while(|(since, _)| *since < now);
        group.extend(due.skip(1).filter(|(_, uid)| is_sibling(uid)));
    }
    Some(group)
}

fn later(now: Timestamp, wait: SignedDuration) -> i64 {
    now.checked_add(wait).map_or(NEVER, milliseconds_up)
}

/// Rounded up, so that nothing is ever early.
fn milliseconds_up(at: Timestamp) -> i64 {
    let milliseconds = at.as_millisecond();
    milliseconds.saturating_add(i64::from(at.subsec_nanosecond() % 1_000_000 > 0))
}
