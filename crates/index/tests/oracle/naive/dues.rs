//! When something is to be done about a pod, and what was done.

mod work;

use std::collections::BTreeMap;

use tenure_policy::{
    expiry::Family,
    ready::{Cause, Readiness},
};
use tenure_types::podgroup::PodGroupKind;

use super::{
    Naive, after,
    groups::{Lacking, LackingRun},
    lost,
    queues::{Allowed, Limits},
    readiness,
};
use crate::{
    wire,
    world::{Controller, EvidenceObj, GroupKey, MILLI, Nanos, PodObj, SECOND, Wait},
};

/// Milliseconds, rounded up from nanoseconds: nothing is ever early.
pub type Millis = i64;

pub const NEVER: Millis = Millis::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Expire,
    Evict,
    Announce,
    Withdraw,
}

/// The acts on a pod so far, kept as long as the pod is.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// As it was seen.
    pub readiness: Readiness,
    alone: bool,
    attempts: u8,
    failed: u8,
    not_before: Millis,
    announced_end: Option<Millis>,
    /// The time of the last notice.
    given: Option<Millis>,
    notice_attempts: u8,
    no_notice_before: Millis,
    /// While its workload must get ready.
    unready: Option<Unready>,
    /// The end of its run, as last computed. None: it was never computed.
    end: Option<Millis>,
    /// Its run doesn't end before, since a change of queues came so late.
    earliest: Millis,
    /// The time of that change, if it has moved the end.
    graced_since: Option<Millis>,
    /// The end that was past when a queue on its way went missing, while one is.
    lost: Option<Millis>,
    pub bound: Bound,
}

/// What ends the run of a bound pod earlier than its objects say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bound {
    /// The earliest start that it has shown since it is kept. None: it isn't bound.
    started: Option<Nanos>,
    /// Queues that its labels don't name, or that they name while it shows a later start.
    runai: Option<u8>,
    tensorstack: Option<u8>,
    /// The queues whose extensions count, where another ends its run: a bit each.
    lending: u16,
    own: Option<Nanos>,
    /// The scheduling of the pod that controls it, or did.
    since: Option<Nanos>,
    /// The earliest start that its group has shown, if the pod joined later.
    group_start: Option<Nanos>,
}

impl Bound {
    /// The same after another version of the pod.
    fn after(self, pod: &PodObj) -> Self {
        match (self.started, pod.scheduled()) {
            (Some(earliest), Some(shown)) => Self { started: Some(earliest.min(shown)), ..self },
            (_, started) => Self { started, ..Self::default() },
        }
    }

    /// The pod shows a later start than it once has.
    fn hides_start(self, pod: &PodObj) -> bool {
        self.started.is_some_and(|started| Some(started) < pod.scheduled())
    }

    /// An earlier start than the one that the pod shows.
    fn since(self, pod: &PodObj) -> Option<Nanos> {
        let own = self.started.filter(|_| self.hides_start(pod));
        self.since.into_iter().chain(own).min()
    }

    /// The evidence of it on a pod, without that of its readiness.
    fn evidence(self, pod: &PodObj) -> EvidenceObj {
        let Self { runai, tensorstack, lending, own, group_start, started: _, since: _ } = self;
        EvidenceObj {
            runai: runai.or(pod.evidence.runai),
            tensorstack: tensorstack.or(pod.evidence.tensorstack),
            lending: if lending == 0 { pod.evidence.lending } else { lending },
            own: own.into_iter().chain(noted(pod.evidence.own)).min().map(|own| own / 1_000),
            since: self.since(pod).into_iter().chain(pod.evidence.since).min(),
            group_start: group_start.into_iter().chain(pod.evidence.group_start).min(),
            was_ready: false,
        }
    }

    /// A pod has no evidence of its earlier start, and the pod that controls it doesn't show it.
    fn lacks_since(self, pod: &PodObj, driver: Option<Nanos>) -> bool {
        let mut shown = pod.evidence.since.into_iter().chain(driver);
        self.since(pod).is_some_and(|since| shown.all(|shown| shown > since))
    }

    fn queue(self, family: Family) -> Option<u8> {
        match family {
            Family::Runai => self.runai,
            Family::Tensorstack => self.tensorstack,
        }
    }
}

/// A ceiling as people write it: milliseconds at the finest.
fn noted(own: Option<i64>) -> Option<Nanos> {
    own.map(|micros| micros / 1_000 * MILLI)
}

