//! The standing of a pod: its queues and clocks.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{
    expiry::{Clocks, Family},
    judge::RunState,
};
use tenure_types::{extension::Extension, projection};

use super::{CeilingIndex, limits};
use crate::{
    Uid,
    deadlines::ManagedPod,
    grants::Grants,
    own::OwnCeilings,
    podgroups::{Membership, memberships},
};

/// The standing of a pod: its clocks, queues and the end of its run. See [`CeilingIndex::standing`].
#[derive(Clone, Debug)]
pub struct Standing {
    /// The two clocks that its ceilings run by.
    pub clocks: Clocks,
    /// The start of its workload: that of its `PodGroup`, if there is one.
    pub start: Option<Timestamp>,
    /// True if there is one.
    pub is_grouped: bool,
    /// Its queue of the tensorstack family.
    pub tensorstack: Option<ArcStr>,
    /// Its queue of the run.ai family.
    pub runai: Option<ArcStr>,
    /// The least of the ceilings that people have noted on it, its root owner and its `PodGroup`s.
    pub own: Option<SignedDuration>,
    /// The time that its run was granted beyond that ceiling.
    pub extension: SignedDuration,
    /// The time at which its run ends, and the family whose ceiling sets it.
    pub expires: Option<(Timestamp, Family)>,
}

impl Standing {
    /// Its queue of a family.
    pub const fn queue(&self, family: Family) -> Option<&ArcStr> {
        match family {
            Family::Tensorstack => self.tensorstack.as_ref(),
            Family::Runai => self.runai.as_ref(),
        }
    }
}

/// A pod that was seen, and isn't kept.
#[derive(Debug)]
pub struct Seen {
    pub(super) uid: Uid,
    pub(super) pod: ManagedPod,
    pub(super) of: Box<[Membership]>,
}

impl CeilingIndex {
    /// Computes the standing of a pod by the queues, `PodGroup`s and owners that are known, without keeping the pod;
    /// none if it is in no queue. An exempt pod has one, too.
    pub fn standing(&mut self, pod: &projection::Pod) -> Option<Standing> {
        let seen = self.see(pod)?;
        self.standing_of(&seen)
    }

    /// Returns the state of a pod's run at `now`, by the rules of the queue that is due. `owner` is the object to act on, as it was
    /// just read, which its watch may not have shown yet. `granted` are all granted extensions of the namespace, as they
    /// were just listed.
    pub fn run_state(
        &mut self,
        pod: &projection::Pod,
        (family, queue): (Family, &str),
        owner: Option<&ObjectMeta>,
        granted: Option<&[Extension]>,
        now: Timestamp,
    ) -> RunState {
        self.reschedule();
        let seen = self.see(pod);
        let standing = seen.as_ref().and_then(|seen| self.standing_of(seen));
        let owner = owner.map(|owner| (Uid::of(owner.uid.as_deref().unwrap_or_default()), owner));
        let end_below = seen.as_ref().zip(owner).and_then(|(seen, owner)| self.end_below(seen, owner));
        let granted_end = seen.as_ref().zip(granted).and_then(|(seen, granted)| self.end_with(seen, granted));
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let limits = self.objects.limits(family, queue);
        let of_runai =
            standing.as_ref().and_then(|of| self.objects.limits(Family::Runai, of.runai.as_deref()?));
        RunState {
            is_fresh: true,
            queue: standing.as_ref().map(|of| of.queue(family).map_or("", ArcStr::as_str).to_owned()),
            end: standing.as_ref().and_then(|of| of.expires),
            since: standing.as_ref().and_then(|of| of.clocks.since(family)),
            ceiling: standing.as_ref().and_then(|of| self.ceiling(of)),
            end_below,
            granted_end,
            first_end: owner.and_then(|(uid, _)| self.first_end(namespace, uid)),
            awaits_queue: standing.as_ref().is_some_and(|of| self.awaits_queue(of, now)),
            outlives: seen.is_some_and(|seen| self.outlives(seen.uid)),
            may_be_extended: of_runai.is_some_and(|limits| !limits.extensions.is_none()),
            notice: self.notice(family, queue),
            slice_delay: limits.and_then(|limits| limits.slice_delay),
            on_reversal: limits.map(|limits| limits.on_reversal).unwrap_or_default(),
            backoff: self.pods_ready(family, queue).map(|rules| rules.backoff),
        }
    }

    /// The end of a run by the ceiling that one of its owners notes now. Only the ceiling of its root owner counts.
    fn end_below(&mut self, seen: &Seen, (uid, owner): (Uid, &ObjectMeta)) -> Option<Timestamp> {
        let known = &self.objects.owners;
        let root = if known.root(seen.pod.controller) == Some(uid) {
            OwnCeilings::ceiling(owner)
        } else {
            known.own_ceiling(seen.pod.controller)
        };
        Some(self.standing_by(seen, root)?.expires?.0)
    }

    /// The end of a run by these extensions, in place of the known ones.
    fn end_with(&mut self, seen: &Seen, extensions: &[Extension]) -> Option<Timestamp> {
        let known = std::mem::replace(&mut self.objects.grants, Grants::listed(extensions));
        let standing = self.standing_of(seen);
        self.objects.grants = known;
        Some(standing?.expires?.0)
    }

    /// Reads a pod, to compute its standing later, when all pods of its `PodGroup`s are known; none if it is in no
    /// queue.
    pub fn see(&mut self, pod: &projection::Pod) -> Option<Seen> {
        let of = memberships(pod, |text| self.objects.interner.names.shared(text));
        let uid = Uid::of(pod.metadata.uid.as_deref().unwrap_or_default());
        Some(Seen { uid, pod: ManagedPod::read(pod, &mut self.objects.interner)?, of })
    }

    /// Computes the standing of a pod that was seen.
    pub fn standing_of(&mut self, seen: &Seen) -> Option<Standing> {
        let root = self.objects.owners.own_ceiling(seen.pod.controller);
        self.standing_by(seen, root)
    }

    /// Computes the standing of a pod whose root owner notes this ceiling.
    fn standing_by(&mut self, seen: &Seen, root: Option<SignedDuration>) -> Option<Standing> {
        self.objects.gangs.compute();
        let of_groups = self.objects.gangs.of(&seen.of);
        let standing = limits::standing_below(&mut self.objects, root, (seen.uid, &seen.pod), of_groups);
        (standing.tensorstack.is_some() || standing.runai.is_some()).then_some(standing)
    }
}
