//! Read access to `PodGroup`s: each as a workload, and the facts that they add to their pods.
//!
//! The parts of the index for ceilings and for placement use this, and the plugin. Starts are as
//! last computed: a caller that needs present ones computes them first.

use std::{ptr, sync::Arc};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    expiry::PerFamily,
    gang::{CountedPods, CrewMember, Crews, GangShape, Headcount},
    pod_group::group_counts,
    ready::NotReady,
};
use tenure_types::podgroup::PodGroupKind;

use super::{
    Gangs,
    gang::{Gang, GroupQueue},
    group::{GroupKey, GroupRecord},
    members::Membership,
};
use crate::{Uid, owners::Controller, times::Milliseconds};

/// A `PodGroup` that exists, with the facts that its pods show.
#[derive(Clone, Copy, Debug)]
pub struct GroupWorkload<'g> {
    /// The group's kind, namespace and name.
    pub key: &'g GroupKey,
    /// The start of the group's run. None: the group doesn't run, or hasn't had as many pods as it
    /// takes.
    pub start: Option<Timestamp>,
    /// The stamped start. None: there is no stamp that can be read.
    pub stamp: Option<Timestamp>,
    /// The number of pods that the group needs to run, in all and of each subgroup.
    pub shape: &'g GangShape,
    /// The pods that name the group, and are neither finished nor terminating, in the order of
    /// their uids.
    pub members: &'g [Uid],
    pub(crate) group: &'g GroupRecord,
    gang: &'g Gang,
    gangs: &'g Gangs,
}

/// The facts about a pod that its groups add.
#[derive(Debug, Default)]
pub struct GroupFacts {
    /// The queue that the groups name in each family.
    pub queues: PerFamily<Option<GroupQueue<ArcStr>>>,
    /// The least of the workload's own ceilings.
    pub own: Option<SignedDuration>,
    /// True if a group that exists counts for the pod's workload.
    pub is_grouped: bool,
    /// The start of the group that counts. None: it hasn't started.
    pub start: Option<Timestamp>,
    /// The group's lack of ready pods. None: enough are ready.
    pub lacking: Option<NotReady>,
}

/// The identity of a group until the index changes: cheaper to look up than the group's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GangId(*const Gang);

/// The pods of a group with which a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Crew {
    /// The pods of its controller. A stranger may name the uid of a controller, with another kind.
    Controller(Controller),
    /// The pod alone: it has no controller.
    Pod(Uid),
}

/// A part of a group's pods that is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartId {
    /// The core.
    Core,
    /// The pods of a crew, with the pods of the core that the crew needs to meet the minimums.
    Crew(Crew),
}

/// The seniority of a pod in its group: running pods come before waiting ones, and of each, the pod
/// that was scheduled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    waits: bool,
    scheduled: Timestamp,
    created: Timestamp,
    uid: Uid,
}

/// The pods of a group by crew and seniority.
pub type GroupCrews = Crews<Crew, Seniority>;

impl Crew {
    pub(crate) fn of(uid: Uid, memberships: &[Membership]) -> Self {
        memberships.first().and_then(|of| of.controller).map_or(Self::Pod(uid), Self::Controller)
    }
}