fn evidence_of(pod: &PodObj, family: Family) -> Option<u8> {
    match family {
        Family::Runai => pod.evidence.runai,
        Family::Tensorstack => pod.evidence.tensorstack,
    }
}

/// A pod that terminates for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlong {
    pub uid: u32,
    /// Of its grace period, in whole seconds.
    pub left: i64,
    pub allowed: i64,
}

#[derive(Clone, Copy, Debug)]
struct Unready {
    attempts: u8,
    failed: u8,
    not_before: Millis,
    paused: bool,
}

impl Record {
    /// Its workload has to get ready.
    pub const fn is_unready(&self) -> bool {
        self.unready.is_some()
    }
}

/// The standing of a pod: its clocks, queues and the end of its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    pub created: Nanos,
    pub start: Option<Nanos>,
    pub started: Option<Nanos>,
    /// The start as far as no tenant can have written it.
    pub began: Option<Nanos>,
    pub allowed: Allowed,
    pub is_grouped: bool,
    pub tensorstack: Option<u8>,
    pub runai: Option<u8>,
    pub own: Option<Nanos>,
    pub expires: Option<(Nanos, Family)>,
    notice: [Nanos; 3],
    lacking: Option<Lacking>,
}

/// When something is due of a pod that is kept, as its objects say now.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "none follows from another")]
pub struct Due {
    pub expires: Option<Millis>,
    is_graced: bool,
    family: Family,
    queue: Option<u8>,
    until: Option<(Millis, Cause, Family, Option<u8>)>,
    pub expire: Option<Millis>,
    retries: bool,
    notice: Option<Millis>,
    evict: Option<Millis>,
    outlives: bool,
    alone: bool,
    controller: Controller,
    namespace: u8,
}

/// A pod of a batch. Its queue is none where there is none to name.
#[derive(Clone, Debug, PartialEq)]
pub struct DuePod {
    pub uid: u32,
    pub family: Family,
    pub queue: Option<u8>,
    pub deadline: Millis,
    pub since: Millis,
    pub handed_out: Millis,
    pub cause: Option<Cause>,
    pub announced_end: Option<Millis>,
    pub attempts: u8,
    pub outlives: bool,
}

/// The pods that one act may serve, with the task.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub task: Task,
    /// The first, and the others by uid.
    pub pods: Vec<DuePod>,
}

fn millis_up(nanos: Nanos) -> Millis {
    nanos.div_euclid(MILLI) + i64::from(nanos.rem_euclid(MILLI) > 0)
}

/// True if an end, or the time by which a workload must be ready, has moved beyond the next try since the last one.
/// Before the first try, and once one was allowed again after a final result, the next one has no time.
fn has_moved(end: Millis, next_try: Millis) -> bool {
    next_try != Millis::MIN && next_try < end
}

fn later(now: Nanos, first: i64, last: i64, attempts: u8) -> Millis {
    millis_up(now + (first << attempts.min(8)).min(last) * SECOND)
}

/// Until when a workload must be ready, and why it isn't.
fn ready_until(wait: Wait, lacking: Lacking) -> Option<(Millis, Cause)> {
    let timeout = wait.timeout.map_or(300 * SECOND, |micros| micros * 1_000);
    if let Some(run) = lacking.run
        && (run.was_ready || run.first_since > run.started + timeout)
    {
        return Some((millis_up(run.since + wait.recovery? * 1_000), Cause::WaitForRecovery));
    }
    let started = lacking.run.map(|run| run.started);
    let from = if wait.from_creation { started.into_iter().chain([lacking.created]).min() } else { started };
    Some((millis_up(from? + timeout), Cause::WaitForStart))
}

/// A pod that is its whole workload.
fn lacking_alone(pod: &PodObj, started: Option<Nanos>, readiness: Readiness) -> Option<Lacking> {
    if readiness == Readiness::Ready {
        return None;
    }
    let created = pod.created * MILLI;
    let run = started.map(|started| {
        let since = lost(readiness).unwrap_or(created).max(started);
        LackingRun { started, since, first_since: since, was_ready: lost(readiness).is_some() }
    });
    Some(Lacking { created, run })
}

impl Naive {
    /// A pod of which Tenure keeps a record: one in a queue, or that may be, and that isn't exempt.
    fn is_kept(pod: &PodObj, bound: Bound) -> bool {
        let is_exempt = !pod.is_live() || pod.critical;
        !is_exempt && Self::names_queue(pod, bound)
    }

