//! The place of a workload in the tree of queues.

use crate::tree::{QueueId, QueueTree};

/// The kind of a preemption: within a leaf queue, or across queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionKind {
    /// Preemptor and victim are in the same leaf queue.
    Preempt,
    /// Preemptor and victim are in different queues.
    Reclaim,
}

/// The leaf queue that a workload names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The name of the queue.
    pub name: Option<&'a str>,
    /// The queue, if it exists.
    pub queue: Option<QueueId>,
}

impl<'a> Place<'a> {
    /// Looks the queue up. None: the workload names no queue, and no floor applies to it.
    pub fn find(tree: &QueueTree, name: Option<&'a str>) -> Self {
        Self { name, queue: name.and_then(|name| tree.bind(name)) }
    }

    pub(super) fn kind(&self, preemptor: &Self) -> PreemptionKind {
        let same = match (self.queue, preemptor.queue) {
            (Some(queue), Some(other)) => queue == other,
            _ => self.name == preemptor.name,
        };
        if same { PreemptionKind::Preempt } else { PreemptionKind::Reclaim }
    }
}
