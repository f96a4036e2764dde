//! A `PodGroup` and the pods that name it: what they show of its present run.

use jiff::Timestamp;
use tenure_policy::{ready::Lacking, start::Run};
use tenure_types::podgroup::PodGroupKind;

use crate::{Uid, groups::PodGroup, members::Member, stamps::Stamp, uid::UidMap};

/// There may be one for each pod.
#[derive(Debug, Default)]
pub struct Gang {
    /// None if there is no such group, though pods name it.
    pub group: Option<Box<PodGroup>>,
    /// In order.
    members: Vec<Uid>,
    /// How many of them are active.
    active: u32,
    /// How many runs have ended.
    pub ended: u32,
    /// When the oldest of all pods was created that were active in this run: pods may be replaced without its end.
    oldest: Option<Timestamp>,
    /// The earliest start that the pods of this run have shown.
    shown: Option<Timestamp>,
    /// The stamp that the last run left behind.
    left: Option<Timestamp>,
    /// When it started, as it was last computed.
    pub start: Option<Timestamp>,
    /// Whether too few of its pods are ready, as it was last computed.
    pub lacking: Option<Lacking>,
    /// It is to be computed anew.
    pub changed: bool,
    pub stamp: Stamp,
}

impl Gang {
    pub fn members(&self) -> &[Uid] {
        &self.members
    }

    /// How many of them are active.
    pub const fn active(&self) -> u32 {
        self.active
    }

    /// Nothing is known of it.
    pub fn is_nothing(&self) -> bool {
        self.group.is_none() && self.members.is_empty()
    }

    /// Takes a pod, or another record of one. Its old record has to leave afterwards, and not before: else the run
    /// would end in between.
    pub fn join(&mut self, uid: Uid, member: &Member) {
        if let Err(place) = self.members.binary_search(&uid) {
            if self.members.is_empty() {
                // most groups of some schedulers have one pod for ever
                self.members.reserve_exact(1);
            }
            self.members.insert(place, uid);
        }
        if member.active {
            self.active = self.active.saturating_add(1);
            self.oldest = self.oldest.into_iter().chain([member.created()]).min();
        }
    }

    /// Drops a record of a pod, and the pod itself unless it `stays`.
    pub fn leave(&mut self, uid: Uid, member: &Member, stays: bool) {
        if let Ok(place) = self.members.binary_search(&uid)
            && !stays
        {
            self.members.remove(place);
        }
        if member.active {
            self.active = self.active.saturating_sub(1);
            if self.active == 0 {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        self.ended = self.ended.wrapping_add(1);
        self.left = self.group.as_ref().and_then(|group| group.stamp);
        (self.oldest, self.shown) = (None, None);
        self.stamp.end();
    }

    /// A stamp of an earlier run was written after that had ended.
    pub fn left_late(&mut self, stamp: Timestamp) {
        self.left = Some(stamp);
    }

    /// After a time in which nobody looked, pods are gone, and the run may have ended in between: only what those show
    /// that are left counts.
    pub fn doubt(&mut self, members: &UidMap<Box<Member>>) {
        let active = self.live(members).filter(|member| member.active);
        (self.oldest, self.shown) = (active.map(Member::created).min(), None);
    }

    /// Takes another version of the group, or another one of its name, or that there is none.
    pub fn put(&mut self, group: Option<Box<PodGroup>>) {
        let uid = |group: &Option<Box<PodGroup>>| group.as_ref().map(|group| group.uid.clone());
        if uid(&self.group) != uid(&group) {
            // what another one takes to run says nothing of this one
            self.shown = None;
        }
        self.group = group;
    }

    fn live<'m>(&self, members: &'m UidMap<Box<Member>>) -> impl Iterator<Item = &'m Member> {
        self.members.iter().filter_map(|uid| members.get(uid)).map(AsRef::as_ref)
    }

    /// Computes the start, and whether too few are ready; says whether either is another than before.
    pub fn compute(&mut self, kind: PodGroupKind, members: &UidMap<Box<Member>>) -> bool {
        self.changed = false;
        if let Some(group) = &self.group {
            let active = self.live(members).filter(|member| member.active);
            let scheduled = active
                .filter_map(|member| Some((group.shape.number(member.subgroup(kind)), member.scheduled()?)));
            let shown = group.shape.shown_start(scheduled);
            self.shown = self.shown.into_iter().chain(shown).min();
        }
        let start = self.run().and_then(|run| run.start());
        let lacking = self.group.as_ref().and_then(|group| {
            let of_each =
                self.live(members).map(|member| member.standing(group.shape.number(member.subgroup(kind))));
            Lacking::of(&group.shape, &of_each.collect::<Vec<_>>(), start)
        });
        let moved = (self.start, self.lacking) != (start, lacking);
        (self.start, self.lacking) = (start, lacking);
        moved
    }

    /// Whatever is written on it or shown: from now on it has started by `now` at the latest. Says whether it seemed not to
    /// have.
    pub fn start_by(&mut self, now: Timestamp) -> bool {
        let is_ahead = self.start.is_some_and(|start| start > now);
        if is_ahead {
            self.shown = Some(now);
        }
        is_ahead
    }

    /// What is known of its run; none if there is no such group.
    pub fn run(&self) -> Option<Run> {
        let stamp = self.group.as_ref()?.stamp;
        Some(Run { stamp, left: self.left, oldest: self.oldest, shown: self.shown })
    }
}
