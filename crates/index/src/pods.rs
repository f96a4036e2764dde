//! Pods in a few hundred bytes each, ordered by when something is to be done about them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_policy::{
    expiry::{Exemption, Family, Scope, exemption},
    ready::Cause,
};
use tenure_types::projection;

use crate::{
    Due, Group, Outcome, Task, Uid,
    ceilings::Readers,
    names::Names,
    pod::{Milliseconds, NEVER, Pod, Unready},
};

/// How far [`Pods::claim`] looks for more pods of the same controller. Those beyond are claimed by themselves; their
/// owner is paused only once all the same.
const GROUP_WINDOW: usize = 2_000;

/// The first and the longest time until a pod that was settled is due again.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
const LAST_RETRY: SignedDuration = SignedDuration::from_secs(40);

/// The first and the longest time until a workload that couldn't be told is told again.
const FIRST_TELL_RETRY: SignedDuration = SignedDuration::from_secs(10);
const LAST_TELL_RETRY: SignedDuration = SignedDuration::from_mins(10);

/// Until when a pod's workload must be ready, and why it isn't; and what queue says so.
#[derive(Clone, Debug)]
pub struct ReadyUntil {
    pub at: Timestamp,
    pub cause: Cause,
    pub family: Family,
    pub queue: ArcStr,
}

/// What is to happen to a pod.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    pub expiry: Option<Expiry>,
    pub ready_until: Option<ReadyUntil>,
}

/// When a pod's ceiling is reached, in which queue, and how long before that its workload is told.
#[derive(Clone, Debug)]
pub struct Expiry {
    pub at: Timestamp,
    pub family: Family,
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
    by_namespace: HashMap<ArcStr, HashSet<Uid>>,
    /// Of those about which nothing was done yet: they come before those for which something didn't help.
    deadlines: Order,
    retries: Order,
    notices: Order,
    evictions: Order,
    exempt: HashMap<Uid, (ArcStr, OwnerReference)>,
}

