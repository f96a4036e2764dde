//! `PodGroup`s: their members, what it takes to run, and what a run has shown.

use std::collections::BTreeSet;

use tenure_policy::{ready::Readiness, start};
use tenure_types::podgroup::PodGroupKind;

use super::{Naive, lost, stamps::Stamp};
use crate::{
    wire,
    world::{ConfigObj, GroupKey, GroupObj, MILLI, Nanos, PodObj, SECOND, nanos, timestamp},
};

/// The memory of a group, kept as long as there is such a group or a live pod that names it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub ended: u64,
    /// The oldest creation of a pod that was active in this run.
    oldest: Option<Nanos>,
    /// The earliest start that pods have shown in this run.
    shown: Option<Nanos>,
    /// The time to which a start was set back that only a stamp has shown.
    set_back: Option<Nanos>,
    /// The stamp that the last run left behind.
    pub left: Option<Nanos>,
    /// The queue that the first group of this run named, if that group was deleted or replaced since.
    fixed: Option<Named>,
    /// A pod has left, or shows another start, that was there at the start or when that was stamped, or was scheduled first.
    pub worn: bool,
    readiness: Memory,
    pub stamp: Stamp,
}

/// The readiness that a run has shown.
#[derive(Clone, Debug, Default)]
struct Memory {
    was_ready: bool,
    /// How many pods have left it without success, and weren't replaced.
    missed: u32,
    /// Since when it has had too few.
    since: Option<Nanos>,
    /// The first that was shown in this run.
    first_since: Option<Nanos>,
    /// When the first pod of this run was scheduled.
    scheduled: Option<Nanos>,
    /// The oldest creation of a live pod since the last run ended, or since there were none.
    created: Option<Nanos>,
}

/// A workload that has fewer ready pods than it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lacking {
    pub created: Nanos,
    /// None: the workload takes no room.
    pub run: Option<LackingRun>,
}

/// The same of one that takes room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LackingRun {
    pub started: Nanos,
    pub since: Nanos,
    pub first_since: Nanos,
    pub was_ready: bool,
}

/// A group that there is.
#[derive(Clone, Debug, PartialEq)]
pub struct GangNow {
    pub start: Option<Nanos>,
    pub lacking: Option<Lacking>,
    pub members: Vec<u32>,
}

/// The number of pods that it takes to run.
pub(super) struct Minimums {
    /// In all.
    pub all: u32,
    /// Of each subgroup.
    pub each: Vec<(u8, u32)>,
    /// The number of subgroups that must have theirs.
    pub parts: usize,
}

pub(super) fn minimums(group: &GroupObj) -> Minimums {
    let has_subgroups =
        matches!(group.kind, PodGroupKind::Runai | PodGroupKind::Tensorstack | PodGroupKind::Volcano);
    let all = if has_subgroups { group.subgroups.0.as_slice() } else { &[] };
    let is_parent = |name: u8| all.iter().any(|(_, _, parent)| *parent == Some(name));
    let tasks_count = group.kind != PodGroupKind::Volcano
        || all.iter().map(|(_, min, _)| min.unwrap_or(1)).sum::<u32>() <= group.min.unwrap_or(u32::MAX);
    let each: Vec<_> = all
        .iter()
        .filter(|(name, ..)| tasks_count && (group.kind == PodGroupKind::Volcano || !is_parent(*name)))
        .map(|(name, min, _)| (*name, min.unwrap_or(1)))
        .collect();
    let unset = u32::from(each.is_empty());
    // KAI-Scheduler's subgroups say it all
    let of_all = group.min.filter(|_| group.kind != PodGroupKind::Runai || all.is_empty());
    // no parent has more than one subgroup, so each at the top stands for one
    let parts = group.parts.filter(|_| group.kind == PodGroupKind::Runai && !each.is_empty());
    let parts = parts.map_or(each.len(), |parts| parts as usize);
    Minimums { all: of_all.unwrap_or(unset), each, parts }
}

/// The subgroup of a member; that of one that names none is `default`.
pub(super) fn subgroup(kind: PodGroupKind, pod: &PodObj) -> u8 {
    match kind {
        PodGroupKind::Coscheduling | PodGroupKind::Native => 0,
        PodGroupKind::Runai | PodGroupKind::Tensorstack | PodGroupKind::Volcano => pod.subgroup.unwrap_or(0),
    }
}

