//! Owners of pods, and those that are paused.

use tenure_policy::expiry::Family;

use super::{Naive, capacity::Holder};
use crate::{
    wire,
    world::{Controller, MILLI, Nanos, OwnerKind, OwnerObj, PodObj, SECOND},
};

/// The acts on a paused owner so far, kept as long as it bears the record.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    claimed: bool,
    not_before: Nanos,
    refusals: u8,
    /// Before its time, and the workload that has left.
    early: Option<(Nanos, Holder)>,
}

impl Waits {
    pub const fn may_be_called(&self) -> bool {
        !self.claimed && self.early.is_none()
    }

    fn due(&self, back: Back) -> Option<Nanos> {
        let at = back.at()?;
        Some(self.early.as_ref().map_or(at, |(early, _)| at.min(*early)))
    }
}

/// The return of an owner, if there is one, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Back {
    Never,
    At(Nanos),
    Reactivate,
    Deactivate,
}

/// A paused owner that was handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct Returning {
    pub uid: u32,
    /// None if there is no such queue.
    pub queue: Option<u8>,
    pub back: Back,
    pub refusals: u8,
    pub paused: Nanos,
    /// Before its time.
    pub is_early: bool,
    /// By what they are ordered: the least first.
    pub order: (i64, Nanos, String),
}

/// More ancestors than any chain has.
const DEPTH: usize = 16;

impl OwnerObj {
    pub fn back(&self) -> Option<Back> {
        let record = self.record?;
        Some(match (self.inactive, record.deactivated) {
            (true, true) => Back::Never,
            (true, false) => Back::Deactivate,
            (false, true) => Back::Reactivate,
            (false, false) => self.returns.map_or(Back::Never, |at| Back::At(at * MILLI)),
        })
    }

    /// The family by whose rules it was paused.
    pub(super) fn family(&self) -> Family {
        let tensorstack = self.record.and_then(|record| record.tensorstack).unwrap_or_default();
        if tensorstack { Family::Tensorstack } else { Family::Runai }
    }
}

impl Back {
    const fn at(self) -> Option<Nanos> {
        match self {
            Self::Never => None,
            Self::At(at) => Some(at),
            Self::Reactivate | Self::Deactivate => Some(Nanos::MIN),
        }
    }

    pub const fn comes_back(self) -> bool {
        matches!(self, Self::At(_) | Self::Reactivate)
    }
}

impl Naive {
    const fn is_pausable(&self, kind: OwnerKind) -> bool {
        match kind {
            OwnerKind::Deployment | OwnerKind::ReplicaSet | OwnerKind::Job => true,
            OwnerKind::Thing => self.config.things,
            OwnerKind::Service | OwnerKind::DaemonSet => false,
        }
    }

    /// The topmost ancestor that can be paused, as far as it is known.
    pub fn root(&self, controller: Controller) -> Option<u32> {
        let above = |of: &(OwnerKind, u32)| self.owners.get(&of.1).and_then(|owner| owner.controller);
        let chain = std::iter::successors(controller, above).take(DEPTH);
        chain.filter(|(kind, _)| self.is_pausable(*kind)).last().map(|(_, uid)| uid)
    }

    /// The same, as far as each is of a kind whose controller makes what it is said to own.
    pub fn root_by_kind(&self, controller: Controller) -> Option<u32> {
        let (mut root, mut below, mut next) = (None, None, controller);
        for _ in 0..DEPTH {
            let Some((kind, uid)) = next else { break };
            let makes = match kind {
                OwnerKind::Deployment => below == Some(OwnerKind::ReplicaSet),
                OwnerKind::ReplicaSet | OwnerKind::Job | OwnerKind::DaemonSet => below.is_none(),
                OwnerKind::Service | OwnerKind::Thing => true,
            };
            if !makes {
                break;
            }
            if self.is_pausable(kind) {
                root = Some(uid);
            }
            (below, next) = (Some(kind), self.owners.get(&uid).and_then(|owner| owner.controller));
        }
        root
    }

    pub(super) fn own_of_root(&self, controller: Controller) -> Option<Nanos> {
        self.owners.get(&self.root(controller)?)?.own.map(|micros| micros / 1_000 * MILLI)
    }

    pub(super) fn put_owner(&mut self, owner: &OwnerObj) {
        let before = self.owners.insert(owner.uid, owner.clone());
        let Some(record) = owner.record else {
            self.returns.remove(&owner.uid);
            return;
        };
        let known = self.returns.remove(&owner.uid);
        let is_same = before.is_some_and(|before| {
            before.record.is_some_and(|of| of.at == record.at) && before.back() == owner.back()
        });
        let claimed = known.as_ref().is_some_and(|known| known.claimed);
        let same = known.filter(|_| is_same);
        let fresh = Waits { claimed, not_before: Nanos::MIN, refusals: 0, early: None };
        self.returns.insert(owner.uid, same.unwrap_or(fresh));
    }

    pub(super) fn drop_owners(&mut self, is_gone: impl Fn(&OwnerObj) -> bool) {
        let gone: Vec<u32> =
            self.owners.values().filter(|owner| is_gone(owner)).map(|owner| owner.uid).collect();
        for uid in gone {
            self.owners.remove(&uid);
            self.returns.remove(&uid);
        }
    }

