//! A `PodGroup` and the pods that name it: what they show of its present run.

use jiff::Timestamp;
use tenure_policy::{ready::Lacking, start::Run};
use tenure_types::podgroup::PodGroupKind;

use super::{group::PodGroup, members::Member, readiness::RunReadiness, stamps::Stamp};
use crate::{
    Uid,
    times::{Milliseconds, in_time},
    uid::UidMap,
};

/// There may be one for each pod.
#[derive(Debug, Default)]
pub struct Gang {
    /// None if there is no such group, though pods name it.
    pub group: Option<Box<PodGroup>>,
    /// In order.
    members: Vec<Uid>,
    /// How many of them are active.
    active: u32,
    /// It ran when the last list began, and no member was seen since that was active then: the run may have ended.
    in_doubt: bool,
    /// How many runs have ended.
    pub ended: u32,
    /// When the oldest of all pods was created that were active in this run: pods may be replaced without its end.
    oldest: Option<Milliseconds>,
    /// The earliest start that the pods of this run have shown.
    shown: Option<Timestamp>,
    /// Its pods may show an earlier one.
    grown: bool,
    /// The stamp that the last run left behind.
    left: Option<Timestamp>,
    /// When it started, as it was last computed.
    pub start: Option<Timestamp>,
    /// None if it isn't asked for.
    pub readiness: Option<Box<RunReadiness>>,
    /// It is to be computed anew.
    pub changed: bool,
    pub stamp: Stamp,
}

impl Gang {
    /// A group of which nothing is known yet.
    pub fn new(reads_readiness: bool) -> Self {
        Self { readiness: reads_readiness.then(Box::default), ..Self::default() }
    }

    pub fn members(&self) -> &[Uid] {
        &self.members
    }

    /// Whether too few of its pods are ready, as it was last computed.
    pub fn lacking(&self) -> Option<Lacking> {
        self.readiness.as_ref().and_then(|readiness| readiness.lacking()).copied()
    }

    /// How many of them are active.
    pub const fn active(&self) -> u32 {
        self.active
    }

    /// Nothing is known of it.
    pub fn is_nothing(&self) -> bool {
        self.group.is_none() && self.members.is_empty()
    }

    /// Takes a record of a pod in place of another one of it: none before it joins, and after it has left.
    pub fn replace(&mut self, uid: Uid, kind: PodGroupKind, old: Option<&Member>, new: Option<&Member>) {
        self.list(uid, new.is_some());
        let was_active = self.active > 0;
        let number = |member: Option<&Member>| u32::from(member.is_some_and(Member::is_active));
        self.active = self.active.saturating_sub(number(old)).saturating_add(number(new));
        self.in_doubt &= number(old) == 0 || number(new) == 0;
        if let Some(new) = new.filter(|new| new.is_active()) {
            self.oldest = Milliseconds::earliest(self.oldest, new.created);
            self.grown = true;
        }
        if self.active == 0 && was_active {
            self.end();
        }
        self.read(kind, old, new);
    }

    /// Has the readiness of the run follow a pod.
    fn read(&mut self, kind: PodGroupKind, old: Option<&Member>, new: Option<&Member>) {
        let Some(readiness) = &mut self.readiness else { return };
        if let Some(new) = new.filter(|new| new.is_active()) {
            readiness.note_scheduled(new);
        }
        if let Some(group) = &self.group {
            readiness.replace(&group.shape, kind, old, new);
            if self.active > 0 {
                readiness.remember(&group.shape);
            }
        }
    }

    fn list(&mut self, uid: Uid, stays: bool) {
        match (self.members.binary_search(&uid), stays) {
            (Ok(place), false) => {
                self.members.remove(place);
            }
            (Err(place), true) => {
                if self.members.is_empty() {
                    // most groups of some schedulers have one pod for ever
                    self.members.reserve_exact(1);
                }
                self.members.insert(place, uid);
            }
            (Ok(_), true) | (Err(_), false) => {}
        }
    }

    fn end(&mut self) {
        self.in_doubt = false;
        self.ended = self.ended.wrapping_add(1);
        self.left = self.group.as_ref().and_then(|group| group.stamp);
        (self.oldest, self.shown) = (None, None);
        if let Some(readiness) = &mut self.readiness {
            readiness.begin(std::iter::empty());
        }
        self.stamp.end();
    }

    /// A stamp of an earlier run was written after that had ended.
    pub fn left_late(&mut self, stamp: Timestamp) {
        self.left = Some(stamp);
    }

