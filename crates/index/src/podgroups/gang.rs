//! A `PodGroup` and the pods that name it, with the facts about its present run that they show.
//!
//! `Gangs` keeps a `Gang` for each group, and calls `replace` for each change of a pod. A run ends
//! when no member is active any more. Facts of a run are remembered until then, since replaced pods
//! take their evidence with them.

use std::{collections::BTreeSet, iter};

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{
    gang::GangShape,
    ready::{NotReady, RunMemory},
    start::{LongestFormation, RunFacts},
};

use super::{group::GroupRecord, members::GroupMember, readiness::RunReadiness, stamps::Stamp};
use crate::{
    Uid,
    times::{Milliseconds, in_time},
    uid::UidMap,
};

/// The record of a group and its pods. A cluster may have one for each pod.
#[derive(Debug, Default)]
pub struct Gang {
    /// The group. None: there is no such group, though pods name it.
    pub group: Option<Box<GroupRecord>>,
    /// The group's pods that are neither finished nor terminating, in the order of their uids.
    members: Vec<Uid>,
    /// The number of active members: pods that are scheduled, and neither finished nor terminating.
    pub active: u32,
    /// The doubt about the run. None: the run goes on, or there is none.
    doubt: Option<Box<RunDoubt>>,
    /// The number of runs that have ended, by which runs are told apart.
    pub ended: u32,
    shown: ObservedRun,
    /// The stamp that the last run left behind. None: there is none, or the end wasn't seen.
    pub left: Option<Timestamp>,
    /// The start of the run, as last computed. None: the group doesn't run, or hasn't as many pods
    /// as it takes.
    pub start: Option<Timestamp>,
    /// The queue of the group that the present run began with, if that group was deleted or
    /// replaced since: to delete a `PodGroup` moves no running pod to another queue.
    fixed: Option<Box<GroupQueue<Option<ArcStr>>>>,
    /// The state that only the keeper needs. None: in the webhook.
    pub keeper: Option<Box<KeeperState>>,
}

/// The queue that a group names, and the creation of the group.
pub type GroupQueue<Q> = (Q, Option<Milliseconds>);

/// The facts about a run that its pods have shown. Some of the pods may have been replaced since,
/// without an end of the run.
#[derive(Debug, Default)]
struct ObservedRun {
    /// The earliest creation among the pods of the run.
    oldest: Option<Milliseconds>,
    /// The earliest scheduling among the pods of the run.
    first_scheduled: Option<Milliseconds>,
    /// The earliest start that pods have shown.
    start: Option<Timestamp>,
    /// True if the present pods may show an earlier start.
    grown: bool,
    /// True if the group's shape has changed since the start was last computed. A tenant may change
    /// it at any rate: until then, another change of the shape reads no pods.
    reshaped: bool,
    /// True if a pod has left, or shows another start, that was there at the start or when that was
    /// stamped, or was scheduled first. The present pods may show a later start.
    worn: bool,
}

/// A list of pods has begun, and none of the members that were active before it has been seen since:
/// the run may have ended.
#[derive(Debug, Default)]
struct RunDoubt {
    /// The members that became active since the list began. They may belong to another run, however
    /// often they are seen.
    joined: BTreeSet<Uid>,
}

/// The state of a group that only the keeper needs.
#[derive(Debug, Default)]
pub struct KeeperState {
    pub readiness: RunReadiness,
    pub stamp: Stamp,
}

impl ObservedRun {
    fn note_active(&mut self, pod: &GroupMember) {
        self.oldest = Milliseconds::earliest(self.oldest, pod.created);
        self.first_scheduled = Milliseconds::earliest(self.first_scheduled, pod.scheduled);
        // too few pods were scheduled before the start, and a later pod makes them no more
        self.grown |= pod.scheduled().is_some_and(|at| self.start.is_none_or(|start| at < start));
    }
}

