//! Owners of pods, and those that are paused.

use tenure_policy::expiry::Family;

use super::{Naive, capacity::Counted};
use crate::{
    wire,
    world::{Controller, MILLI, Nanos, OwnerKind, OwnerObj, PodObj, SECOND, Whose},
};

/// The call of a paused owner before its time, kept as long as it bears the record.
#[derive(Clone, Debug, Default)]
pub(super) struct Called {
    /// With the workload that has left.
    early: Option<(Nanos, Counted)>,
}

impl Called {
    pub const fn may_be_called(&self) -> bool {
        self.early.is_none()
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
    /// None: the queue that the record names does not exist.
    pub queue: Option<u8>,
    pub back: Back,
    pub paused: Nanos,
    /// Before its time.
    pub is_early: bool,
    /// It comes back now. Otherwise only its record is checked.
    pub is_due: bool,
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
            OwnerKind::Service | OwnerKind::DaemonSet | OwnerKind::Pod => false,
        }
    }

    /// The ancestors that are known, the nearest first.
    fn chain(&self, controller: Controller) -> impl Iterator<Item = (OwnerKind, u32)> {
        std::iter::successors(controller, |of| self.above(of.1)).take(DEPTH)
    }

    /// The controller of an owner, or of a pod that controls others.
    fn above(&self, uid: u32) -> Controller {
        self.drivers.get(&uid).copied().or_else(|| self.owners.get(&uid)?.controller)
    }

    /// The topmost ancestor of a pod that can be paused, as far as each is of a kind whose controller makes what it
    /// is said to own.
    pub fn root(&self, controller: Controller) -> Option<u32> {
        let (mut root, mut below, mut next) = (None, None, controller);
        for _ in 0..DEPTH {
            let Some((kind, uid)) = next else { break };
            let makes = match kind {
                OwnerKind::Deployment => below == Some(OwnerKind::ReplicaSet),
                OwnerKind::ReplicaSet | OwnerKind::Job | OwnerKind::DaemonSet => below.is_none(),
                OwnerKind::Service | OwnerKind::Thing | OwnerKind::Pod => true,
            };
            if !makes {
                break;
            }
            if self.is_pausable(kind) {
                root = Some(uid);
            }
            below = Some(kind).filter(|kind| *kind != OwnerKind::Pod);
            next = self.above(uid);
        }
        root
    }

    pub(super) fn own_of_root(&self, controller: Controller) -> Option<Nanos> {
        self.owners.get(&self.root(controller)?)?.own.map(|micros| micros / 1_000 * MILLI)
    }

    pub(super) fn put_owner(&mut self, owner: &OwnerObj) {
        let before = self.owners.insert(owner.uid, owner.clone());
        let Some(record) = owner.record.filter(|_| self.bears(owner.uid)) else {
            self.returns.remove(&owner.uid);
            return;
        };
        let known = self.returns.remove(&owner.uid);
        let is_same = before.is_some_and(|before| {
            before.record.is_some_and(|of| of.at == record.at) && before.back() == owner.back()
        });
        self.returns.insert(owner.uid, known.filter(|_| is_same).unwrap_or_default());
    }

    pub(super) fn drop_owners(&mut self, is_gone: impl Fn(&OwnerObj) -> bool) {
        let gone: Vec<u32> =
            self.owners.values().filter(|owner| is_gone(owner)).map(|owner| owner.uid).collect();
        for uid in gone {
            self.owners.remove(&uid);
            self.returns.remove(&uid);
        }
    }

    /// Owners that were paused themselves, and none above them: records are copied to what they own.
    pub(super) fn paused(&self) -> impl Iterator<Item = (&OwnerObj, Back, &Called)> {
        let paused = self.returns.iter().map(|(uid, waits)| (&self.owners[uid], waits));
        let is_held = |owner: &OwnerObj| self.chain(owner.controller).any(|(_, above)| self.bears(above));
        paused
            .filter(move |(owner, _)| {
                let whose = owner.record.map(|of| of.whose);
                let is_below = || self.chain(owner.controller).any(|(kind, _)| self.is_pausable(kind));
                let is_copy = whose == Some(Whose::Unsaid) && is_below();
                self.bears(owner.uid) && !is_copy && !is_held(owner)
            })
            .filter_map(|(owner, waits)| Some((owner, owner.back()?, waits)))
    }

    /// True if an owner bears a record that isn't seen to be another's.
    pub(super) fn bears(&self, uid: u32) -> bool {
        let owner = self.owners.get(&uid);
        owner.is_some_and(|owner| {
            owner.record.is_some_and(|of| of.whose != Whose::Other || owner.controller.is_none())
        })
    }

    /// Its pods that are kept.
    pub fn pods_of(&self, owner: &OwnerObj) -> impl Iterator<Item = &PodObj> {
        let (namespace, uid) = (owner.namespace, owner.uid);
        self.kept().filter(move |pod| pod.namespace == namespace && self.root(pod.controller) == Some(uid))
    }

    /// True if it has pods that are kept, whether or not it is their root owner. Ten minutes after its pause, only those
    /// that are overdue count.
    pub(super) fn has_pods(&self, owner: &OwnerObj) -> bool {
        let is_below = |pod: &PodObj| self.chain(pod.controller).any(|(_, above)| above == owner.uid);
        let all = Self::held_until(owner).is_some_and(|until| self.now < until);
        let counts =
            |pod: &PodObj| all || self.dues[&pod.uid].expires.is_some_and(|end| end * MILLI <= self.now);
        self.kept().any(|pod| pod.namespace == owner.namespace && is_below(pod) && counts(pod))
    }

    fn held_until(owner: &OwnerObj) -> Option<Nanos> {
        owner.record.map(|record| record.at * MILLI + 600 * SECOND)
    }

    /// The next time at which one comes back that isn't due yet, or that is due and has pods.
    pub fn next_return(&self) -> Option<Nanos> {
        let due = self.paused().filter_map(|(owner, back, called)| {
            let at = called.due(back)?;
            let is_held = at <= self.now && back.comes_back() && self.has_pods(owner);
            if is_held { Self::held_until(owner) } else { Some(at) }
        });
        due.filter(|at| *at > self.now).min()
    }

    pub fn returning(&self) -> usize {
        let waits =
            |owner: &OwnerObj, back: Back| back.at().is_some_and(|at| at > self.now) || !self.has_pods(owner);
        self.paused().filter(|(owner, back, _)| back.comes_back() && waits(owner, *back)).count()
    }

    /// All that come back now, in no order.
    pub fn due_returns(&mut self) -> Vec<Returning> {
        let now = self.now;
        self.asked = Some(now);
        let due = self.paused().filter(|(_, back, called)| called.due(*back).is_some_and(|at| at <= now));
        let due = due.map(|(owner, back, called)| {
            let may = !back.comes_back() || !self.has_pods(owner);
            let returning = self.returning_of(owner, back);
            let is_in_vain =
                returning.is_early && called.early.as_ref().is_some_and(|of| self.is_there(&of.1));
            (returning, may, is_in_vain)
        });
        let due: Vec<_> = due.collect();
        for (returning, ..) in due.iter().filter(|(_, _, is_in_vain)| *is_in_vain) {
            self.returns.get_mut(&returning.uid).expect("it is paused").early = None;
        }
        let may_come = due.into_iter().filter(|(_, may, is_in_vain)| *may && !is_in_vain);
        let mut due: Vec<Returning> = may_come.map(|(returning, ..)| returning).collect();
        let again = self.paused().filter(|(owner, ..)| self.runs_again(owner));
        let again = again
            .map(|(owner, back, _)| Returning { is_due: false, ..self.returning_of(owner, back) })
            .collect::<Vec<_>>();
        due.extend(
            again.into_iter().filter(|of| !due.iter().any(|known| known.uid == of.uid)).collect::<Vec<_>>(),
        );
        due
    }

    /// True if an owner has pods that are younger than its pause.
    fn runs_again(&self, owner: &OwnerObj) -> bool {
        let below = |pod: &PodObj| self.chain(pod.controller).any(|(_, above)| above == owner.uid);
        let is_younger =
            |pod: &PodObj| owner.record.is_some_and(|of| pod.created >= of.at.div_euclid(1_000) * 1_000);
        self.kept().any(|pod| pod.namespace == owner.namespace && below(pod) && is_younger(pod))
    }

    pub(super) fn returning_of(&self, owner: &OwnerObj, back: Back) -> Returning {
        let record = owner.record.expect("it is paused");
        let family = owner.family();
        let by_creation = self.wait(family, record.queue).is_some_and(|wait| wait.by_creation);
        let time = if by_creation { owner.created } else { record.at };
        let name = format!("{}/{}", wire::namespace(owner.namespace), wire::owner_name(owner));
        Returning {
            uid: owner.uid,
            queue: Some(record.queue).filter(|queue| self.knows(family, *queue)),
            back,
            paused: record.at * MILLI,
            is_early: back.at().is_some_and(|at| at > self.now),
            is_due: true,
            order: (-i64::from(owner.priority.unwrap_or(0)), time, name),
        }
    }

    pub(super) fn call(&mut self, uid: u32, at: Nanos, left: Counted) {
        self.returns.get_mut(&uid).expect("it is paused").early = Some((at, left));
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
