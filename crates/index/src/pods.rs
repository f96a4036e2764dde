//! Pods in a few hundred bytes each, ordered by when their ceiling is reached.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_policy::expiry::{Clocks, Exemption, Family, exemption};
use tenure_types::{keys, projection};

use crate::{Uid, names::Names};

/// How far [`Pods::claim`] looks for more pods of the same controller. Those beyond are claimed by themselves; their
/// owner is paused only once all the same.
const GROUP_WINDOW: usize = 2_000;

/// The first and the longest time until a pod that was settled is due again.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
const LAST_RETRY: SignedDuration = SignedDuration::from_secs(40);

/// What is kept of a pod in a queue.
#[derive(Debug)]
pub struct Pod {
    name: Box<str>,
    namespace: Arc<str>,
    pub(crate) tensorstack: Option<Arc<str>>,
    pub(crate) runai: Option<Arc<str>>,
    controller: Option<Uid>,
    /// Seconds since the epoch, as exact as the API server writes them.
    created: i64,
    started: Option<i64>,
    family: Family,
    attempts: u8,
    claimed: bool,
    /// What is done about it serves no other pod of its controller.
    alone: bool,
    /// When the ceiling is reached: milliseconds since the epoch, rounded up.
    expires: i64,
    /// When there is something to do: that, or after a try some time later. It stands in the order of deadlines
    /// while it is set.
    deadline: Option<i64>,
    /// Milliseconds since the epoch: not due again before.
    not_before: i64,
}

impl Pod {
    /// The clocks that ceilings run by.
    pub fn clocks(&self) -> Clocks {
        let time = |seconds| Timestamp::from_second(seconds).unwrap_or_default();
        Clocks { created: time(self.created), started: self.started.map(time) }
    }

    fn queue(&self) -> &str {
        let queue = match self.family {
            Family::Tensorstack => &self.tensorstack,
            Family::Runai => &self.runai,
        };
        queue.as_deref().unwrap_or_default()
    }
}

/// When a pod's ceiling is reached, and which family's ceiling it is.
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    pub at: Timestamp,
    pub family: Family,
}

/// A pod whose ceiling was exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which pod: a pod of this name may be another one by now.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The queue that it names, in the family whose ceiling was exceeded.
    pub queue: String,
    /// When the ceiling was reached.
    pub deadline: Timestamp,
    /// How often it was due before.
    pub attempts: u8,
}

/// Pods of one controller that are overdue: pausing their owner serves all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The one that is most overdue.
    pub first: Due,
    /// The others.
    pub rest: Vec<Due>,
}

impl Group {
    /// All pods of the group.
    pub fn pods(&self) -> impl Iterator<Item = &Due> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

#[derive(Debug)]
pub struct Pods {
    priority_threshold: i32,
    names: Names,
    // boxed: a hash table is up to half empty, and an empty place should be small
    by_uid: HashMap<Uid, Box<Pod>>,
    deadlines: BTreeSet<(i64, Uid)>,
    exempt: HashMap<Uid, (Arc<str>, OwnerReference)>,
}

impl Pods {
    pub fn new(priority_threshold: i32) -> Self {
        Self {
            priority_threshold,
            names: Names::default(),
            by_uid: HashMap::new(),
            deadlines: BTreeSet::new(),
            exempt: HashMap::new(),
        }
    }

    /// Takes a pod; returns its uid if its deadline is to be computed.
    pub fn apply(&mut self, pod: &projection::Pod) -> Option<Uid> {
        let uid = Uid::of(pod.metadata.uid.as_deref()?);
        match exemption(pod, self.priority_threshold) {
            None => {
                self.exempt.remove(&uid);
                self.keep(uid, pod)
            }
            Some(exemption) => {
                self.delete(uid);
                if exemption == Exemption::Priority {
                    self.keep_exempt(uid, pod);
                }
                None
            }
        }
    }

    fn keep(&mut self, uid: Uid, pod: &projection::Pod) -> Option<Uid> {
        let label = |key| pod.label(key).filter(|queue| !queue.is_empty());
        let (tensorstack, runai) = (label(keys::TENSORSTACK_QUEUE_LABEL), label(keys::RUNAI_QUEUE_LABEL));
        if tensorstack.is_none() && runai.is_none() {
            self.delete(uid);
            return None;
        }
        let tensorstack = tensorstack.map(|queue| self.names.shared(queue));
        let runai = runai.map(|queue| self.names.shared(queue));
        let started = pod.scheduled_at().map(|time| time.0.as_second());
        if let Some(known) = self.by_uid.get_mut(&uid) {
            (known.tensorstack, known.runai, known.started) = (tensorstack, runai, started);
            known.controller = pod.controller().map(|owner| Uid::of(&owner.uid));
            return Some(uid);
        }
        let namespace = self.names.shared(pod.metadata.namespace.as_deref().unwrap_or_default());
        let record = Pod {
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            namespace,
            tensorstack,
            runai,
            controller: pod.controller().map(|owner| Uid::of(&owner.uid)),
            created: pod.metadata.creation_timestamp.as_ref()?.0.as_second(),
            started,
            family: Family::Tensorstack,
            attempts: 0,
            claimed: false,
            alone: false,
            expires: i64::MAX,
            deadline: None,
            not_before: i64::MIN,
        };
        self.by_uid.insert(uid, Box::new(record));
        Some(uid)
    }