impl Gang {
    pub fn new(for_keeper: bool) -> Self {
        Self { keeper: for_keeper.then(Box::default), ..Self::default() }
    }

    pub fn members(&self) -> &[Uid] {
        &self.members
    }

    /// Returns the group's lack of ready pods, as last computed. None: enough are ready.
    pub fn lacking(&self) -> Option<NotReady> {
        self.keeper.as_ref()?.readiness.lacking.as_deref().copied()
    }

    /// True if there is neither a group nor a pod that names it.
    pub fn is_nothing(&self) -> bool {
        self.group.is_none() && self.members.is_empty()
    }

    /// Replaces the record of a pod. None for `old`: the pod joins. None for `new`: the pod leaves.
    /// `others` are the members beside this pod.
    pub fn replace(
        &mut self,
        uid: Uid,
        old: Option<&GroupMember>,
        new: Option<&GroupMember>,
        has_succeeded: bool,
        others: &UidMap<Box<GroupMember>>,
    ) {
        self.list(uid, new.is_some());
        let was_active = self.active > 0;
        let number = |member: Option<&GroupMember>| u32::from(member.is_some_and(GroupMember::is_active));
        self.active = self.active.saturating_sub(number(old)).saturating_add(number(new));
        match (number(old), number(new)) {
            (1.., 1..) => _ = self.go_on(uid),
            (0, 1..) => self.doubt.iter_mut().for_each(|doubt| _ = doubt.joined.insert(uid)),
            (1.., 0) => self.doubt.iter_mut().for_each(|doubt| _ = doubt.joined.remove(&uid)),
            (0, 0) => {}
        }
        let stamp = self.group.as_ref().and_then(|group| group.stamp);
        self.shown.worn |= old.is_some_and(|old| {
            let was_first = old.scheduled == self.shown.first_scheduled;
            let was_there = old.scheduled() <= self.shown.start || Some(old.created()) <= stamp;
            !old.shows_as(new) && (was_first || was_there)
        });
        // a pod that has only got ready, or has lost that, shows no other start
        let is_noted = |new: &GroupMember| {
            old.is_some_and(|old| old.is_active() && old.created == new.created && old.shows_as(Some(new)))
        };
        if let Some(new) = new.filter(|new| new.is_active() && !is_noted(new)) {
            self.shown.note_active(new);
        }
        if let Some(keeper) = &mut self.keeper {
            match (old, new) {
                (None, Some(_)) => keeper.readiness.memory.join(),
                (Some(_), None) => keeper.readiness.memory.leave(has_succeeded),
                _ => {}
            }
        }
        if self.active == 0 && was_active {
            self.end();
            self.count_from_creation(others);
        }
        if let Some(keeper) = &mut self.keeper {
            match new {
                Some(new) => keeper.readiness.note_created(new),
                None if self.members.is_empty() => _ = keeper.readiness.count_from(iter::empty()),
                None => {}
            }
            if let Some(group) = &self.group {
                keeper.readiness.replace(&group.shape, old, new);
            }
        }
        self.remember();
    }

    /// Adds a pod to the members, or removes it, in the order of uids.
    fn list(&mut self, uid: Uid, stays: bool) {
        match (self.members.binary_search(&uid), stays) {
            (Ok(place), false) => {
                self.members.remove(place);
            }
            (Err(place), true) => {
                if self.members.is_empty() {
                    // most groups of some schedulers never have more than one pod
                    self.members.reserve_exact(1);
                }
                self.members.insert(place, uid);
            }
            (Ok(_), true) | (Err(_), false) => {}
        }
    }

    /// Returns the queue of the group's pods, in the family of the group's kind.
    pub fn queue(&self) -> Option<&ArcStr> {
        let named = || self.group.as_ref().and_then(|group| group.queue.as_ref());
        self.fixed.as_deref().map_or_else(named, |(queue, _)| queue.as_ref())
    }