    fn names_queue(pod: &PodObj, bound: Bound) -> bool {
        let [runai, tensorstack, ..] = pod.groups;
        let noted = [pod.evidence.runai, pod.evidence.tensorstack, bound.runai, bound.tensorstack];
        [pod.runai, pod.tensorstack, runai, tensorstack].into_iter().chain(noted).any(|queue| queue.is_some())
    }

    /// What is known of a pod that is bound, or was when its deletion was asked for.
    fn bound(&self, pod: &PodObj) -> Bound {
        let known = self.records.get(&pod.uid).map(|record| record.bound);
        let known = known.or_else(|| self.terminating.get(&pod.uid).copied());
        known.unwrap_or_default()
    }

    /// The earliest start that a pod has shown since the keeper keeps it.
    pub(super) fn started(&self, pod: &PodObj) -> Option<Nanos> {
        self.bound(pod).started.or_else(|| pod.scheduled())
    }

    /// A record lasts as long as its pod is kept.
    pub(super) fn keep_record(&mut self, uid: u32, pod: Option<&PodObj>) {
        let before = self.pods.get(&uid).map(|pod| pod.controller);
        let known = self.records.get(&uid).map(|record| record.bound);
        // only a view of an older time shows that a pod doesn't terminate any more
        let terminating = self.terminating.remove(&uid).filter(|_| pod.is_some_and(|pod| pod.terminating));
        let known = known.or(terminating).unwrap_or_default();
        let bound = pod.map_or(known, |pod| known.after(pod));
        let terminates = pod.filter(|pod| pod.terminating && !pod.finished && !pod.critical);
        if terminates.is_some_and(|pod| Self::names_queue(pod, bound)) {
            self.terminating.insert(uid, bound);
        } else {
            self.terminating.remove(&uid);
        }
        if let Some(pod) = pod.filter(|pod| Self::is_kept(pod, bound)) {
            let record = self.records.entry(uid).or_insert(Record {
                readiness: Readiness::NotYet,
                alone: false,
                attempts: 0,
                failed: 0,
                not_before: Millis::MIN,
                announced_end: None,
                given: None,
                notice_attempts: 0,
                no_notice_before: Millis::MIN,
                unready: None,
                end: None,
                earliest: Millis::MIN,
                graced_since: None,
                lost: None,
                bound,
            });
            record.bound = bound;
            record.readiness = after(record.readiness, pod);
            if before.is_some_and(|before| before != pod.controller) {
                record.revive();
            }
        } else {
            self.records.remove(&uid);
        }
    }

    /// Pods that a pod controls are parts of its run, for as long as they are there. `before` is the pod as it was.
    pub(super) fn drive(&mut self, uid: u32, before: Option<&PodObj>) {
        let kept: Vec<PodObj> = self.kept().cloned().collect();
        let find = |uid: u32| kept.iter().find(|pod| pod.uid == uid);
        let controller = |pod: &PodObj| pod.controller.map(|(_, uid)| uid);
        let (now, before) = (find(uid).and_then(controller), before.and_then(controller));
        for of in [Some(uid), now].into_iter().flatten() {
            let Some(driver) = find(of) else { continue };
            let is_below = |pod: &&PodObj| controller(pod) == Some(of) && pod.namespace == driver.namespace;
            let below: Vec<&PodObj> = kept.iter().filter(is_below).collect();
            if below.is_empty() || (of != uid && !below.iter().any(|pod| pod.uid == uid)) {
                continue;
            }
            match driver.controller {
                Some(controller) => drop(self.drivers.insert(of, controller)),
                None => drop(self.drivers.remove(&of)),
            }
            for pod in below {
                let own = self.started(pod);
                let earlier = self.started(driver).filter(|at| own.is_some_and(|own| *at < own));
                let since = &mut self.records.get_mut(&pod.uid).expect("it is kept").bound.since;
                *since = since.iter().copied().chain(earlier).min();
            }
        }
        for of in [Some(uid), before].into_iter().flatten() {
            if find(of).is_none() && !kept.iter().any(|pod| controller(pod) == Some(of)) {
                self.drivers.remove(&of);
            }
        }
    }

    /// The start of the group that counts for a pod, in whole milliseconds.
    fn group_start(&self, pod: &PodObj) -> Option<Nanos> {
        let gang = self.gangs.get(&self.group_of(pod)?)?;
        gang.start.map(|start| millis_up(start) * MILLI)
    }

    /// The group that counts for a pod.
    fn group_of(&self, pod: &PodObj) -> Option<GroupKey> {
        pod.keys().find(|key| self.groups.contains_key(key))
    }