    /// Owners that were paused themselves: records are copied to what they own.
    pub(super) fn paused(&self) -> impl Iterator<Item = (&OwnerObj, Back, &Waits)> {
        let paused = self.returns.iter().map(|(uid, waits)| (&self.owners[uid], waits));
        paused
            .filter(|(owner, _)| self.root(owner.controller).is_none())
            .filter_map(|(owner, waits)| Some((owner, owner.back()?, waits)))
    }

    /// Its pods that are kept.
    pub fn pods_of(&self, owner: &OwnerObj) -> impl Iterator<Item = &PodObj> {
        let (namespace, uid) = (owner.namespace, owner.uid);
        self.kept().filter(move |pod| pod.namespace == namespace && self.root(pod.controller) == Some(uid))
    }

    /// The earliest time at which one comes back; the beginning of time if that is overdue since a person said so.
    pub fn next_return(&self) -> Option<Nanos> {
        let waiting = self.paused().filter(|(.., waits)| !waits.claimed);
        waiting.filter_map(|(_, back, waits)| Some(waits.due(back)?.max(waits.not_before))).min()
    }

    pub fn returning(&self) -> usize {
        let waits = |owner: &OwnerObj, back: Back| {
            back.at().is_some_and(|at| at > self.now) || self.pods_of(owner).next().is_none()
        };
        self.paused().filter(|(owner, back, _)| back.comes_back() && waits(owner, *back)).count()
    }

    /// Hands out all that come back now, in no order.
    pub fn claim_returns(&mut self) -> Vec<Returning> {
        let now = self.now;
        let is_due = |back: Back, waits: &Waits| {
            !waits.claimed && waits.due(back).is_some_and(|at| at.max(waits.not_before) <= now)
        };
        let due = self.paused().filter(|(_, back, waits)| is_due(*back, waits));
        let due: Vec<_> = due
            .map(|(owner, back, waits)| {
                let may = !back.comes_back() || self.pods_of(owner).next().is_none();
                let returning = self.returning_of(owner, back, waits);
                let is_in_vain =
                    returning.is_early && waits.early.as_ref().is_some_and(|of| self.is_there(&of.1));
                (returning, may && !is_in_vain, is_in_vain)
            })
            .collect();
        for (returning, may, is_in_vain) in &due {
            let waits = self.returns.get_mut(&returning.uid).expect("it is paused");
            if *is_in_vain {
                waits.early = None;
            } else if *may {
                waits.claimed = true;
            } else {
                waits.not_before = now + SECOND;
            }
        }
        due.into_iter().filter(|(_, may, _)| *may).map(|(returning, ..)| returning).collect()
    }

    pub(super) fn returning_of(&self, owner: &OwnerObj, back: Back, waits: &Waits) -> Returning {
        let record = owner.record.expect("it is paused");
        let family = owner.family();
        let by_creation = self.wait(family, record.queue).is_some_and(|wait| wait.by_creation);
        let time = if by_creation { owner.created } else { record.at };
        let name = format!("{}/{}", wire::namespace(owner.namespace), wire::owner_name(owner));
        Returning {
            uid: owner.uid,
            queue: Some(record.queue).filter(|queue| self.knows(family, *queue)),
            back,
            refusals: waits.refusals,
            paused: record.at * MILLI,
            is_early: back.at().is_some_and(|at| at > self.now),
            order: (-i64::from(owner.priority.unwrap_or(0)), time, name),
        }
    }

    pub(super) fn call(&mut self, uid: u32, at: Nanos, left: Holder) {
        self.returns.get_mut(&uid).expect("it is paused").early = Some((at, left));
    }

    /// It may be handed out again after `not_before`.
    pub fn settle_return(&mut self, uid: u32, not_before: Nanos) {
        if let Some(waits) = self.returns.get_mut(&uid) {
            (waits.claimed, waits.not_before) = (false, not_before);
        }
    }

    pub fn refuse_return(&mut self, uid: u32) {
        let now = self.now;
        if let Some(waits) = self.returns.get_mut(&uid) {
            waits.not_before = now + (5 << waits.refusals.min(8)).min(40) * SECOND;
            waits.claimed = false;
            waits.refusals = waits.refusals.saturating_add(1);
        }
    }

    pub fn release_returns(&mut self) {
        self.returns.values_mut().for_each(|waits| waits.claimed = false);
    }

    /// The live pods of a namespace that are exempt by priority and have a controller.
    pub fn exempt_pods(&self, namespace: u8) -> impl Iterator<Item = &PodObj> {
        let exempt =
            self.pods.values().filter(|pod| pod.is_live() && pod.critical && pod.controller.is_some());
        exempt.filter(move |pod| pod.namespace == namespace)
    }

    /// When the first of the pods of a root owner expires.
    pub fn first_end(&self, owner: &OwnerObj) -> Option<i64> {
        self.pods_of(owner).filter_map(|pod| self.dues[&pod.uid].expires).min()
    }
}