    fn keep_exempt(&mut self, uid: Uid, pod: &projection::Pod) {
        let Some(controller) = pod.controller().cloned() else {
            return;
        };
        let namespace = self.names.shared(pod.metadata.namespace.as_deref().unwrap_or_default());
        self.exempt.insert(uid, (namespace, controller));
    }

    pub fn delete(&mut self, uid: Uid) {
        self.exempt.remove(&uid);
        if let Some(deadline) = self.by_uid.remove(&uid).and_then(|pod| pod.deadline) {
            self.deadlines.remove(&(deadline, uid));
        }
    }

    pub fn retain(&mut self, uids: &HashSet<Uid>) {
        let gone: Vec<Uid> =
            self.by_uid.keys().chain(self.exempt.keys()).copied().filter(|uid| !uids.contains(uid)).collect();
        for uid in gone {
            self.delete(uid);
        }
    }

    /// Computes a pod's deadline.
    pub fn schedule(&mut self, uid: Uid, expiry: &mut impl FnMut(&Pod) -> Option<Expiry>) {
        let Some(pod) = self.by_uid.get_mut(&uid) else {
            return;
        };
        if pod.claimed {
            return;
        }
        let expiry = expiry(pod);
        if let Some(expiry) = expiry {
            (pod.family, pod.expires) = (expiry.family, milliseconds_up(expiry.at));
        }
        let deadline = expiry.map(|_| pod.expires.max(pod.not_before));
        if deadline == pod.deadline {
            return;
        }
        if let Some(old) = std::mem::replace(&mut pod.deadline, deadline) {
            self.deadlines.remove(&(old, uid));
        }
        self.deadlines.extend(deadline.map(|deadline| (deadline, uid)));
    }

    pub fn schedule_all(&mut self, expiry: &mut impl FnMut(&Pod) -> Option<Expiry>) {
        let uids: Vec<Uid> = self.by_uid.keys().copied().collect();
        for uid in uids {
            self.schedule(uid, expiry);
        }
    }

    /// Later than the deadline itself, at which a pod isn't overdue yet.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let (deadline, _) = self.deadlines.first()?;
        Timestamp::from_millisecond(deadline.saturating_add(1)).ok()
    }

    pub fn claim(&mut self, now: Timestamp) -> Option<Group> {
        let now = now.as_millisecond();
        let (_, uid) = *self.deadlines.first().filter(|(deadline, _)| *deadline < now)?;
        let first = self.by_uid.get(&uid)?;
        let is_sibling =
            |pod: &Pod| !pod.alone && pod.controller == first.controller && pod.namespace == first.namespace;
        let overdue = self.deadlines.iter().take(GROUP_WINDOW).take_while(|(deadline, _)| *deadline < now);
        let siblings = overdue.skip(1).map(|(_, uid)| *uid).filter(|uid| {
            !first.alone
                && first.controller.is_some()
                && self.by_uid.get(uid).is_some_and(|pod| is_sibling(pod))
        });
        let siblings: Vec<Uid> = siblings.collect();
        let first = self.take(uid)?;
        let rest = siblings.into_iter().filter_map(|uid| self.take(uid)).collect();
        Some(Group { first, rest })
    }

    fn take(&mut self, uid: Uid) -> Option<Due> {
        let pod = self.by_uid.get_mut(&uid)?;
        pod.claimed = true;
        let deadline = pod.deadline.take()?;
        self.deadlines.remove(&(deadline, uid));
        Some(Due {
            uid,
            namespace: pod.namespace.as_ref().into(),
            name: pod.name.as_ref().into(),
            queue: pod.queue().into(),
            deadline: Timestamp::from_millisecond(pod.expires).unwrap_or_default(),
            attempts: pod.attempts,
        })
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
        pod.not_before = now.checked_add(wait).map_or(i64::MAX, milliseconds_up);
    }

    pub fn exempt_controllers(&self, namespace: &str) -> Vec<OwnerReference> {
        let here = self.exempt.values().filter(|(of, _)| of.as_ref() == namespace);
        let by_uid: BTreeMap<&str, &OwnerReference> = here.map(|(_, owner)| (&*owner.uid, owner)).collect();
        by_uid.into_values().cloned().collect()
    }

    pub fn scheduled(&self) -> usize {
        self.deadlines.len()
    }

    pub fn len(&self) -> usize {
        self.by_uid.len()
    }
}

/// Rounded up, so that nothing is ever early.
fn milliseconds_up(at: Timestamp) -> i64 {
    let milliseconds = at.as_millisecond();
    milliseconds.saturating_add(i64::from(at.subsec_nanosecond() % 1_000_000 > 0))
}