    /// True if a pod has joined its group late, and the group doesn't show that start any more.
    pub fn has_lost_start(&self, pod: &PodObj) -> bool {
        self.has_lost_start_of(pod, self.bound(pod))
    }

    /// The same, of a pod that is bound in this way.
    fn has_lost_start_of(&self, pod: &PodObj, Bound { group_start: start, .. }: Bound) -> bool {
        let run = self.group_of(pod).and_then(|key| self.runs.get(&key));
        let shown = self.group_start(pod).filter(|_| run.is_none_or(|run| !run.worn));
        start.is_some_and(|start| shown.is_none_or(|shown| shown > start))
    }

    /// True if an earlier start than its own moves its end: that of the pod that controls it, or did, or one that it has
    /// shown before.
    pub fn has_earlier_start(&self, pod: &PodObj) -> bool {
        self.bound(pod).since(pod).is_some() && self.standing(pod).is_some_and(|of| of.expires.is_some())
    }

    /// Computes the standing of a pod, also of one that isn't kept. None: the pod is in no queue.
    pub fn standing(&self, pod: &PodObj) -> Option<Standing> {
        let bound = self.bound(pod);
        if !Self::names_queue(pod, bound) {
            return None;
        }
        let groups: Vec<_> = pod.keys().filter_map(|key| self.groups.get(&key)).collect();
        let gang = groups.first().and_then(|group| self.gangs.get(&group.key()));
        let runai = self.queue_of(pod, Family::Runai);
        let tensorstack = self.queue_of(pod, Family::Tensorstack);
        runai.or(tensorstack)?;
        let of_pod = [noted(pod.own), noted(pod.evidence.own), bound.own];
        let own = of_pod.into_iter().chain([self.own_of_others(pod)]).flatten().min();
        let limits = (
            tensorstack.and_then(|queue| self.tensorstack_limits(queue)),
            runai.and_then(|queue| self.runai_limits(queue)),
        );
        let own_start = self.started(pod);
        let start = gang.map_or(own_start, |gang| gang.start);
        let since = own_start.and(bound.since.into_iter().chain(pod.evidence.since).min());
        let of_group = bound.group_start.into_iter().chain(pod.evidence.group_start).min();
        let of_group = own_start.and(of_group);
        let started = start.into_iter().chain(own_start).chain(since).chain(of_group).min();
        let created = (pod.created * MILLI).min(since.unwrap_or(Nanos::MAX));
        let ceiling = |limits: Option<Limits>| limits?.ceiling.into_iter().chain(own).min();
        let tensorstack_end = ceiling(limits.0).map(|ceiling| created + ceiling);
        let workload = self.root(pod.controller).unwrap_or(pod.uid);
        // what a tenant may have noted on the pod brings no grant of before it was scheduled
        let earlier = own_start.and(bound.since.into_iter().chain(bound.group_start).min());
        let began = start.into_iter().chain(own_start).chain(earlier).min();
        let allowed = self.allowed(pod);
        let more = began.map_or(0, |began| self.extension(workload, pod.namespace, began, allowed));
        let runai_end = started.zip(ceiling(limits.1)).map(|(started, ceiling)| started + ceiling + more);
        let expires = match (tensorstack_end, runai_end) {
            (Some(one), Some(other)) if other < one => Some((other, Family::Runai)),
            (Some(one), _) => Some((one, Family::Tensorstack)),
            (None, other) => other.map(|other| (other, Family::Runai)),
        };
        let decides = expires.and_then(|(_, family)| match family {
            Family::Tensorstack => limits.0,
            Family::Runai => limits.1,
        });
        let configured = self.config.notice.map(|micros| micros * 1_000);
        let notice = decides.and_then(|limits| limits.notice).unwrap_or(configured);
        let seen = || self.records.get(&pod.uid).map_or_else(|| readiness(pod), |record| record.readiness);
        let lacking = gang.map_or_else(|| lacking_alone(pod, own_start, seen()), |gang| gang.lacking);
        let is_grouped = gang.is_some();
        Some(Standing {
            created,
            start,
            started,
            began,
            allowed,
            is_grouped,
            tensorstack,
            runai,
            own,
            expires,
            notice,
            lacking,
        })
    }

    /// The least ceiling that the groups and the owner of a pod note.
    fn own_of_others(&self, pod: &PodObj) -> Option<Nanos> {
        let noted = pod.keys().filter_map(|key| self.groups.get(&key)?.own);
        noted.map(|micros| micros / 1_000 * MILLI).chain(self.own_of_root(pod.controller)).min()
    }

