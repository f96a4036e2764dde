//! The limits that apply to the workloads of a queue.

use jiff::SignedDuration;
use tenure_types::{
    ExtendedDuration, TensorstackDuration,
    runai::v3alpha1::{MaxDurationAction, OnReversal},
};

use crate::{
    extension::Allowance,
    floor::{Floors, LongestFloors},
    notice::NoticePoints,
    queue::{RunaiQueue, TensorstackQueue},
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
        let ids = tree.path(leaf)?;
        let path: Vec<_> = ids.iter().filter_map(|id| Some(tree.get(*id)?.1)).collect();
        let nearest = |field: fn(&RunaiQueue) -> Option<ExtendedDuration>| {
            path.iter().find_map(|queue| field(queue)).map(ExtendedDuration::to_signed)
        };
        let slices = path.iter().rev().fold(Slices::default(), |above, queue| above.below(queue, floors));
        let action = path.iter().find_map(|queue| queue.action).unwrap_or_default();
        let delay = || nearest(|queue| queue.requeue_delay).unwrap_or_default();
        Ok(Self {
            ceiling: slices.ceiling().map(ExtendedDuration::to_signed),
            notice: path.iter().find_map(|queue| queue.notice).map(NoticePoints::from),
            slice_delay: (action == MaxDurationAction::Requeue).then(delay),
            on_reversal: path.iter().find_map(|queue| queue.on_reversal).unwrap_or_default(),
            pods_ready: path.iter().find_map(|queue| queue.pods_ready.as_deref().copied()),
            extensions: path
                .iter()
                .filter_map(|queue| queue.allowance())
                .reduce(Allowance::least)
                .unwrap_or_default(),
            lacks_parent: path.last().is_some_and(|top| top.parent.is_some()),
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
            pods_ready: None,
            extensions: Allowance::default(),
            lacks_parent: false,
        }
    }
}

/// The ceiling of a queue, worked out on the way from the root down to it: the least on the way.
///
/// With `maxDurationAction: Requeue` the queue's own `maxDuration` is a time slice, which lasts at least as long as the
/// longest floor of that queue. The slice is never longer than the ceiling or slice of the parent's workloads, which no field
/// of a child changes: so a child can shorten it, and never lengthen it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slices {
    action: MaxDurationAction,
    unstretched: Option<ExtendedDuration>,
    applies: Option<ExtendedDuration>,
    floors: LongestFloors,
}

impl Slices {
    /// The ceiling of a queue whose parent has this one.
    #[must_use]
    pub(crate) fn below(self, queue: &RunaiQueue, floors: &Floors) -> Self {
        let least = |one: Option<_>, other: Option<_>| one.into_iter().chain(other).min();
        let action = queue.action.unwrap_or(self.action);
        let unstretched = least(self.unstretched, queue.ceiling);
        let longest = self.floors.below(queue, floors);
        let applies = match action {
            MaxDurationAction::Pause => unstretched,
            MaxDurationAction::Requeue => {
                let slice = queue.ceiling.map(|own| own.max(longest.longest(floors)));
                least(self.applies, slice)
            }
        };
        Self { action, unstretched, applies, floors: longest }
    }

    /// The longest run.
    pub(crate) const fn ceiling(&self) -> Option<ExtendedDuration> {
        self.applies
    }
}

#[cfg(test)]
mod tests;
