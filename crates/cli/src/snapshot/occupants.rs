//! The pods on nodes, and the time by which each has ended at the latest.
//!
//! Called by `forecast` and `ui`. The times are those of the keeper's own arithmetic, with a margin
//! for owners that resist.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenure_index::{CeilingIndex, SeenPod};
use tenure_policy::{
    deletion::DeletionTimes,
    expiry::{Exemption, Family, Scope, claimed, standing_exemption},
};
use tenure_types::{projection::Pod, room::PodWithRoom};

use super::{ClaimedDevices, NamespacedName, Snapshot, claims::claim_of_requests, held_claims};

/// Amounts by resource, as the scheduler counts them: CPUs in thousandths, all else in whole units.
pub type Amounts = BTreeMap<String, i64>;

/// The resource of which each pod takes one.
pub const PODS: &str = "pods";

/// The time within which an overdue pod is terminating, no matter what its owners, finalizers or
/// owner references do.
const LATE: SignedDuration = SignedDuration::from_mins(10);

/// The grace period of pods that set none.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// A pod on a node, and the bound of its stay.
#[derive(Clone, Debug, Default)]
pub struct Occupant {
    pub node: String,
    /// The room that the pod holds on the node.
    pub requests: Amounts,
    /// The time by which the pod has ended at the latest. None: no ceiling ends it.
    pub until: Option<Timestamp>,
    /// The queue whose ceiling ends the pod.
    pub queue: Option<String>,
    /// The reason why no ceiling ends the pod. None: a ceiling or a deletion ends it.
    pub stays: Option<&'static str>,
    /// The end of the longest floor that protects the pod. None: it isn't protected now.
    pub floor_until: Option<Timestamp>,
}

/// Returns the resources that each pod holds on its node, and until when. The devices of a claim
/// that pods share are held by the pod that ends last.
pub fn occupants(
    pods: Vec<BoundPod>,
    claims: &ClaimedDevices,
    snapshot: &mut Snapshot,
    longest: SignedDuration,
    now: Timestamp,
) -> Vec<Occupant> {
    let mut last: BTreeMap<NamespacedName, (Timestamp, usize)> = BTreeMap::new();
    let mut occupants = Vec::with_capacity(pods.len());
    for mut pod in pods {
        let held = std::mem::take(&mut pod.claims);
        let occupant = pod.occupant(snapshot, longest, now);
        let until = occupant.until.unwrap_or(Timestamp::MAX);
        for claim in held {
            let holder = last.entry(claim).or_insert((until, occupants.len()));
            *holder = (*holder).max((until, occupants.len()));
        }
        occupants.push(occupant);
    }
    for (claim, (_, place)) in last {
        if let Some(holder) = occupants.get_mut(place) {
            claims.of(&[claim]).for_each(|devices| add(&mut holder.requests, devices, 1));
        }
    }
    occupants
}

/// A pod that is on a node.
pub struct BoundPod {
    pod: Pod,
    requests: Amounts,
    /// The claims of devices that the pod holds.
    pub claims: Vec<NamespacedName>,
    /// The claim whose devices the pod has by its requests.
    claim_of_requests: Option<NamespacedName>,
    seen: Option<SeenPod>,
}

impl BoundPod {
    /// Reads a pod, and adds it to the index. None: the pod takes no room.
    pub fn read(pod: PodWithRoom, index: &mut CeilingIndex) -> Option<Self> {
        let claims = held_claims(&pod);
        let claim_of_requests = claim_of_requests(&pod);
        let (pod, room) = pod.split();
        index.apply_member(&pod);
        Some(Self { claim_of_requests, ..Self::of(pod, room.requests, claims, index)? })
    }

    /// Returns all claims whose devices the pod has.
    pub fn all_claims(&self) -> impl Iterator<Item = &NamespacedName> {
        self.claims.iter().chain(&self.claim_of_requests)
    }

    /// Reads a pod that the index has. None: the pod takes no room, because it isn't on a node or
    /// has ended.
    pub fn of(
        pod: Pod,
        mut room: Amounts,
        claims: Vec<NamespacedName>,
        index: &mut CeilingIndex,
    ) -> Option<Self> {
        let is_there = pod.spec.node_name.is_some() && !pod.is_finished();
        room.insert(PODS.into(), 1);
        is_there.then(|| Self {
            seen: SeenPod::read(&pod, index),
            requests: room,
            claims,
            claim_of_requests: None,
            pod,
        })
    }

    /// Computes the latest end of the pod: the earlier of its ceiling and its deletion, each with a
    /// margin.
    fn occupant(self, snapshot: &mut Snapshot, longest: SignedDuration, now: Timestamp) -> Occupant {
        let Self { pod, requests, seen, .. } = self;
        let Snapshot { index, floors, .. } = snapshot;
        let standing = seen.and_then(|seen| seen.standing(index));
        let exemption = standing_exemption(&pod, &Scope::default()).or_else(|| claimed(&pod));
        let grace = pod.spec.termination_grace_period_seconds.map_or(GRACE, SignedDuration::from_secs);
        let later = |at: Timestamp, more: SignedDuration| {
            at.max(now).saturating_add(LATE.saturating_add(more)).unwrap_or(Timestamp::MAX)
        };
        let expires = standing.as_ref().and_then(|of| of.expires).filter(|_| exemption.is_none());
        let terminates = DeletionTimes::of(&pod.metadata).map(|of| later(of.until, SignedDuration::ZERO));
        let expires = expires.map(|(at, _)| later(at, grace.clamp(SignedDuration::ZERO, longest)));
        let until = terminates.into_iter().chain(expires).min();
        let stays = until.is_none().then_some(match (exemption, &standing) {
            (Some(Exemption::DaemonSet), _) => "the pod is of a DaemonSet",
            (Some(_), _) => "the pod is never touched",
            (None, None) => "the pod is in no queue",
            (None, Some(_)) => "its queue has no ceiling",
        });
        let queue = standing.as_ref().and_then(|of| Some(of.ending_queue()?.1.to_string()));
        let of_floor = standing.as_ref().and_then(|of| {
            let tree = index.tree();
            let floor = floors.longest(tree, tree.bind(of.queue(Family::Runai)?)).to_signed();
            of.start?.checked_add(floor).ok()
        });
        let node = pod.spec.node_name.unwrap_or_default();
        let floor_until = of_floor.filter(|until| *until > now);
        Occupant { node, requests, until, queue, stays, floor_until }
    }
}

/// Adds amounts this number of times. A negative number subtracts them: the sum may be negative.
pub fn add(sum: &mut Amounts, amounts: &Amounts, times: i64) {
    for (resource, amount) in amounts {
        let sum = sum.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(amount.saturating_mul(times));
    }
}