    /// A list of all pods begins.
    pub const fn begin_list(&mut self) {
        self.in_doubt = self.active > 0;
    }

    /// A member that was active is seen to be so again.
    pub const fn go_on(&mut self) {
        self.in_doubt = false;
    }

    /// Ends a list: of a run that may have ended before it, only what present pods show counts. Says whether that is so.
    pub fn doubt(&mut self, members: &UidMap<Box<Member>>) -> bool {
        if !std::mem::take(&mut self.in_doubt) {
            return false;
        }
        let active: Vec<&Member> = self.live(members).filter(|member| member.is_active()).collect();
        let oldest = active.iter().map(|member| member.created).fold(None, Milliseconds::earliest);
        if let Some(readiness) = &mut self.readiness {
            readiness.begin(active.into_iter());
            if let Some(group) = &self.group {
                readiness.remember(&group.shape);
            }
        }
        (self.oldest, self.shown, self.grown) = (oldest, None, true);
        true
    }

    /// Takes another version of the group, or another one of its name, or that there is none.
    pub fn put(&mut self, kind: PodGroupKind, group: Option<Box<PodGroup>>, members: &UidMap<Box<Member>>) {
        self.show(kind, members);
        let uid = |group: &Option<Box<PodGroup>>| group.as_ref().map(|group| group.uid.clone());
        if uid(&self.group) != uid(&group) {
            // what another one takes to run says nothing of this one
            (self.shown, self.grown) = (None, true);
        }
        let shape = |group: &Option<Box<PodGroup>>| group.as_ref().map(|group| group.shape.clone());
        let same_shape = shape(&self.group) == shape(&group);
        self.group = group;
        if let Some(group) = self.group.as_ref().filter(|_| !same_shape) {
            self.grown = true;
            if let Some(readiness) = &mut self.readiness {
                let live = self.members.iter().filter_map(|uid| members.get(uid)).map(AsRef::as_ref);
                readiness.count(&group.shape, kind, live);
                if self.active > 0 {
                    readiness.remember(&group.shape);
                }
            }
        }
    }

    fn live<'m>(&self, members: &'m UidMap<Box<Member>>) -> impl Iterator<Item = &'m Member> {
        self.members.iter().filter_map(|uid| members.get(uid)).map(AsRef::as_ref)
    }

    /// Notes when its pods show that it started: before one goes, too, since it takes along what it shows.
    pub fn show(&mut self, kind: PodGroupKind, members: &UidMap<Box<Member>>) {
        let Some(group) = self.group.as_ref().filter(|_| self.grown) else { return };
        let active = self.live(members).filter(|member| member.is_active());
        let scheduled = active
            .filter_map(|member| Some((group.shape.number(member.subgroup(kind)), member.scheduled()?)));
        let shown = group.shape.shown_start(scheduled);
        self.shown = self.shown.into_iter().chain(shown).min();
        self.grown = false;
    }

    /// Computes the start, and whether too few are ready; says whether either is another than before.
    pub fn compute(&mut self, kind: PodGroupKind, members: &UidMap<Box<Member>>) -> bool {
        self.changed = false;
        self.show(kind, members);
        let start = self.run().and_then(|run| run.start());
        let started_elsewhen = std::mem::replace(&mut self.start, start) != start;
        let Some(mut readiness) = self.readiness.take() else { return started_elsewhen };
        let shape = self.group.as_ref().map(|group| &group.shape).filter(|_| self.active > 0);
        let is_lacking = shape.filter(|shape| !readiness.are_enough(shape));
        let standing = is_lacking.into_iter().flat_map(|shape| {
            self.live(members).map(|member| member.standing(shape.number(member.subgroup(kind))))
        });
        let moved = readiness.compute(shape, start, &standing.collect::<Vec<_>>());
        self.readiness = Some(readiness);
        started_elsewhen || moved
    }

    /// Whatever is written on it or shown: from now on it has started by `now` at the latest. Says whether it seemed not to
    /// have.
    pub fn start_by(&mut self, now: Timestamp) -> bool {
        let is_ahead = self.start.is_some_and(|start| start > now);
        if is_ahead {
            self.shown = self.shown.into_iter().chain([now]).min();
        }
        is_ahead
    }

    /// What is known of its run; none if there is no such group.
    pub fn run(&self) -> Option<Run> {
        let stamp = self.group.as_ref()?.stamp;
        Some(Run { stamp, left: self.left, oldest: in_time(self.oldest), shown: self.shown })
    }
}
