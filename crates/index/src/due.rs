//! What is handed out to be done.

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

/// A pod about which something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which pod: a pod of this name may be another one by now.
    pub uid: Uid,
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
    /// How often the pod was due before.
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

/// Whom of a group something has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// All of its pods.
    All,
    /// The first. The same is to be done about each of the others by itself.
    First,
    /// The first, which is gone. What is to be done about the others is open.
    Gone,
}

/// What became of whom something has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Those that are still there are due again after a while, which grows from time to time: whatever was done may
    /// have failed, or not have helped.
    Acted,
    /// The same, and their workload is paused for it: what outlives that is of a run that was judged already.
    Paused,
    /// It failed: those that are still there are due again after a while. It doesn't count as a try.
    Failed,
    /// Nothing more is to be done, whatever happens.
    Final,
    /// They were told what was to be told.
    Told,
    /// They could not be told: they are due again after a while, which grows from time to time.
    Untold,
}