/// The queue that a group names, which may be none, and when the group was made.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub queue: Option<u8>,
    pub made: Option<i64>,
}

/// The queue that a group names: T9k's has a default.
fn named(group: &GroupObj) -> Named {
    let queue = group.queue.or((group.kind == PodGroupKind::Tensorstack).then_some(0));
    Named { queue, made: group.created }
}

/// When the pods that are active show that it started.
fn shown_start(group: &GroupObj, members: &[&PodObj]) -> Option<Nanos> {
    let at_least = |minimum: usize, mut times: Vec<Nanos>| {
        times.sort_unstable();
        if minimum == 0 { Some(Nanos::MIN) } else { times.get(minimum - 1).copied() }
    };
    let scheduled = |of: Option<u8>, minimum: u32| {
        let of_it = members.iter().filter(|pod| of.is_none_or(|of| subgroup(group.kind, pod) == of));
        at_least(minimum as usize, of_it.filter_map(|pod| pod.scheduled()).collect())
    };
    let Minimums { all, each, parts } = minimums(group);
    let each = each.into_iter().filter_map(|(of, minimum)| scheduled(Some(of), minimum)).collect();
    let times = [scheduled(None, all.max(1))?, at_least(parts, each)?];
    times.into_iter().max()
}

/// The pods that count for a minimum.
struct Count {
    minimum: usize,
    pods: usize,
    ready: usize,
    /// Those that are ready, or were.
    had: usize,
    /// Since when too few of those are ready that there are.
    onset: Option<Nanos>,
}

impl Count {
    const fn is_enough(&self) -> bool {
        self.ready >= self.minimum
    }

    const fn has_had(&self) -> bool {
        self.had >= self.minimum
    }

    /// There are enough pods, ready or not.
    const fn is_met(&self) -> bool {
        self.pods >= self.minimum
    }

    /// There are pods, or it takes none.
    const fn is_present(&self) -> bool {
        self.pods > 0 || self.minimum == 0
    }
}

fn count(pods: &[(&PodObj, Readiness)], minimum: u32, started: Nanos) -> Count {
    let minimum = minimum as usize;
    let ready = pods.iter().filter(|(_, of)| *of == Readiness::Ready).count();
    let had = ready + pods.iter().filter(|(_, of)| lost(*of).is_some()).count();
    let others = pods.iter().filter(|(_, of)| *of != Readiness::Ready);
    let mut since: Vec<Nanos> =
        others.map(|(pod, of)| lost(*of).unwrap_or(pod.created * MILLI).max(started)).collect();
    since.sort_unstable();
    let onset = if ready >= minimum {
        None
    } else {
        since.get((ready + since.len()).saturating_sub(minimum)).copied()
    };
    Count { minimum, pods: pods.len(), ready, had, onset }
}

/// Since when too few subgroups have enough ready pods, of those that the pods that there are can have.
fn onset_of_parts(each: &[Count], parts: usize) -> Option<Nanos> {
    let can_have = each.iter().filter(|of| of.is_met()).count() >= parts;
    // where there are too few pods, those of the subgroups that have any count
    let counted = || each.iter().filter(|of| if can_have { of.is_met() } else { of.is_present() });
    let mut onsets: Vec<Nanos> = counted().filter_map(|of| of.onset).collect();
    onsets.sort_unstable();
    onsets.get(counted().count().saturating_sub(parts)).copied()
}

impl Memory {
    /// A pod of the run takes room, whether or not its group is known yet.
    fn note_scheduled(&mut self, pod: &PodObj) {
        self.scheduled = self.scheduled.into_iter().chain(pod.scheduled()).min();
    }

