//! An owner that was paused, as the owner's annotations say, and its place among the owners that
//! come back.

use std::cmp::Reverse;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{expiry::Family, pause::Return, requeue::WaitingWorkload};
use tenure_types::runai::v3alpha1::RequeuingTimestamp;

use crate::{Uid, counted::CountedWorkload, owners::Controller};

/// The time after a pause for which any pod holds up the return of its owner. Later, only pods past
/// their ceiling do: the keeper deletes these. Other pods may be left by a slow controller, and any
/// user who may write pods of the namespace can add some.
const HELD_FOR: SignedDuration = SignedDuration::from_mins(10);

/// A return before the owner's own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EarlyReturn {
    pub at: Timestamp,
    /// The workload that has left.
    pub left: CountedWorkload,
}

/// A place among returning owners: the priority, the time by the strategy of the queue, and the
/// name. The least comes first, so the highest priority does.
pub type ReturnRank = (Reverse<i32>, Timestamp, String);

/// An owner that is due to come back, or whose record is to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueReturn {
    /// The owner. Its queue is empty if no queue of that name exists.
    pub paused: Paused,
    /// The owner's place among those of its queue.
    pub turn: ReturnRank,
    /// True if the owner comes back now. False: it may run again by another writer, and only its
    /// record is checked.
    pub is_due: bool,
}

/// An owner that was paused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the record")]
pub struct Paused {
    /// The queue by whose rules it was paused.
    pub queue: ArcStr,
    /// The family of that queue. None: the record names no family.
    pub family: Option<Family>,
    /// True if the owner was paused because its pods didn't get ready.
    pub was_unready: bool,
    /// The way and the time in which the owner comes back by itself, if it does.
    pub returns: Return,
    /// True if the owner stays paused until a person resumes it, by a record that names the owner's
    /// uid.
    pub(super) stays: bool,
    /// The number of the owner's pauses because its pods didn't get ready.
    pub count: u32,
    /// The priority of the owner's pods; 0 if the annotations don't say.
    pub priority: i32,
    /// The time of the pause.
    pub at: Timestamp,
    /// The owner's creation.
    pub created: Option<Timestamp>,
    /// The owner's name.
    pub name: Box<str>,
    /// The owner's namespace. Empty: the owner is cluster-scoped.
    pub namespace: ArcStr,
    pub(super) controller: Option<Controller>,
    /// True if the record names its object.
    pub(super) says_whose: bool,
    /// The root owner of the pods: the owner itself, or the job or pod that Kueue runs by this
    /// Workload.
    pub root: Uid,
    /// The number of the watch that has seen the owner.
    pub source: u16,
    /// The owner's uid, as the API server writes it.
    pub uid: Box<str>,
    /// A return before the owner's own time. None: the owner comes back at its own time.
    pub(super) early: Option<Box<EarlyReturn>>,
}

impl Paused {
    /// Returns the family by whose rules the owner comes back: the run.ai family if the record
    /// doesn't say.
    pub fn rules_of(&self) -> Family {
        self.family.unwrap_or(Family::Runai)
    }

    /// Returns the facts on which the order of returns depends.
    pub fn waiting(&self) -> WaitingWorkload {
        WaitingWorkload {
            priority: self.priority,
            created: self.created.unwrap_or(self.at),
            paused: self.at,
            name: format!("{}/{}", self.namespace, self.name),
        }
    }

    /// Returns the owner's place among returning owners.
    pub fn turn(&self, strategy: RequeuingTimestamp) -> ReturnRank {
        let waiting = self.waiting();
        (Reverse(waiting.priority), waiting.timestamp(strategy), waiting.name)
    }

    /// Returns the time at which the owner comes back: before its own time, if another workload of
    /// its queue has left. None: it doesn't come back by itself.
    pub fn due(&self) -> Option<Timestamp> {
        let early = self.early.as_ref().map(|early| early.at);
        self.returns.at().map(|at| early.map_or(at, |early| early.min(at)))
    }

    /// Returns the time until which any pod holds up the return of the owner.
    pub(crate) fn held_until(&self) -> Timestamp {
        self.at.checked_add(HELD_FOR).unwrap_or(Timestamp::MAX)
    }

    /// Returns the queue in which the owner may be called back early, by its family and name. None:
    /// it was paused for another reason, or its return has no time.
    pub(super) fn requeued_in(&self) -> Option<(Family, ArcStr)> {
        let is_requeued = self.was_unready && matches!(self.returns, Return::Requeue(_));
        is_requeued.then(|| (self.rules_of(), self.queue.clone()))
    }

    /// True if the owner, which is [requeued](Self::requeued_in), waits until after `now` and hasn't
    /// been called yet.
    pub(super) fn waits(&self, now: Timestamp) -> bool {
        self.early.is_none() && self.returns.at().is_some_and(|at| at > now)
    }
}