    /// The queue of a pod in a family: the one that it names, that was fixed, or that it has evidence of: the one that ends its run first.
    fn queue_of(&self, pod: &PodObj, family: Family) -> Option<u8> {
        let named = self.named_queue(pod, family).map(|queue| self.bind(family, queue));
        // the queue that was fixed is forgotten once it is gone
        let fixed = self.bound(pod).queue(family).filter(|queue| self.knows(family, *queue));
        let of = [named, fixed, evidence_of(pod, family)];
        // the first of several that are as short
        of.into_iter().flatten().min_by_key(|queue| self.ceiling(family, *queue).unwrap_or(Nanos::MAX))
    }

    /// What each queue allows that the run has had.
    fn lenders(&self, pod: &PodObj) -> Vec<(u8, Allowed)> {
        let bind = |queue: Option<u8>| Some(self.bind(Family::Runai, queue?));
        let (placed, named) =
            (self.floor_queue(pod, self.started(pod)), self.named_queue(pod, Family::Runai));
        let (placed, named) = (bind(placed), bind(named));
        let bound = self.bound(pod);
        let lending = [bound.lending, pod.evidence.lending].into_iter().flat_map(wire::names_of);
        let ending = self.queue_of(pod, Family::Runai);
        let queues = [ending, placed, named, bound.runai, pod.evidence.runai];
        let all = queues.into_iter().flatten().chain(lending);
        all.filter_map(|queue| Some((queue, self.runai_limits(queue)?.extensions))).collect()
    }

    /// The least that these allow.
    fn allowed(&self, pod: &PodObj) -> Allowed {
        Allowed::least(self.lenders(pod).into_iter().map(|(_, allowed)| allowed))
    }

    fn ceiling(&self, family: Family, queue: u8) -> Option<Nanos> {
        match family {
            Family::Runai => self.runai_limits(queue)?.ceiling,
            Family::Tensorstack => self.tensorstack_limits(queue)?.ceiling,
        }
    }

    /// The bound pods on which evidence is to be written.
    pub fn missing_evidence(&self) -> BTreeMap<u32, EvidenceObj> {
        let missing = |(uid, record): (&u32, &Record)| {
            let (pod, bound) = (&self.pods[uid], record.bound);
            let lacks_ready = record.readiness != Readiness::NotYet && readiness(pod) == Readiness::NotYet;
            let driver = pod.controller.filter(|(_, of)| self.records.contains_key(of));
            let driver = driver.map(|(_, of)| &self.pods[&of]).filter(|of| of.namespace == pod.namespace);
            let is_missing = bound.lacks_since(pod, driver.and_then(PodObj::scheduled))
                || self.lacks_fixed(pod, bound)
                || (lacks_ready && self.must_be_ready(pod));
            let was_ready = lacks_ready || pod.evidence.was_ready;
            let evidence = EvidenceObj { was_ready, ..bound.evidence(pod) };
            (pod.scheduled().is_some() && is_missing).then_some((*uid, evidence))
        };
        self.records.iter().filter_map(missing).collect()
    }

    /// A pod has no evidence of its queues or of its own ceiling, as they were fixed, and nothing else shows them.
    fn lacks_fixed(&self, pod: &PodObj, bound: Bound) -> bool {
        let Bound { runai, tensorstack, lending, own, group_start, started: _, since: _ } = bound;
        let lacks = |queue: Option<u8>, noted| queue.is_some() && queue != noted;
        let bearers = [noted(pod.own), noted(pod.evidence.own), self.own_of_root(pod.controller)];
        let lacks_own = own.is_some() && !bearers.contains(&own);
        lacks(runai, pod.evidence.runai)
            || lacks(tensorstack, pod.evidence.tensorstack)
            || (lending != 0 && lending != pod.evidence.lending)
            || (lacks_own && !self.group_notes(pod, own))
            || (self.has_lost_start_of(pod, bound)
                && pod.evidence.group_start.is_none_or(|noted| Some(noted) > group_start))
    }