impl Pods {
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            by_uid: HashMap::new(),
            by_namespace: HashMap::new(),
            deadlines: Order::new(),
            retries: Order::new(),
            notices: Order::new(),
            evictions: Order::new(),
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
            let pod = Pod::read(pod, readers)?;
            self.by_namespace.entry(pod.namespace.clone()).or_default().insert(uid);
            self.by_uid.insert(uid, Box::new(pod));
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
        let Some(mut pod) = self.by_uid.remove(&uid) else { return };
        let Self { by_namespace, deadlines, retries, notices, evictions, .. } = self;
        place(if pod.attempts == 0 { deadlines } else { retries }, uid, &mut pod.deadline, None);
        place(notices, uid, &mut pod.notice, None);
        if let Some(unready) = &mut pod.unready {
            place(evictions, uid, &mut unready.eviction, None);
        }
        if let Some(here) = by_namespace.get_mut(&pod.namespace) {
            here.remove(&uid);
            if here.is_empty() {
                by_namespace.remove(&pod.namespace);
            }
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
    pub fn schedule(&mut self, uid: Uid, fate: &mut impl FnMut(Uid, &Pod) -> Fate) {
        let Self { by_uid, deadlines, retries, notices, evictions, .. } = self;
        let Some(pod) = by_uid.get_mut(&uid).filter(|pod| !pod.claimed) else {
            return;
        };
        let Fate { expiry, ready_until } = fate(uid, pod);
        pod.expires = expiry.as_ref().map_or(NEVER, |expiry| milliseconds_up(expiry.at));
        let deadline = Milliseconds::new(pod.expires.max(pod.not_before));
        let notice = notice(pod, expiry.as_ref())
            .and_then(|notice| Milliseconds::new(notice.max(pod.not_told_before)));
        if let Some(expiry) = expiry {
            (pod.family, pod.queue) = (expiry.family, expiry.queue);
        }
        place(if pod.attempts == 0 { deadlines } else { retries }, uid, &mut pod.deadline, deadline);
        place(notices, uid, &mut pod.notice, notice);
        let (before, mut eviction, attempts, paused) = match pod.unready.take().map(|unready| *unready) {
            Some(Unready { not_before, eviction, attempts, paused, .. }) => {
                (not_before, eviction, attempts, paused)
            }
            None => (i64::MIN, None, 0, false),
        };
        let until = ready_until.as_ref().map(|until| milliseconds_up(until.at));
        place(evictions, uid, &mut eviction, until.and_then(|until| Milliseconds::new(until.max(before))));
        pod.unready = ready_until.zip(until).map(|(ReadyUntil { cause, family, queue, .. }, until)| {
            Box::new(Unready { until, cause, family, queue, eviction, attempts, not_before: before, paused })
        });
    }

    pub fn schedule_all(&mut self, fate: &mut impl FnMut(Uid, &Pod) -> Fate) {
        let uids: Vec<Uid> = self.by_uid.keys().copied().collect();
        for uid in uids {
            self.schedule(uid, fate);
        }
    }

    pub fn schedule_namespace(&mut self, namespace: &str, fate: &mut impl FnMut(Uid, &Pod) -> Fate) {
        let uids: Vec<Uid> = self.by_namespace.get(namespace).into_iter().flatten().copied().collect();
        for uid in uids {
            self.schedule(uid, fate);
        }
    }

    /// Whether any pod of a namespace is meant.
    pub fn any(&self, namespace: &str, is_meant: impl Fn(&Pod) -> bool) -> bool {
        // what owns them may be of the whole cluster
        if namespace.is_empty() {
            return self.by_uid.values().any(|pod| is_meant(pod));
        }
        let here = self.by_namespace.get(namespace).into_iter().flatten();
        here.filter_map(|uid| self.by_uid.get(uid)).any(|pod| is_meant(pod))
    }

    /// When the first of the pods of a namespace that are meant expires.
    pub fn first_end(&self, namespace: &str, is_meant: impl Fn(&Pod) -> bool) -> Option<Timestamp> {
        let here = self.by_namespace.get(namespace).into_iter().flatten();
        let meant =
            here.filter_map(|uid| self.by_uid.get(uid)).filter(|pod| pod.expires != NEVER && is_meant(pod));
        Timestamp::from_millisecond(meant.map(|pod| pod.expires).min()?).ok()
    }

    /// Later than the time itself, at which nothing is overdue yet.
    pub fn next_due(&self) -> Option<Timestamp> {
        let orders = [&self.deadlines, &self.retries, &self.notices, &self.evictions];
        let (next, _) = orders.into_iter().filter_map(Order::first).min()?;
        Timestamp::from_millisecond(next.saturating_add(1)).ok()
    }

    /// When the next pod's ceiling is reached, or was.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let first = [&self.deadlines, &self.retries].into_iter().filter_map(Order::first);
        let expires = first.filter_map(|(_, uid)| Some(self.by_uid.get(uid)?.expires)).min()?;
        Timestamp::from_millisecond(expires).ok()
    }

    /// What has expired comes before what is to be told.
    pub fn claim(&mut self, now: Timestamp) -> Option<Group> {
        let now = now.as_millisecond();
        let Self { by_uid, deadlines, retries, notices, evictions, .. } = self;
        let expired = claim_of(deadlines, by_uid, now).or_else(|| claim_of(retries, by_uid, now));
        if let Some(group) = expired {
            return self.take(Task::Expire, &group);
        }
        if let Some(group) = claim_of(evictions, by_uid, now) {
            return self.take(Task::Evict, &group);
        }
        let group = claim_of(notices, by_uid, now)?;
        let withdrawn =
            group.first().and_then(|(_, uid)| by_uid.get(uid)).is_some_and(|pod| pod.expires == NEVER);
        self.take(if withdrawn { Task::Withdraw } else { Task::Announce }, &group)
    }

