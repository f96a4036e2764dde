//! What is handed out to be done.

use std::num::NonZeroU32;

use jiff::Timestamp;
use tenure_policy::{expiry::Family, ready::Cause};

use crate::Uid;

/// What is to be done about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Its ceiling was exceeded.
    Expire,
    /// Its workload wasn't ready in time.
    Evict,
    /// Its workload is to be told when its run will end.
    Announce,
    /// It was told so, and no ceiling applies any more.
    Withdraw,
}

/// The identity of a claim: only what was handed out by it is settled by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim(pub(super) NonZeroU32);

/// The claim of no record.
impl Default for Claim {
    fn default() -> Self {
        Self(NonZeroU32::MAX)
    }
}

/// A pod about which something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which pod: a pod of this name may be another one by now.
    pub uid: Uid,
    /// What it is handed out by.
    pub claim: Claim,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The family whose ceiling counts.
    pub family: Family,
    /// The queue that it is in, of that family.
    pub queue: String,
    /// When the ceiling is, or was, reached; or until when the workload must be ready.
    pub deadline: Timestamp,
    /// Since when the task is due.
    pub since: Timestamp,
    /// What a workload that isn't ready waits for.
    pub cause: Cause,
    /// The end of the run that the workload was told before.
    pub told: Option<Timestamp>,
    /// How often the task was done, and the pod runs on. Tries that failed don't count, but those to tell a workload.
    pub attempts: u8,
    /// It has outlived a pause of its workload, which wasn't ready.
    pub outlives: bool,
}

/// Pods of one controller about which the same is to be done: what is done to their owner serves all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What is to be done.
    pub task: Task,
    /// The one that is most overdue.
    pub first: Due,
    /// The others.
    pub rest: Vec<Due>,
}

impl Group {
    /// All pods of the group.
    pub fn pods(&self) -> impl Iterator<Item = &Due> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

/// The pods of a group that an action has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// All of its pods.
    All,
    /// The first. The same is to be done about each of the others by itself.
    First,
    /// The first, which is gone. What is to be done about the others is open.
    Gone,
}

/// The result of an action, for the pods that it has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done. Pods that are still there are due again after a while, which grows with each try; unless their workload
    /// was only to be told something.
    Acted,
    /// The same, and their workload is paused for it: a pod that outlives that is of a run that was judged already.
    Paused,
    /// It could not be done. Pods are due again after a while, which grows with each try.
    Failed,
    /// Nothing more is to be done about them.
    Final,
}