impl<'g> GroupWorkload<'g> {
    /// Returns the queue that the group names.
    pub(crate) fn queue(&self) -> Option<GroupQueue<&'g ArcStr>> {
        Some((self.gang.queue()?, self.gang.made()))
    }

    pub(crate) const fn id(&self) -> GangId {
        GangId(ptr::from_ref(self.gang))
    }

    /// Counts the group's pods, in all and by subgroup.
    pub(crate) fn count(&self) -> Headcount {
        let shape = self.shape;
        if shape.leaves() == 0 {
            let live = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
            let of_none = |total| shape.counts(total, |_| 0);
            return Headcount::new(shape, &of_none(live), of_none(self.gang.active));
        }
        shape.tally(self.tallied())
    }

    /// Sorts the group's pods by crew and seniority.
    pub(crate) fn crews(&self) -> GroupCrews {
        let members = self.members.iter().filter_map(|uid| Some((*uid, self.gangs.members.get(uid)?)));
        self.shape.crews(members.map(|(uid, member)| {
            let crew = Crew::of(uid, &member.of);
            CrewMember {
                crew,
                is_controlled: matches!(crew, Crew::Controller(_)),
                seniority: Seniority {
                    waits: !member.is_active(),
                    scheduled: member.scheduled().unwrap_or(Timestamp::MAX),
                    created: member.created(),
                    uid,
                },
                subgroup: member.number(self.shape),
                runs: member.is_active(),
            }
        }))
    }

    /// Returns the part of the group's pods that is counted when a pod of this crew goes. None: all
    /// pods are counted.
    pub(crate) fn part(&self, all: &Headcount, crew: Crew) -> Option<(PartId, Headcount)> {
        let mut crews = all.is_elastic().then(|| self.crews())?;
        match crews.part(self.shape, crew) {
            CountedPods::Whole => None,
            CountedPods::Core => Some((PartId::Core, crews.core(self.shape))),
            CountedPods::Crew(pods) => Some((PartId::Crew(crew), pods)),
        }
    }

    /// Returns for each pod the number of its subgroup, and true if it runs.
    fn tallied(&self) -> impl Iterator<Item = (usize, bool)> {
        let members = self.members.iter().filter_map(|uid| self.gangs.members.get(uid));
        members.map(|member| (member.number(self.shape), member.is_active()))
    }

    /// Returns the number of the subgroup of a member.
    pub(crate) fn number(&self, of: &Membership) -> usize {
        self.shape.number(of.subgroup.as_deref())
    }
}

/// Returns the queue by whose floor a pod is protected: the queue that its group names, if the
/// group [counts](group_counts), else the pod's own. The queue of another member never counts: any
/// tenant may add members, and no ceiling follows from their queues.
pub fn floor_queue<'q>(
    of_group: Option<GroupQueue<&'q ArcStr>>,
    own: Option<&'q str>,
    scheduled: Option<Timestamp>,
) -> Option<&'q str> {
    let scheduled = scheduled.map(Timestamp::as_millisecond);
    let counts = |made: Option<Milliseconds>| {
        own.is_none() || group_counts(made.map(Milliseconds::get), scheduled, || false)
    };
    of_group.filter(|(_, made)| counts(*made)).map(|(name, _)| name.as_str()).or(own)
}

impl Gangs {
    /// Returns the groups that a pod names. Empty: the pod names none, or isn't live.
    pub fn memberships(&self, uid: Uid) -> &[Membership] {
        self.members.get(&uid).map_or(&[], |member| &member.of)
    }

    /// Returns the groups that a pod names, to be kept until the next change of the pod.
    pub fn shared_memberships(&self, uid: Uid) -> Option<Arc<[Membership]>> {
        self.members.get(&uid).map(|member| Arc::clone(&member.of))
    }

    /// Returns the facts that the groups of a pod add to it.
    pub fn of(&self, memberships: &[Membership]) -> GroupFacts {
        let mut of = GroupFacts::default();
        for (GroupWorkload { start, gang, group, .. }, _) in self.existing(memberships).rev() {
            // the groups are in reverse order, so that the first one counts
            (of.is_grouped, of.start, of.lacking) = (true, start, gang.lacking());
            of.own = of.own.into_iter().chain(group.own).min();
        }
        of.queues = PerFamily::new(|family| {
            let (queue, made) = self.queue(memberships, family.row().groups)?;
            Some((queue.clone(), made))
        });
        of
    }