    /// The pods in queues that may terminate for longer than `longest`, without evidence of what ends their run. That is
    /// fixed now: none of them may have been seen while it ran.
    pub fn unnoted_terminations(&mut self, longest: Nanos) -> BTreeMap<u32, EvidenceObj> {
        let is_long = |uid: &u32| self.pods[uid].grace.saturating_mul(SECOND) > longest;
        let long: Vec<u32> = self.terminating.keys().copied().filter(is_long).collect();
        let mut unnoted = BTreeMap::new();
        for uid in long {
            let pod = &self.pods[&uid];
            let Some(mut bound) = self.fixed(uid).filter(|_| self.standing(pod).is_some()) else { continue };
            let is_driver = |of: &&PodObj| {
                pod.controller.is_some_and(|(_, driver)| driver == of.uid) && of.namespace == pod.namespace
            };
            let scheduled = self.kept().find(is_driver).and_then(|driver| self.started(driver));
            let earlier = scheduled.filter(|at| self.started(pod).is_some_and(|own| *at < own));
            bound.since = bound.since.into_iter().chain(earlier).min();
            if bound.lacks_since(pod, None) || self.lacks_fixed(pod, bound) {
                unnoted.insert(uid, bound.evidence(pod));
            }
            self.terminating.insert(uid, bound);
        }
        unnoted
    }

    /// The queue of a pod has rules for workloads that don't get ready.
    fn must_be_ready(&self, pod: &PodObj) -> bool {
        let rules = |of: &Standing| match (of.runai, of.tensorstack) {
            (Some(queue), _) => self.wait(Family::Runai, queue),
            (None, queue) => self.wait(Family::Tensorstack, queue?),
        };
        self.standing(pod).as_ref().and_then(rules).is_some()
    }

    fn group_notes(&self, pod: &PodObj, own: Option<Nanos>) -> bool {
        let noted = pod.keys().filter_map(|key| self.groups.get(&key)?.own);
        noted.map(|micros| micros / 1_000 * MILLI).any(|noted| Some(noted) == own)
    }

    /// The pods that terminate for longer than `longest` after their run has ended and their deletion was asked for.
    pub fn overlong(&self, longest: Nanos) -> Vec<Overlong> {
        let overlong = |uid: &u32| {
            let pod = &self.pods[uid];
            let (end, _) = self.standing(pod)?.expires.filter(|(end, _)| *end < self.now)?;
            let asked = pod.created * MILLI;
            let over = asked.checked_add(pod.grace.saturating_mul(SECOND)).unwrap_or(Nanos::MAX);
            let until = asked.max(end) + longest;
            let (left, allowed) = ((over - self.now) / SECOND, ((until - self.now) / SECOND).max(1));
            (over > until && self.now < over && allowed < left).then_some(Overlong {
                uid: *uid,
                left,
                allowed,
            })
        };
        self.terminating.keys().filter_map(overlong).collect()
    }

    /// The queue that a pod names in a family.
    fn named_queue(&self, pod: &PodObj, family: Family) -> Option<u8> {
        let (kind, own) = match family {
            Family::Runai => (PodGroupKind::Runai, pod.runai),
            Family::Tensorstack => (PodGroupKind::Tensorstack, pod.tensorstack),
        };
        let Some(named) = pod.keys().find(|key| key.0 == kind).and_then(|key| self.named_by(key)) else {
            return own;
        };
        let (Some(theirs), Some(mine)) = (named.queue, own) else {
            return named.queue.or(own);
        };
        let ceiling = |queue| self.ceiling(family, self.bind(family, queue));
        // who makes a group for a pod that runs can't lengthen its run
        let is_late = named.made.zip(self.started(pod)).is_some_and(|(made, at)| made * MILLI > at);
        let endless = Nanos::MAX;
        let lengthens = ceiling(theirs).unwrap_or(endless) >= ceiling(mine).unwrap_or(endless);
        Some(if is_late && lengthens { mine } else { theirs })
    }

    /// Until when the workload of a pod must be ready, the cause, and the queue that says so, if there is such a queue.
    fn until(&self, pod: &PodObj, standing: &Standing) -> Option<(Millis, Cause, Family, Option<u8>)> {
        let (family, queue) = match (standing.runai, standing.tensorstack) {
            (Some(queue), _) => (Family::Runai, queue),
            (None, queue) => (Family::Tensorstack, queue?),
        };
        let wait = self.wait(family, queue)?;
        if !wait.from_creation {
            pod.scheduled()?;
        }
        let (at, cause) = ready_until(wait, standing.lacking?)?;
        Some((at, cause, family, Some(queue).filter(|queue| self.knows(family, *queue))))
    }

    /// The own ceiling of a workload, unless it is longer than those of all its queues.
    fn own_that_counts(&self, pod: &PodObj) -> Option<Nanos> {
        let bound = self.bound(pod);
        let of_pod = [noted(pod.own), noted(pod.evidence.own), bound.own];
        let own = of_pod.into_iter().chain([self.own_of_others(pod)]).flatten().min()?;
        let limits = [Family::Runai, Family::Tensorstack].into_iter().filter_map(|family| {
            let queue = self.queue_of(pod, family)?;
            self.knows(family, queue).then(|| self.ceiling(family, queue))
        });
        let ceilings: Vec<_> = limits.collect();
        let is_longer = |ceiling: &Option<Nanos>| ceiling.is_some_and(|ceiling| ceiling < own);
        (ceilings.is_empty() || !ceilings.iter().all(is_longer)).then_some(own)
    }

