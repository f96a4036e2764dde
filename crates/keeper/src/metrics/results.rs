//! The results that counters tell apart. The name of a result is the value of its label.

use std::fmt::Debug;

/// Returns the label of a result.
pub fn label(result: impl Debug) -> String {
    format!("{result:?}")
}

/// The result of stamping a `PodGroup`.
#[derive(Clone, Copy, Debug)]
pub enum StampResult {
    Stamped,
    /// It would have been stamped, if it weren't a dry run.
    WouldStamp,
    /// It was changed or gone meanwhile, and is judged again.
    Stale,
    /// It failed, and will be tried again.
    Failed,
}

/// The result of writing a queue's status.
#[derive(Clone, Copy, Debug)]
pub enum StatusResult {
    /// It was written.
    Written,
    /// It was written, without the names of the child queues, which another field manager owns.
    ChildrenLeft,
    /// The queue was gone, or changed too fast.
    Gone,
    /// It failed, and will be tried again.
    Failed,
}

/// The result of writing an event.
#[derive(Clone, Copy, Debug)]
pub enum EventResult {
    /// It was written.
    Written,
    /// The API server refuses it.
    Refused,
    /// It failed for too long, or its namespace is gone.
    Failed,
    /// Too many events waited.
    Dropped,
}

/// The result of handling an expired pod.
#[derive(Clone, Copy, Debug)]
pub enum ExpiryResult {
    /// Its owner was paused.
    Paused,
    /// The pod was deleted.
    Deleted,
    /// Its owner would have been paused, if it weren't a dry run.
    WouldPause,
    /// The pod would have been deleted, if it weren't a dry run.
    WouldDelete,
    /// Nothing was to be done, or nothing more.
    Nothing,
    /// It is judged again, because a watch or a clock may be behind.
    PutOff,
    /// It failed, and will be tried again.
    Failed,
}

impl StatusResult {
    pub const ALL: [Self; 4] = [Self::Written, Self::ChildrenLeft, Self::Gone, Self::Failed];
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug)]
pub enum MessageResult {
    /// Its receiver has taken it.
    Sent,
    /// Its receiver won't ever take it.
    Refused,
    /// It was tried for too long.
    Failed,
    /// Too many messages waited, or it was too old, or its receiver or the leadership was gone.
    Dropped,
}

impl MessageResult {
    pub const ALL: [Self; 4] = [Self::Sent, Self::Refused, Self::Failed, Self::Dropped];
}
