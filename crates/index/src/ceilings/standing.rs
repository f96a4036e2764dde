//! The standing of a pod: its queues and clocks.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::expiry::{Clocks, Family};
use tenure_types::projection;

use super::{CeilingIndex, limits};
use crate::{
    Uid,
    deadlines::ManagedPod,
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

    /// Computes the standing of a pod by one of its owners as it is now, which its watch may not have shown yet. Only the
    /// ceiling of its root owner counts.
    pub fn standing_below(&mut self, pod: &projection::Pod, owner: &ObjectMeta) -> Option<Standing> {
        let seen = self.see(pod)?;
        let uid = Uid::of(owner.uid.as_deref().unwrap_or_default());
        let known = &self.objects.owners;
        let root = if known.root(seen.pod.controller) == Some(uid) {
            OwnCeilings::ceiling(owner)
        } else {
            known.own_ceiling(seen.pod.controller)
        };
        self.standing_by(&seen, root)
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