    /// The queues and the own ceiling of a pod that are fixed now. None: it isn't bound.
    fn fixed(&self, uid: u32) -> Option<Bound> {
        let pod = self.pods.get(&uid).filter(|pod| pod.scheduled().is_some())?;
        let known = self.bound(pod);
        let fixed = |family, label| {
            let queue = self.queue_of(pod, family).filter(|queue| self.knows(family, *queue));
            let counts = known.hides_start(pod) || known.queue(family).is_some();
            queue.filter(|queue| counts || Some(*queue) != label)
        };
        let ending = self.queue_of(pod, Family::Runai).filter(|queue| self.knows(Family::Runai, *queue));
        // of several that allow as little, one that needn't be remembered, or else the first by name
        let lenders = self.lenders(pod);
        let rank = |queue: u8| (Some(queue) != ending && Some(queue) != pod.runai, queue);
        let least = [
            lenders.iter().min_by_key(|(queue, of)| (of.total, rank(*queue))),
            lenders.iter().min_by_key(|(queue, of)| (of.at_once, rank(*queue))),
            lenders.iter().min_by_key(|(queue, of)| (of.count.unwrap_or(u32::MAX), rank(*queue))),
        ];
        let lending = least.into_iter().flatten().map(|(queue, _)| *queue);
        let is_in_doubt = self.group_of(pod).is_some_and(|key| self.doubts.contains_key(&key));
        let ends_run =
            self.standing(pod).and_then(|of| of.expires).is_some_and(|(_, of)| of == Family::Runai);
        let start = self.group_start(pod).filter(|start| Some(*start) < self.started(pod));
        Some(Bound {
            started: known.started,
            lending: lending
                .filter(|queue| Some(*queue) != ending && Some(*queue) != pod.runai)
                .fold(0, |bits, queue| bits | 1 << queue),
            runai: fixed(Family::Runai, pod.runai),
            tensorstack: fixed(Family::Tensorstack, pod.tensorstack),
            own: self.own_that_counts(pod).or(known.own),
            since: known.since,
            group_start: known
                .group_start
                .into_iter()
                .chain(start.filter(|_| ends_run && !is_in_doubt))
                .min(),
        })
    }

    /// Fixes the queues and the own ceilings of bound pods.
    fn observe_bound(&mut self) {
        let bound = |uid: &u32| Some((*uid, self.fixed(*uid)?));
        let bound: Vec<_> = self.records.keys().filter_map(bound).collect();
        for (uid, bound) in bound {
            self.records.get_mut(&uid).expect("it is one of them").bound = bound;
        }
    }

    pub(super) fn observe_pods(&mut self) {
        self.observe_changes();
        self.observe_bound();
        let dues = self.records.keys().map(|uid| (*uid, self.due(*uid))).collect();
        self.dues = dues;
        for (uid, due) in &self.dues {
            let Some(record) = self.records.get_mut(uid) else { continue };
            let fresh = Unready { attempts: 0, failed: 0, not_before: Millis::MIN, paused: false };
            record.unready = due.until.map(|(at, ..)| {
                let known = record.unready.unwrap_or(fresh);
                let has_more_time = has_moved(at, known.not_before);
                if has_more_time { Unready { attempts: 0, failed: 0, ..known } } else { known }
            });
        }
    }

