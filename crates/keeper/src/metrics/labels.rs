//! The labels of counters.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ExtensionLabels {
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ExpirationLabels {
    pub family: &'static str,
    pub queue: String,
    pub kind: String,
    pub result: ExpiryResult,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct PauseLabels {
    pub family: &'static str,
    pub queue: String,
    pub kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct EvictionLabels {
    pub family: &'static str,
    pub queue: String,
    pub cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct QueueLabels {
    pub family: &'static str,
    pub queue: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct StampLabels {
    pub group: &'static str,
    pub result: StampResult,
}

/// The result of stamping a `PodGroup`.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
pub enum StampResult {
    /// It was stamped.
    Stamped,
    /// It would have been stamped, if it weren't a dry run.
    WouldStamp,
    /// It was changed or gone meanwhile, and is judged again.
    Stale,
    /// It failed, and will be tried again.
    Failed,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct StatusLabels {
    pub result: StatusResult,
}

/// The result of writing a queue's status.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct EventLabels {
    pub result: EventResult,
}

/// The result of writing an event.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
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
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
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
    pub(super) const ALL: [Self; 4] = [Self::Written, Self::ChildrenLeft, Self::Gone, Self::Failed];
}
