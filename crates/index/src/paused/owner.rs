//! An owner that was paused.

use std::cmp::Reverse;

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{expiry::Family, pause::Return, requeue::Waiting};
use tenure_types::runai::v3alpha1::RequeuingTimestamp;

use crate::{Uid, owners::Controller, podgroups::GroupKey};

/// A workload that takes, or took, room in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    Group(GroupKey),
    /// A root owner, in a namespace.
    Owner(ArcStr, Uid),
    /// A pod by itself.
    Pod(Uid),
}

/// A return before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Early {
    pub at: Timestamp,
    /// The workload that has left.
    pub left: Holder,
}

/// A place among returning owners: the priority, the time by the strategy of the queue, and the name. The least comes first.
pub type Turn = (Reverse<i32>, Timestamp, String);

/// An owner that is due to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueReturn {
    /// The owner. Its queue is empty if there is none of that name.
    pub paused: Paused,
    /// Its place among those of its queue.
    pub turn: Turn,
}

/// An owner that was paused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the record")]
pub struct Paused {
    /// The queue by whose rules it was paused.
    pub queue: ArcStr,
    /// The family of that queue. None if the record doesn't say.
    pub family: Option<Family>,
    /// It was paused because its pods didn't get ready.
    pub was_unready: bool,
    /// The way and the time of its return by itself.
    pub returns: Return,
    /// True if it stays paused until a person resumes it, by a record that says whose it is.
    pub(super) stays: bool,
    /// The number of its pauses because its pods didn't get ready.
    pub count: u32,
    /// The priority of its pods.
    pub priority: i32,
    /// When it was paused.
    pub at: Timestamp,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its name.
    pub name: Box<str>,
    /// Empty if it is of the whole cluster.
    pub namespace: ArcStr,
    pub(super) controller: Option<Controller>,
    /// True if the record names its object.
    pub(super) says_whose: bool,
    /// The root owner of its pods: the owner itself, or the object of a Workload of Kueue.
    pub root: Uid,
    /// The watch that has seen it.
    pub source: u16,
    /// As the API server writes it.
    pub uid: Box<str>,
    /// None if it comes back at its own time.
    pub(super) early: Option<Box<Early>>,
}

impl Paused {
    /// The family by whose rules it comes back.
    pub fn rules_of(&self) -> Family {
        self.family.unwrap_or(Family::Runai)
    }

    /// The facts on which the order of returns depends.
    pub fn waiting(&self) -> Waiting {
        Waiting {
            priority: self.priority,
            created: self.created.unwrap_or(self.at),
            paused: self.at,
            name: format!("{}/{}", self.namespace, self.name),
        }
    }

    /// Returns the place among returning owners.
    pub fn turn(&self, strategy: RequeuingTimestamp) -> Turn {
        let waiting = self.waiting();
        (Reverse(waiting.priority), waiting.timestamp(strategy), waiting.name)
    }

    /// The time at which it comes back: before its own time, if another workload of its queue has left.
    pub fn due(&self) -> Option<Timestamp> {
        let early = self.early.as_ref().map(|early| early.at);
        self.returns.at().map(|at| early.map_or(at, |early| early.min(at)))
    }

    /// True if it waits for its next try to get ready after `now`, and may be called earlier.
    pub(super) fn waits(&self, now: Timestamp) -> bool {
        self.was_unready && self.early.is_none() && matches!(self.returns, Return::Requeue(at) if at > now)
    }
}