    /// Returns the creation of the group that names this queue. None: not known.
    pub fn made(&self) -> Option<Milliseconds> {
        self.fixed.as_deref().map_or_else(|| self.group.as_ref()?.created, |(_, made)| *made)
    }

    /// True if the group that the present run began with was deleted or replaced.
    pub const fn has_lost_group(&self) -> bool {
        self.fixed.is_some()
    }

    /// True if the start may be known only because earlier pods have shown it: a later keeper won't
    /// know it.
    pub const fn is_start_remembered(&self) -> bool {
        self.shown.worn
    }

    /// Ends the run: forgets the facts about it, and remembers the stamp that it leaves behind.
    fn end(&mut self) {
        self.doubt = None;
        self.fixed = None;
        self.ended = self.ended.wrapping_add(1);
        self.left = self.group.as_ref().and_then(|group| group.stamp);
        self.shown = ObservedRun::default();
        if let Some(keeper) = &mut self.keeper {
            keeper.readiness.memory = RunMemory::default();
            keeper.stamp.written = 0;
        }
    }

    /// Counts from the creation of the present pods alone. Returns true if that is another time
    /// than before.
    fn count_from_creation(&mut self, members: &UidMap<Box<GroupMember>>) -> bool {
        let Some(keeper) = &mut self.keeper else { return false };
        keeper.readiness.count_from(live(&self.members, members))
    }

    /// Remembers if the run is ready, or was: pods may show that only once.
    fn remember(&mut self) {
        if let (Some(keeper), Some(group), 1..) = (&mut self.keeper, &self.group, self.active) {
            keeper.readiness.remember(&group.shape);
        }
    }

    /// Begins a list of pods: an active run is in doubt until an active member is seen again. A
    /// doubt from a list that broke off stays as it is.
    pub fn begin_list(&mut self) {
        if self.active > 0 {
            self.doubt.get_or_insert_with(Box::default);
        }
    }

    /// Notes that a member that was active still is. So the run goes on, unless the member joined
    /// while the run was in doubt. Returns true if this ends the doubt.
    pub fn go_on(&mut self, uid: Uid) -> bool {
        self.doubt.take_if(|doubt| !doubt.joined.contains(&uid)).is_some()
    }

    /// True if the run may have ended: a list of pods has shown no member that was active before.
    pub const fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Ends a list of pods. For a run in doubt, only the facts that present pods show count.
    /// Returns true if the facts may have changed.
    pub fn end_list(&mut self, members: &UidMap<Box<GroupMember>>) -> bool {
        // the waiting pods may all have been replaced by now
        let counts_otherwise =
            (self.doubt.is_some() || self.active == 0) && self.count_from_creation(members);
        if self.doubt.take().is_none() {
            return counts_otherwise;
        }
        self.fixed = None;
        self.shown = ObservedRun::default();
        for pod in live(&self.members, members).filter(|pod| pod.is_active()) {
            self.shown.note_active(pod);
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.readiness.memory = RunMemory::default();
        }
        self.remember();
        true
    }

    /// Sets another version of the group, or another group of its name. None for `group`: it is
    /// gone.
    pub fn put(&mut self, group: Option<Box<GroupRecord>>, members: &UidMap<Box<GroupMember>>) {
        let (known, new) = (self.group.as_deref(), group.as_deref());
        let is_same = known.zip(new).is_some_and(|(known, new)| known.uid == new.uid);
        let is_reshaped = new.is_some_and(|new| known.is_none_or(|known| known.shape != new.shape));
        let is_first = is_reshaped && !self.shown.reshaped;
        if is_same && is_first {
            // the evidence under the shape that was last looked at
            self.show(members);
        }
        if self.active > 0 && self.fixed.is_none() && !is_same {
            self.fixed = self.group.as_deref().map(|known| Box::new((known.queue.clone(), known.created)));
        }
        self.group = group;
        if !is_same {
            // the shape of another group says nothing about this one
            (self.shown.start, self.shown.grown) = (None, true);
        }
        if is_reshaped {
            (self.shown.grown, self.shown.reshaped) = (true, true);
            if let Some(keeper) = &mut self.keeper {
                keeper.readiness.is_stale = true;
            }
        }
        if is_first {
            self.recount(members);
        }
    }