    /// Takes what is shown at this moment.
    fn lacking(
        &mut self,
        group: &GroupObj,
        members: &[(&PodObj, Readiness)],
        start: Option<Nanos>,
    ) -> Option<Lacking> {
        let is_active = members.iter().any(|(pod, _)| pod.is_active());
        let started = self.scheduled.into_iter().chain(start).min();
        let Minimums { all, each, parts } = minimums(group);
        let from = started.unwrap_or(Nanos::MIN);
        let of_subgroup = |(of, minimum): (u8, u32)| {
            let is_of = |(pod, _): &(&PodObj, Readiness)| subgroup(group.kind, pod) == of;
            let pods: Vec<_> = members.iter().copied().filter(is_of).collect();
            count(&pods, minimum, from)
        };
        let (all, each) = (count(members, all, from), each.into_iter().map(of_subgroup).collect::<Vec<_>>());
        let enough = all.is_enough() && each.iter().filter(|of| of.is_enough()).count() >= parts;
        let had = all.has_had() && each.iter().filter(|of| of.has_had()).count() >= parts;
        let since = all.onset.into_iter().chain(onset_of_parts(&each, parts)).min();
        if is_active {
            self.was_ready |= had;
            if enough {
                self.missed = 0;
            }
            if enough || (self.missed == 0 && since.is_none()) {
                self.since = None;
            }
        }
        let is_scheduled = members.iter().any(|(pod, _)| pod.scheduled().is_some());
        let Some(started) = started.filter(|_| is_active && is_scheduled) else {
            // one of which nothing is known to have been scheduled takes no room
            since?;
            return Some(Lacking { created: self.created?, run: None });
        };
        self.since = self.since.into_iter().chain(since).min();
        self.first_since = self.first_since.or(since);
        since?;
        let (since, first_since) = self.since.zip(self.first_since)?;
        let run = LackingRun { started, since, first_since, was_ready: self.was_ready };
        Some(Lacking { created: self.created?, run: Some(run) })
    }

    /// Counts from the oldest of these and those that there were.
    fn note_created(&mut self, members: &[&PodObj]) {
        let oldest = members.iter().map(|pod| pod.created * MILLI).min();
        self.created = oldest.map(|oldest| self.created.map_or(oldest, |known| known.min(oldest)));
    }
}

impl Naive {
    /// The live pods that name a group.
    pub fn members(&self, key: GroupKey) -> Vec<&PodObj> {
        self.pods.values().filter(|pod| pod.is_member(key)).collect()
    }

    fn active_of(&self, key: GroupKey) -> BTreeSet<u32> {
        let active = self.pods.values().filter(|pod| pod.is_active() && pod.is_member(key));
        active.map(|pod| pod.uid).collect()
    }

    /// A list of pods begins: a run goes on once a member is seen that was active before. It is as open as it was if
    /// the last list broke off before it showed one.
    pub(super) fn doubt_runs(&mut self) {
        let active = self.runs.keys().map(|key| (*key, self.active_of(*key)));
        for (key, active) in active.filter(|(_, active)| !active.is_empty()).collect::<Vec<_>>() {
            self.doubts.entry(key).or_insert(active);
        }
    }

    /// The number of groups whose run may have ended.
    pub fn in_doubt(&self) -> usize {
        self.doubts.len()
    }

    /// The number of those groups whose queue was fixed when another group took their name.
    pub fn fixed_in_doubt(&self) -> usize {
        let is_fixed = |key: &GroupKey| self.runs.get(key).is_some_and(|run| run.fixed.is_some());
        self.doubts.keys().filter(|key| is_fixed(key)).count()
    }

    /// Takes a pod as it is now for what it proves about a run in doubt.
    fn prove(&mut self, key: GroupKey, uid: u32) {
        let Some(mut proofs) = self.doubts.remove(&key) else { return };
        let is_active = self.pods.get(&uid).is_some_and(|pod| pod.is_active() && pod.is_member(key));
        let is_proven = proofs.remove(&uid) && is_active;
        if !is_proven && !self.active_of(key).is_empty() {
            self.doubts.insert(key, proofs);
        }
    }