    fn take(&mut self, task: Task, group: &[(i64, Uid)]) -> Option<Group> {
        let Self { by_uid, deadlines, retries, notices, evictions, .. } = self;
        let mut taken = group.iter().filter_map(|(since, uid)| {
            let pod = by_uid.get_mut(uid)?;
            pod.claimed = true;
            place(if pod.attempts == 0 { deadlines } else { retries }, *uid, &mut pod.deadline, None);
            place(notices, *uid, &mut pod.notice, None);
            if let Some(unready) = &mut pod.unready {
                place(evictions, *uid, &mut unready.eviction, None);
            }
            Some(pod.due(*uid, task, *since))
        });
        let first: Due = taken.next()?;
        Some(Group { task, first, rest: taken.collect() })
    }

    /// The pod may be claimed again, at once; by itself, if `alone`.
    pub fn release(&mut self, uid: Uid, alone: bool) {
        if let Some(pod) = self.by_uid.get_mut(&uid) {
            (pod.claimed, pod.alone) = (false, alone);
        }
    }

    /// The pod may be claimed again, as its outcome says.
    pub fn settle(&mut self, due: &Due, task: Task, outcome: Outcome, now: Timestamp) {
        let Some(pod) = self.by_uid.get_mut(&due.uid) else {
            return;
        };
        (pod.claimed, pod.alone) = (false, false);
        match outcome {
            Outcome::Failed if task == Task::Evict => {
                if let Some(unready) = &mut pod.unready {
                    unready.not_before = later(now, FIRST_RETRY, LAST_RETRY, unready.attempts);
                }
            }
            Outcome::Failed => pod.not_before = later(now, FIRST_RETRY, LAST_RETRY, pod.attempts),
            Outcome::Acted | Outcome::Paused | Outcome::Final if task == Task::Evict => {
                if let Some(unready) = &mut pod.unready {
                    let after = later(now, FIRST_RETRY, LAST_RETRY, unready.attempts);
                    unready.not_before = if outcome == Outcome::Final { NEVER } else { after };
                    unready.paused |= outcome == Outcome::Paused;
                    unready.attempts = unready.attempts.saturating_add(1);
                }
            }
            Outcome::Acted | Outcome::Paused => {
                pod.not_before = later(now, FIRST_RETRY, LAST_RETRY, pod.attempts);
                pod.attempts = pod.attempts.saturating_add(1);
            }
            Outcome::Final => pod.not_before = NEVER,
            Outcome::Told => {
                let end = (task == Task::Announce).then(|| due.deadline.as_millisecond());
                (pod.told, pod.tell_attempts) = (end.and_then(Milliseconds::new), 0);
            }
            Outcome::Untold => {
                pod.not_told_before = later(now, FIRST_TELL_RETRY, LAST_TELL_RETRY, pod.tell_attempts);
                pod.tell_attempts = pod.tell_attempts.saturating_add(1);
            }
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
        self.deadlines.len() + self.retries.len()
    }

    pub fn overdue(&self, now: Timestamp) -> usize {
        let due = |order: &Order| order.iter().take_while(|(since, _)| *since < now.as_millisecond()).count();
        due(&self.deadlines) + due(&self.retries)
    }

    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub fn get(&self, uid: Uid) -> Option<&Pod> {
        self.by_uid.get(&uid).map(AsRef::as_ref)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Uid, &Pod)> {
        self.by_uid.iter().map(|(uid, pod)| (*uid, pod.as_ref()))
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
                && pod.outlives() == first.outlives()
        })
    };
    let mut group = vec![entry];
    if !first.alone && first.controller.is_some() {
        let due = order.iter().take(GROUP_WINDOW).take_while(|(since, _)| *since < now);
        group.extend(due.skip(1).filter(|(_, uid)| is_sibling(uid)));
    }
    Some(group)
}

/// After a time that doubles with each attempt.
fn later(now: Timestamp, first: SignedDuration, last: SignedDuration, attempts: u8) -> i64 {
    let wait = first.saturating_mul(1 << attempts.min(8)).min(last);
    now.checked_add(wait).map_or(NEVER, milliseconds_up)
}

/// Rounded up, so that nothing is ever early.
fn milliseconds_up(at: Timestamp) -> i64 {
    let milliseconds = at.as_millisecond();
    milliseconds.saturating_add(i64::from(at.subsec_nanosecond() % 1_000_000 > 0))
}
