//! Pods as members of `PodGroup`s, whether or not a ceiling applies to them. `Gangs` keeps a
//! `GroupMember` for each live pod that names a group, whether or not the group exists.

use std::sync::Arc;

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{
    gang::{GangShape, PodProgress, progress},
    ready::LivePod,
};
use tenure_types::{podgroup::PodGroupKind, projection};

use super::group::GroupKey;
use crate::{
    kinds::KindHasher,
    owners::Controller,
    times::{Milliseconds, PodReadiness, in_time, milliseconds, time},
};

/// The facts about a pod that count for the start of its groups. Times are in milliseconds since
/// the epoch.
#[derive(Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The groups that the pod names. Readers share the list, and needn't look it up for each pod.
    pub of: Arc<[Membership]>,
    pub created: Option<Milliseconds>,
    /// The pod's scheduling. None: the pod waits.
    pub scheduled: Option<Milliseconds>,
    pub readiness: PodReadiness,
}

/// A group that a pod names, and the subgroup if it names one. A pod names at most one group of a
/// kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Membership {
    pub group: GroupKey,
    pub subgroup: Option<ArcStr>,
    /// The pod's controller, which siblings have in common. None: the pod has no controller.
    pub controller: Option<Controller>,
}

/// Returns the groups that a pod names, in the order in which they count. `text` interns a name.
pub fn memberships(
    pod: &projection::Pod,
    kinds: &KindHasher,
    mut text: impl FnMut(&str) -> ArcStr,
) -> Box<[Membership]> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let controller = pod.controller().map(|owner| Controller::read(owner, kinds));
    let membership = |kind: PodGroupKind| {
        let group = GroupKey { kind, name: text(kind.named_by(pod)?), namespace: text(namespace) };
        Some(Membership { group, subgroup: kind.subgroup(pod).map(&mut text), controller })
    };
    PodGroupKind::ALL.into_iter().filter_map(membership).collect()
}

impl GroupMember {
    /// Reads a pod. `before` is the earlier record of the pod. None: the pod is in no group, has
    /// ended, is terminating or lacks a `creationTimestamp`.
    pub fn read(
        pod: &projection::Pod,
        before: Option<&Self>,
        kinds: &KindHasher,
        text: impl FnMut(&str) -> ArcStr,
    ) -> Option<Self> {
        let is_gone = progress(pod) == PodProgress::Gone;
        let of = if is_gone { Box::default() } else { memberships(pod, kinds, text) };
        let created = milliseconds(pod.metadata.creation_timestamp.as_ref()?.0);
        (!of.is_empty()).then(|| Self {
            of: of.into(),
            created,
            scheduled: pod.scheduled_at().and_then(|at| milliseconds(at.0)),
            readiness: PodReadiness::of(pod, before.map(|before| before.readiness)),
        })
    }

    /// True if another record of the pod shows the same about the start of its groups. A pod that
    /// doesn't run shows nothing.
    pub fn shows_as(&self, other: Option<&Self>) -> bool {
        let same = |other: &Self| (other.scheduled, &*other.of) == (self.scheduled, &*self.of);
        !self.is_active() || other.is_some_and(same)
    }

    pub fn is_of(&self, group: &GroupKey) -> bool {
        self.of.iter().any(|membership| membership.group == *group)
    }

    /// Returns the number of the pod's subgroup in a group of this shape.
    pub fn number(&self, shape: &GangShape) -> usize {
        let of = self.of.iter().find(|membership| Some(membership.group.kind) == shape.kind);
        shape.number(of.and_then(|of| of.subgroup.as_deref()))
    }

    /// Returns the pod as a part of its group, in the subgroup of this number.
    pub fn live_pod(&self, subgroup: usize) -> LivePod {
        let readiness = self.readiness.get();
        LivePod { subgroup, created: self.created(), scheduled: self.scheduled(), readiness }
    }

    /// Returns the pod's creation, or the latest timestamp if it isn't known.
    pub fn created(&self) -> Timestamp {
        self.created.map_or(Timestamp::MAX, |at| time(at.get()))
    }

    /// True if the pod runs: it is scheduled, and neither finished nor terminating.
    pub const fn is_active(&self) -> bool {
        self.scheduled.is_some()
    }

    /// Returns the pod's scheduling. None: the pod waits.
    pub fn scheduled(&self) -> Option<Timestamp> {
        in_time(self.scheduled)
    }
}
