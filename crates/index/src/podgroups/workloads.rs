//! Read access to `PodGroup`s: each as a workload, and the facts that they add to their pods.

use std::{num::NonZeroU64, ptr, sync::Arc};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    gang::{Crews, Headcount, Shape},
    ready::NotReady,
};
use tenure_types::podgroup::PodGroupKind;

use super::{
    Gangs,
    gang::Gang,
    group::{GroupKey, GroupRecord},
    members::Membership,
};
use crate::{Uid, times::Milliseconds};

/// A `PodGroup` that there is, with what its pods show.
#[derive(Clone, Copy, Debug)]
pub struct GroupWorkload<'g> {
    /// Its kind.
    pub kind: PodGroupKind,
    /// Its namespace.
    pub namespace: &'g ArcStr,
    /// Its name.
    pub name: &'g ArcStr,
    /// When it started; none if it doesn't run, or hasn't had as many pods as it takes.
    pub start: Option<Timestamp>,
    /// As it is stamped, if that can be read.
    pub stamp: Option<Timestamp>,
    /// The queue that it names, in the family of its kind.
    pub queue: Option<&'g ArcStr>,
    /// The pods that it takes to run, in all and of each subgroup.
    pub shape: &'g Shape,
    /// Pods that name it, and are neither finished nor terminating.
    pub members: &'g [Uid],
}

/// The facts about a pod that its groups add.
#[derive(Debug, Default)]
pub struct OfGroups {
    pub runai: Option<GroupQueue>,
    pub tensorstack: Option<GroupQueue>,
    /// The least of the workload's own ceilings.
    pub own: Option<SignedDuration>,
    /// There is one that counts for its workload.
    pub is_grouped: bool,
    /// Its start.
    pub start: Option<Timestamp>,
    /// Its lack of ready pods; none if it has enough.
    pub lacking: Option<NotReady>,
}

/// The queue that a group names.
#[derive(Debug)]
pub struct GroupQueue {
    pub name: ArcStr,
    /// When the group was made.
    pub made: Option<Milliseconds>,
}

/// A `PodGroup` that there is, whose pods can be counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'g> {
    gangs: &'g Gangs,
    gang: &'g Gang,
    group: &'g GroupRecord,
}

/// The identity of a group until the index changes: cheaper to look up than its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GangId(*const Gang);

impl<'g> Counted<'g> {
    pub fn members(&self) -> &'g [Uid] {
        self.gang.members()
    }

    pub const fn id(&self) -> GangId {
        GangId(ptr::from_ref(self.gang))
    }

    pub const fn start(&self) -> Option<Timestamp> {
        self.gang.start
    }

    pub const fn shape(&self) -> &'g Shape {
        &self.group.shape
    }

    /// Counts its pods.
    pub fn count(&self) -> Headcount {
        let shape = self.shape();
        if shape.leaves() == 0 {
            let live = u32::try_from(self.gang.members().len()).unwrap_or(u32::MAX);
            let of_none = |total| shape.counts(total, |_| 0);
            return Headcount::new(shape, &of_none(live), of_none(self.gang.active));
        }
        shape.tally(self.tallied().map(|(_, number, runs)| (number, runs)))
    }

    /// If it is elastic, sorts its pods by controller: those of one may [count alone](Shape::crews).
    pub fn crews(&self, all: &Headcount) -> Option<Crews<Option<NonZeroU64>>> {
        all.is_elastic().then(|| self.shape().crews(self.tallied()))
    }

    /// Returns for each pod its controller, the number of its subgroup, and true if it runs.
    fn tallied(&self) -> impl Iterator<Item = (Option<NonZeroU64>, usize, bool)> {
        let members = self.gang.members().iter().filter_map(|uid| self.gangs.members.get(uid));
        members.map(|member| {
            let controller = member.of.first().and_then(|of| of.controller);
            (controller, member.number(self.shape()), member.is_active())
        })
    }

    /// The number of the subgroup of a member.
    pub fn number(&self, of: &Membership) -> usize {
        self.group.shape.number(of.subgroup.as_deref())
    }
}

impl Gangs {
    /// The groups that a pod names.
    pub fn memberships(&self, uid: Uid) -> &[Membership] {
        self.members.get(&uid).map_or(&[], |member| &member.of)
    }

    /// The same, to be kept for as long as nothing is heard of the pod.
    pub fn shared_memberships(&self, uid: Uid) -> Option<Arc<[Membership]>> {
        self.members.get(&uid).map(|member| Arc::clone(&member.of))
    }

