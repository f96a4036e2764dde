//! The limits that apply to the workloads of a queue.

use jiff::SignedDuration;
use tenure_types::{
    TensorstackDuration,
    runai::v3alpha1::{MaxDurationAction, OnReversal, OverCeiling},
};

use crate::{
    extension::Allowance,
    floor::Floors,
    inheritance::Effective,
    notice::NoticePoints,
    queue::TensorstackQueue,
    ready::PodsReady,
    tree::{Cycle, QueueId, QueueTree},
};

/// The limits of the workloads of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The longest run; none: no limit.
    pub ceiling: Option<SignedDuration>,
    /// The points before its end at which a workload gets a notice. None: the configured ones.
    pub notice: Option<NoticePoints>,
    /// The time for which a workload stays paused after its ceiling; none: until a person resumes it.
    pub slice_delay: Option<SignedDuration>,
    /// The action for a workload whose pauses are undone.
    pub on_reversal: OnReversal,
    /// The answer to the creation of a workload that asks for a longer run.
    pub over_ceiling: OverCeiling,
    /// The rules for workloads that don't get ready; none: the configured ones.
    pub pods_ready: Option<PodsReady>,
    /// The time that a run may get beyond its ceiling.
    pub extensions: Allowance,
    /// True if the topmost queue on the way names a parent that isn't there: fields that it sets don't count.
    pub lacks_parent: bool,
}

impl Limits {
    /// Resolves the limits of a leaf queue of the run.ai family.
    pub fn of(tree: &QueueTree, floors: &Floors, leaf: QueueId) -> Result<Self, Cycle> {
        let of = Effective::of(tree, floors, leaf)?;
        let delay = || of.requeue_delay.unwrap_or_default().to_signed();
        Ok(Self {
            ceiling: of.longest_run(),
            notice: of.notice.map(NoticePoints::from),
            slice_delay: (of.action == Some(MaxDurationAction::Requeue)).then(delay),
            on_reversal: of.on_reversal.unwrap_or_default(),
            over_ceiling: of.over_ceiling.unwrap_or_default(),
            pods_ready: of.pods_ready.copied(),
            extensions: of.extensions.unwrap_or_default(),
            lacks_parent: of.lacks_parent,
        })
    }
}

impl From<&TensorstackQueue> for Limits {
    fn from(queue: &TensorstackQueue) -> Self {
        Self {
            ceiling: queue.ceiling.map(TensorstackDuration::to_signed),
            notice: queue.notice.map(NoticePoints::from),
            slice_delay: None,
            on_reversal: OnReversal::default(),
            // their queues have no such field
            over_ceiling: OverCeiling::Warn,
            pods_ready: None,
            extensions: Allowance::default(),
            lacks_parent: false,
        }
    }
}

#[cfg(test)]
mod tests;