    /// A pod is another than `before`: runs begin, go on and end.
    pub(super) fn follow_runs(&mut self, uid: u32, before: Option<&PodObj>) {
        let now = self.pods.get(&uid).cloned();
        let live = |pod: Option<&PodObj>| -> Vec<GroupKey> {
            pod.filter(|pod| pod.is_live()).into_iter().flat_map(PodObj::keys).collect()
        };
        self.wear(before, now.as_ref());
        for key in live(now.as_ref()) {
            let run = self.run_mut(key);
            if let Some(pod) = now.as_ref().filter(|pod| pod.is_active()) {
                run.oldest = run.oldest.into_iter().chain([pod.created * MILLI]).min();
                run.readiness.note_scheduled(pod);
            }
        }
        let (were, are) = (live(before), live(now.as_ref()));
        for key in were.iter().chain(&are) {
            self.prove(*key, uid);
        }
        for key in are.iter().filter(|key| !were.contains(key)) {
            let readiness = &mut self.run_mut(*key).readiness;
            readiness.missed = readiness.missed.saturating_sub(1);
        }
        for key in were.iter().filter(|key| !are.contains(key)) {
            let readiness = &mut self.run_mut(*key).readiness;
            let has_succeeded = now.as_ref().is_some_and(PodObj::has_succeeded);
            readiness.missed += u32::from(!has_succeeded);
        }
        for key in live(before) {
            if before.is_some_and(PodObj::is_active) && self.active_of(key).is_empty() {
                let stamp = self.groups.get(&key).and_then(stamp_of);
                self.run_mut(key).end(stamp);
            }
            self.forget_if_nothing(key);
        }
        for key in live(now.as_ref()).into_iter().chain(live(before)) {
            self.note_created(key);
        }
    }

    /// Notes that a pod shows the start of its run no more, if it did.
    fn wear(&mut self, before: Option<&PodObj>, now: Option<&PodObj>) {
        let has_subgroups =
            |(kind, ..): GroupKey| !matches!(kind, PodGroupKind::Coscheduling | PodGroupKind::Native);
        let shows = |pod: &PodObj| {
            let groups = pod.keys().map(|key| (key, pod.subgroup.filter(|_| has_subgroups(key))));
            (pod.scheduled(), pod.controller, groups.collect::<Vec<_>>())
        };
        let Some(before) = before.filter(|pod| pod.is_active()) else { return };
        if now.filter(|pod| pod.is_live()).map(shows) == Some(shows(before)) {
            return;
        }
        for key in before.keys() {
            let stamp = self.groups.get(&key).and_then(stamp_of);
            let run = self.run_mut(key);
            let start = run.shown.into_iter().chain(run.set_back).min();
            let was_first = before.scheduled() == run.readiness.scheduled;
            run.worn |= was_first || before.scheduled() <= start || Some(before.created * MILLI) <= stamp;
        }
    }

    fn note_created(&mut self, key: GroupKey) {
        let Some(mut run) = self.runs.remove(&key) else { return };
        run.readiness.note_created(&self.members(key));
        self.runs.insert(key, run);
    }

    /// After a list of all pods, of a run that no pod has proven to go on only what the present pods show counts.
    pub(super) fn resolve_doubts(&mut self) {
        let doubts = std::mem::take(&mut self.doubts);
        let keys: Vec<GroupKey> = self.runs.keys().copied().collect();
        for key in keys {
            let active = self.active_of(key);
            let is_open = doubts.contains_key(&key);
            if active.is_empty() {
                self.run_mut(key).readiness.created = None;
                self.note_created(key);
            }
            if is_open {
                let oldest =
                    active.iter().filter_map(|uid| self.pods.get(uid)).map(|pod| pod.created * MILLI).min();
                let mut readiness = Memory::default();
                for pod in active.iter().filter_map(|uid| self.pods.get(uid)) {
                    readiness.note_scheduled(pod);
                }
                let run = self.run_mut(key);
                (run.oldest, run.shown, run.set_back, run.readiness) = (oldest, None, None, readiness);
                (run.fixed, run.worn) = (None, false);
                self.note_created(key);
            }
        }
    }

    /// Returns the queue that the group of a running pod names.
    pub fn named_by(&self, key: GroupKey) -> Option<Named> {
        let fixed = self.runs.get(&key).and_then(|run| run.fixed);
        fixed.or_else(|| self.groups.get(&key).map(named))
    }

    pub(super) fn run_mut(&mut self, key: GroupKey) -> &mut Run {
        self.runs.entry(key).or_default()
    }

    fn forget_if_nothing(&mut self, key: GroupKey) {
        if !self.groups.contains_key(&key) && self.members(key).is_empty() {
            self.runs.remove(&key);
        }
    }

