//! The results that counters distinguish. The name of a variant is the value of its label.

use std::fmt::Debug;

/// Returns the label of a result.
pub fn label(result: impl Debug) -> String {
    format!("{result:?}")
}

/// The result of stamping a `PodGroup`.
#[derive(Clone, Copy, Debug)]
pub enum StampResult {
    /// The start was written.
    Stamped,
    /// The start would have been written, if it weren't a dry run.
    WouldStamp,
    /// The group was changed or gone meanwhile, and is judged again.
    Stale,
    /// The write failed, and will be tried again.
    Failed,
}

/// The result of writing a queue's status.
#[derive(Clone, Copy, Debug)]
pub enum StatusResult {
    /// The status was written.
    Written,
    /// The status was written, without the names of the child queues, which another field manager
    /// owns.
    ChildrenLeft,
    /// The queue was gone, or changed too fast.
    Gone,
    /// The write failed, and will be tried again.
    Failed,
}

/// The result of writing an event.
#[derive(Clone, Copy, Debug)]
pub enum EventResult {
    /// The event was written.
    Written,
    /// The API server refuses the event.
    Refused,
    /// The write failed for too long, or the namespace is gone.
    Failed,
    /// Too many events waited.
    Dropped,
}

/// The result of handling an expired pod.
#[derive(Clone, Copy, Debug)]
pub enum ExpiryResult {
    /// The owner was paused.
    Paused,
    /// The pod or its owner was deleted.
    Deleted,
    /// The owner would have been paused, if it weren't a dry run.
    WouldPause,
    /// The pod or its owner would have been deleted, if it weren't a dry run.
    WouldDelete,
    /// Nothing was to be done, or nothing more.
    Nothing,
    /// The pod is judged again, because a watch or a clock may be behind.
    PutOff,
    /// The act failed, and will be tried again.
    Failed,
}

impl StatusResult {
    /// All results, for counters that begin at zero.
    pub const ALL: [Self; 4] = [Self::Written, Self::ChildrenLeft, Self::Gone, Self::Failed];
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug)]
pub enum MessageResult {
    /// The receiver has accepted the message.
    Sent,
    /// The receiver will never accept the message.
    Refused,
    /// The message was tried for too long.
    Failed,
    /// Too many messages waited, or the message was too old, or its receiver or the leadership was
    /// gone.
    Dropped,
}

impl MessageResult {
    /// All results, for counters that begin at zero.
    pub const ALL: [Self; 4] = [Self::Sent, Self::Refused, Self::Failed, Self::Dropped];
}