    /// Returns the facts that the groups of a pod add to it.
    pub fn of(&self, memberships: &[Membership]) -> OfGroups {
        let mut of = OfGroups::default();
        for (_, gang, group) in self.existing(memberships).rev() {
            // those that come first count
            (of.is_grouped, of.start, of.lacking) = (true, gang.start, gang.lacking());
            of.own = of.own.into_iter().chain(group.own).min();
        }
        let queue = |kind| {
            let (name, made) = self.named(memberships, kind)?;
            Some(GroupQueue { name: name.clone(), made })
        };
        (of.runai, of.tensorstack) = (queue(PodGroupKind::Runai), queue(PodGroupKind::Tensorstack));
        of
    }

    fn existing<'g, 'm>(
        &'g self,
        memberships: &'m [Membership],
    ) -> impl DoubleEndedIterator<Item = (&'g GroupKey, &'g Gang, &'g GroupRecord)> + use<'g, 'm> {
        memberships.iter().filter_map(|Membership { group: key, .. }| {
            let (key, gang) = self.by_key.get_key_value(key)?;
            Some((key, gang.as_ref(), gang.group.as_deref()?))
        })
    }

    /// The group of a pod that notes this ceiling.
    pub fn with_own(
        &self,
        memberships: &[Membership],
        own: SignedDuration,
    ) -> Option<(&GroupKey, &GroupRecord)> {
        let mut existing = self.existing(memberships).map(|(key, _, group)| (key, group));
        existing.find(|(_, group)| group.own == Some(own))
    }

    /// Which group counts for the workload of a pod.
    pub fn existing_key(&self, memberships: &[Membership]) -> Option<&GroupKey> {
        self.existing(memberships).next().map(|(key, ..)| key)
    }

    /// True if a pod names a group that is neither finished nor terminating.
    pub fn has_members(&self, key: &GroupKey) -> bool {
        self.by_key.get(key).is_some_and(|gang| !gang.members().is_empty())
    }

    /// The group that counts for the workload of a pod.
    pub fn workload(&self, memberships: &[Membership]) -> Option<GroupWorkload<'_>> {
        self.existing(memberships).next().map(|(key, gang, group)| workload(key, gang, group))
    }

    /// The same, with what there is of its subgroups, and as what the pod is in it.
    pub fn counted<'m>(&self, memberships: &'m [Membership]) -> Option<(Counted<'_>, &'m Membership)> {
        let (key, gang, group) = self.existing(memberships).next()?;
        let of = memberships.iter().find(|of| of.group == *key)?;
        Some((Counted { gangs: self, gang, group }, of))
    }

    /// The queue of the run.ai family that the groups name.
    pub fn queue(&self, memberships: &[Membership]) -> Option<&str> {
        self.queue_and_making(memberships).map(|(queue, _)| queue)
    }

    /// The same, and when the group was made.
    pub fn queue_and_making(&self, memberships: &[Membership]) -> Option<(&str, Option<Milliseconds>)> {
        self.named(memberships, PodGroupKind::Runai).map(|(queue, made)| (queue.as_str(), made))
    }

    /// The queue that a group of a kind names, even if it is gone while its pods run, and when it was made.
    fn named(
        &self,
        memberships: &[Membership],
        kind: PodGroupKind,
    ) -> Option<(&ArcStr, Option<Milliseconds>)> {
        let of = memberships.iter().find(|of| of.group.kind == kind)?;
        let gang = self.by_key.get(&of.group)?;
        Some((gang.queue()?, gang.made()))
    }

    /// The queue that a group of the run.ai family names.
    pub fn queue_of_group(&self, namespace: &str, name: &str) -> Option<&str> {
        let key = GroupKey { kind: PodGroupKind::Runai, namespace: namespace.into(), name: name.into() };
        self.by_key.get(&key)?.queue().map(ArcStr::as_str)
    }

    /// All groups that there are.
    pub fn workloads(&self) -> impl Iterator<Item = GroupWorkload<'_>> {
        self.by_key.iter().filter_map(|(key, gang)| Some(workload(key, gang, gang.group.as_deref()?)))
    }
}

fn workload<'g>(key: &'g GroupKey, gang: &'g Gang, group: &'g GroupRecord) -> GroupWorkload<'g> {
    GroupWorkload {
        kind: key.kind,
        namespace: &key.namespace,
        name: &key.name,
        start: gang.start,
        stamp: group.stamp,
        queue: gang.queue(),
        shape: &group.shape,
        members: gang.members(),
    }
}