    /// Counts the ready pods again if the counts are those of another shape.
    fn recount(&mut self, members: &UidMap<Box<GroupMember>>) {
        if let (Some(keeper), Some(group)) = (&mut self.keeper, &self.group)
            && keeper.readiness.is_stale
        {
            keeper.readiness.count(&group.shape, live(&self.members, members));
            self.remember();
        }
    }

    /// Returns the minimums by which the members may show an earlier start than is known. None: the
    /// members show no other start, and needn't be read.
    pub fn unshown(&self) -> Option<&GangShape> {
        let shape = &self.group.as_ref().filter(|_| self.shown.grown)?.shape;
        (self.active >= shape.least()).then_some(shape)
    }

    /// Records the start that the pods show. Also called before a pod leaves, because its evidence
    /// is lost with it.
    pub fn show(&mut self, members: &UidMap<Box<GroupMember>>) {
        let Some(shape) = self.unshown() else { return };
        let scheduled = live(&self.members, members)
            .filter_map(|member| Some((member.number(shape), member.scheduled()?)));
        let start = shape.shown_start(scheduled);
        self.shown.start = self.shown.start.into_iter().chain(start).min();
        self.shown.grown = false;
    }

    /// Computes the start and the lack of ready pods. Returns true if either has changed.
    pub fn compute(&mut self, members: &UidMap<Box<GroupMember>>, formation: LongestFormation) -> bool {
        self.show(members);
        self.shown.reshaped = false;
        self.recount(members);
        let start = self.run(formation).and_then(|run| run.start());
        let started_elsewhen = std::mem::replace(&mut self.start, start) != start;
        let shown = self.shown_lacking(members);
        let lacks_otherwise = self.keeper.as_mut().is_some_and(|keeper| keeper.readiness.recall(shown));
        started_elsewhen || lacks_otherwise
    }

    /// Returns the lack of ready pods as the pods alone show it, without the memory of the run.
    fn shown_lacking(&self, members: &UidMap<Box<GroupMember>>) -> Option<NotReady> {
        let shape = &self.group.as_ref()?.shape;
        if self.keeper.as_ref()?.readiness.is_complete(shape) {
            return None;
        }
        // pods that were replaced took room before the present ones
        let start = in_time(self.shown.first_scheduled).into_iter().chain(self.start).min();
        let pods: Vec<_> = live(&self.members, members).map(|pod| pod.live_pod(pod.number(shape))).collect();
        NotReady::of(shape, &pods, start)
    }

    /// Sets back a start that only the stamp shows, and that is too far ahead of the clock. Returns
    /// true if there was one.
    pub fn set_back(&mut self, formation: LongestFormation, now: Timestamp) -> bool {
        let to = self.run(formation).and_then(|run| run.set_back(now));
        self.shown.start = self.shown.start.or(to);
        to.is_some()
    }

    /// Returns the facts about the run, which may take at most `formation` to form. None: there is
    /// no such group.
    pub fn run(&self, formation: LongestFormation) -> Option<RunFacts> {
        let stamp = self.group.as_ref()?.stamp;
        let ObservedRun { oldest, first_scheduled, start: shown, .. } = self.shown;
        let (oldest, first_scheduled) = (in_time(oldest), in_time(first_scheduled));
        Some(RunFacts { stamp, left: self.left, oldest, shown, first_scheduled, formation })
    }
}

fn live<'m>(uids: &[Uid], members: &'m UidMap<Box<GroupMember>>) -> impl Iterator<Item = &'m GroupMember> {
    uids.iter().filter_map(|uid| members.get(uid)).map(AsRef::as_ref)
}