    /// True if the start of the group that counts for a pod is that of the present run: it is
    /// computed, and no list of pods is under way that may show another run.
    pub fn knows_start(&self, memberships: &[Membership]) -> bool {
        self.workload(memberships)
            .is_some_and(|(of, _)| !of.gang.is_in_doubt() && !self.changed.contains(of.key))
    }

    /// True if the group that counts for a pod shows its start to a later keeper, too.
    pub fn shows_start(&self, memberships: &[Membership]) -> bool {
        self.workload(memberships).is_some_and(|(of, _)| !of.gang.is_start_remembered())
    }

    /// Returns the groups of a pod that exist, with the pod's memberships of them.
    fn existing<'g, 'm>(
        &'g self,
        memberships: &'m [Membership],
    ) -> impl DoubleEndedIterator<Item = (GroupWorkload<'g>, &'m Membership)> + use<'g, 'm> {
        memberships.iter().filter_map(|of| {
            let (key, gang) = self.by_key.get_key_value(&of.group)?;
            Some((self.shown(key, gang)?, of))
        })
    }

    /// Returns the group of a pod that notes this ceiling.
    pub fn with_own(&self, memberships: &[Membership], own: SignedDuration) -> Option<GroupWorkload<'_>> {
        self.existing(memberships).map(|(of, _)| of).find(|of| of.group.own == Some(own))
    }

    /// True if a pod names a group that is neither finished nor terminating.
    pub fn has_members(&self, key: &GroupKey) -> bool {
        self.by_key.get(key).is_some_and(|gang| !gang.members().is_empty())
    }

    /// True if a group that a running pod names was deleted or replaced in this run: a later keeper
    /// won't know its queue.
    pub fn has_lost_group(&self, memberships: &[Membership]) -> bool {
        memberships.iter().any(|of| self.by_key.get(&of.group).is_some_and(|gang| gang.has_lost_group()))
    }

    /// Returns the group that counts for the workload of a pod, and the pod's membership of it.
    pub fn workload<'m>(&self, memberships: &'m [Membership]) -> Option<(GroupWorkload<'_>, &'m Membership)> {
        self.existing(memberships).next()
    }

    /// Returns the queue that a group of a kind names, even if the group is gone while its pods
    /// run.
    pub fn queue(&self, memberships: &[Membership], kind: PodGroupKind) -> Option<GroupQueue<&ArcStr>> {
        let of = memberships.iter().find(|of| of.group.kind == kind)?;
        let gang = self.by_key.get(&of.group)?;
        Some((gang.queue()?, gang.made()))
    }

    /// Returns the queue by whose floor a pod is protected, and in which the pod counts as
    /// [`floor_queue`] has it. `own` is the queue that the pod names.
    pub fn floor_queue<'q>(
        &'q self,
        memberships: &[Membership],
        own: Option<&'q str>,
        scheduled: Option<Timestamp>,
    ) -> Option<&'q str> {
        floor_queue(self.queue(memberships, PodGroupKind::Runai), own, scheduled)
    }

    /// Returns the queue that a group of the run.ai family names.
    pub fn queue_of_group(&self, namespace: &str, name: &str) -> Option<&str> {
        let key = GroupKey { kind: PodGroupKind::Runai, namespace: namespace.into(), name: name.into() };
        self.by_key.get(&key)?.queue().map(ArcStr::as_str)
    }

    /// Returns all groups that exist.
    pub fn workloads(&self) -> impl Iterator<Item = GroupWorkload<'_>> {
        self.by_key.iter().filter_map(|(key, gang)| self.shown(key, gang))
    }

    /// Returns a group as a workload. None: there is no such group, though pods name it.
    fn shown<'g>(&'g self, key: &'g GroupKey, gang: &'g Gang) -> Option<GroupWorkload<'g>> {
        let group = gang.group.as_deref()?;
        Some(GroupWorkload {
            key,
            start: gang.start,
            stamp: group.stamp,
            shape: &group.shape,
            members: gang.members(),
            group,
            gang,
            gangs: self,
        })
    }
}