    /// A group as a client writes it that leaves its stamp alone.
    pub(super) fn echoed(&self, group: &GroupObj) -> GroupObj {
        let known = self.groups.get(&group.key()).filter(|known| group.echo && known.uid == group.uid);
        known.map_or_else(|| group.clone(), |known| GroupObj { stamp: known.stamp, ..group.clone() })
    }

    pub(super) fn put_group(&mut self, key: GroupKey, group: Option<GroupObj>) {
        let before = self.groups.get(&key).cloned();
        if before == group {
            return;
        }
        if before.as_ref().map(|group| group.uid) != group.as_ref().map(|group| group.uid) {
            let named = before.as_ref().map(named).filter(|_| !self.active_of(key).is_empty());
            let run = self.run_mut(key);
            (run.shown, run.set_back) = (None, None);
            run.fixed = run.fixed.or(named);
        }
        match group {
            Some(group) => drop(self.groups.insert(key, group)),
            None => drop(self.groups.remove(&key)),
        }
        self.forget_if_nothing(key);
    }

    pub fn observe_groups(&mut self) {
        self.gangs.clear();
        let keys: Vec<GroupKey> = self.groups.keys().copied().collect();
        for key in keys {
            self.observe_group(key);
        }
    }

    /// Notes what the pods of a group show.
    pub(super) fn observe_group(&mut self, key: GroupKey) {
        let (Some(group), mut run) = (self.groups.get(&key), self.runs.remove(&key).unwrap_or_default())
        else {
            return;
        };
        let members = self.members(key);
        let active: Vec<_> = members.iter().copied().filter(|pod| pod.is_active()).collect();
        run.shown = run.shown.into_iter().chain(shown_start(group, &active)).min();
        let start = run.of(group, &self.config).start().map(nanos);
        let seen = |pod: &PodObj| self.seen_members.get(&pod.uid).copied().unwrap_or(Readiness::NotYet);
        let seen: Vec<_> = members.iter().map(|pod| (*pod, seen(pod))).collect();
        let lacking = run.readiness.lacking(group, &seen, start);
        let members = members.iter().map(|pod| pod.uid).collect();
        self.gangs.insert(key, GangNow { start, lacking, members });
        self.runs.insert(key, run);
    }

    /// Returns the facts about the run of an existing group.
    pub fn run(&self, key: GroupKey) -> Option<(start::RunFacts, &Run)> {
        let (run, group) = (self.runs.get(&key)?, self.groups.get(&key)?);
        Some((run.of(group, &self.config), run))
    }
}

impl Run {
    fn of(&self, group: &GroupObj, config: &ConfigObj) -> start::RunFacts {
        let time = |at: Option<Nanos>| at.map(timestamp);
        start::RunFacts {
            stamp: time(stamp_of(group)),
            left: time(self.left),
            oldest: time(self.oldest),
            shown: time(self.shown.into_iter().chain(self.set_back).min()),
            first_scheduled: time(self.readiness.scheduled),
            formation: wire::formation(config),
        }
    }

    /// Sets back a start that only a stamp shows, and that no clock is ahead by.
    pub(super) fn set_back(&mut self, start: Nanos, now: Nanos) {
        if self.shown.is_none() && self.set_back.is_none() && start > now + 60 * SECOND {
            let second = now.div_euclid(SECOND) * SECOND;
            self.set_back = Some(self.readiness.scheduled.map_or(second, |first| first.max(second)));
        }
    }

    /// The earliest start that the pods prove, as far as a stamp is exact: none of them ends earlier by a stamp of the
    /// keeper's than its ceiling after this.
    pub fn proven(&self, config: &ConfigObj) -> Option<Nanos> {
        let formed = self.readiness.scheduled.map(|first| first + config.formation * 1_000);
        let start = self.shown.into_iter().chain(self.set_back).chain(formed).min()?;
        Some(start.div_euclid(SECOND) * SECOND)
    }

    fn end(&mut self, left: Option<Nanos>) {
        self.ended += 1;
        (self.left, self.oldest, self.shown, self.set_back, self.fixed) = (left, None, None, None, None);
        self.worn = false;
        self.readiness = Memory::default();
        self.stamp.written = 0;
    }
}

/// None, too, if it can't be read.
pub fn stamp_of(group: &GroupObj) -> Option<Nanos> {
    group.stamp.filter(|_| !group.unreadable).map(|at| at * MILLI)
}