    /// A run that a change of queues shortens doesn't end at once if it gets a notice, and never later than before.
    /// The tries to end a run are forgotten once it may go on for longer.
    fn observe_changes(&mut self) {
        self.forgotten_tries = 0;
        let uids: Vec<u32> = self.records.keys().copied().collect();
        for uid in uids {
            let standing = self.standing(&self.pods[&uid]);
            let end = standing
                .as_ref()
                .and_then(|standing| standing.expires)
                .map_or(NEVER, |(at, _)| millis_up(at));
            let has_notice = standing.as_ref().is_some_and(|standing| standing.notice != [0; 3]);
            let since = standing.and_then(|standing| match standing.expires?.1 {
                Family::Tensorstack => Some(standing.created),
                Family::Runai => standing.started,
            });
            let is_younger = since.is_none_or(|since| since >= self.now.div_euclid(SECOND) * SECOND);
            let grace = if has_notice { self.config.grace * 1_000 } else { 0 };
            let after_change = millis_up(self.now + grace);
            let is_whole = self.is_on_whole_paths(&self.pods[&uid]);
            let record = self.records.get_mut(&uid).expect("it is one of them");
            if let Some(before) = record.end.filter(|_| self.policy_changed) {
                let before = record.lost.map_or(before, |lost| lost.min(before));
                let was_past = before < self.now.div_euclid(MILLI);
                record.lost = Some(before).filter(|_| !is_whole && was_past);
                let granted = before.min(after_change);
                let is_granted = end < granted && !is_younger;
                let earliest = if is_granted { granted } else { Millis::MIN };
                // another change may leave the end that an earlier one has granted
                if earliest != record.earliest {
                    let is_moved = is_granted && granted != before;
                    record.graced_since = is_moved.then_some(self.now.div_euclid(MILLI));
                    record.earliest = earliest;
                }
            }
            let end = if end == NEVER { NEVER } else { end.max(record.earliest) };
            record.end = Some(end);
            // a queue that is missing may be back in a moment
            if record.lost.is_none() && has_moved(end, record.not_before) {
                self.forgotten_tries += usize::from(record.attempts > 0 || record.failed > 0);
                (record.attempts, record.failed) = (0, 0);
            }
        }
    }

    /// False if a queue of the pod, or one on its way to the root, isn't there.
    fn is_on_whole_paths(&self, pod: &PodObj) -> bool {
        [Family::Runai, Family::Tensorstack]
            .into_iter()
            .filter_map(|family| Some((family, self.queue_of(pod, family)?)))
            .all(|(family, queue)| self.is_whole(family, queue))
    }

    /// The pods of which an end is remembered that was past when a queue went missing.
    pub fn lost(&self) -> usize {
        self.records.values().filter(|record| record.lost.is_some()).count()
    }

    /// The pods whose runs end later than their ceilings say.
    pub fn graced(&self) -> usize {
        self.dues.values().filter(|due| due.is_graced).count()
    }

    fn due(&self, uid: u32) -> Due {
        let (record, pod) = (&self.records[&uid], &self.pods[&uid]);
        let standing = self.standing(pod);
        let until = standing.as_ref().and_then(|standing| self.until(pod, standing));
        let expiry = standing.as_ref().and_then(|standing| standing.expires);
        let is_graced = expiry.is_some_and(|(at, _)| millis_up(at) < record.earliest);
        let expiry =
            if is_graced { expiry.map(|(_, family)| (record.earliest * MILLI, family)) } else { expiry };
        let expires = expiry.map(|(at, _)| millis_up(at));
        let end = expires.unwrap_or(NEVER);
        let points = standing.as_ref().zip(expiry).into_iter().flat_map(|(standing, (at, _))| {
            let points = standing.notice.into_iter().filter(|point| *point > 0);
            points.map(move |point| (at - point).div_euclid(MILLI))
        });
        // one notice covers all points within the grace
        let since = record.graced_since.filter(|_| is_graced);
        let points = points.map(|point| since.unwrap_or(point)).filter(|_| since.is_none_or(|at| at < end));
        // a notice covers all points whose time has come
        let notice = points.filter(|at| record.given.is_none_or(|given| *at > given)).min();
        let notice_at = match record.announced_end {
            Some(announced) if announced != end => Some(announced.min(end).min(pod.created)),
            _ => notice,
        };
        let after = |at: Millis, before: Millis| Some(at.max(before)).filter(|at| *at != NEVER);
        let family = expiry.map_or(Family::Runai, |(_, family)| family);
        // what is remembered of an earlier time at which it wasn't ready ends with that
        let unready = record.unready.filter(|_| until.is_some());
        Due {
            expires,
            is_graced,
            family,
            queue: standing.as_ref().and_then(|standing| match family {
                Family::Tensorstack => standing.tensorstack,
                Family::Runai => standing.runai,
            }),
            until,
            expire: after(end, record.not_before),
            // a try that waits is no first one, even if the tries before it were forgotten
            retries: record.attempts > 0 || record.failed > 0 || end < record.not_before,
            notice: notice_at.and_then(|at| after(at, record.no_notice_before)),
            evict: until.and_then(|(at, ..)| after(at, unready.map_or(Millis::MIN, |of| of.not_before))),
            outlives: unready.is_some_and(|of| of.paused),
            alone: record.alone,
            controller: pod.controller,
            namespace: pod.namespace,
        }
    }
}
