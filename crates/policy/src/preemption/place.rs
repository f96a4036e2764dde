//! The place of a workload or a pod in the tree of queues, and the kind of a preemption between two
//! places.

use crate::tree::{QueueId, QueueTree};

/// The kind of a preemption: within a leaf queue, or across queues. It decides which floor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionKind {
    /// Preemptor and victim are in the same leaf queue: `preemptMinRuntime` counts.
    Preempt,
    /// Preemptor and victim are in different queues: `reclaimMinRuntime` counts.
    Reclaim,
}

/// The leaf queue that a workload or a pod names.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePlace<'a> {
    /// The name of the queue. None: it names none, and no floor applies to it.
    pub name: Option<&'a str>,
    /// The queue that counts for the name: that of the name, or the default queue. None: neither
    /// exists.
    pub queue: Option<QueueId>,
}

impl<'a> QueuePlace<'a> {
    /// Looks up the queue of a name.
    pub fn find(tree: &QueueTree, name: Option<&'a str>) -> Self {
        Self { name, queue: name.and_then(|name| tree.bind(name)) }
    }

    /// Returns the kind of a preemption with `self` as the place of the victim. Queues that don't
    /// exist are compared by name.
    pub(super) fn kind(&self, preemptor: &Self) -> PreemptionKind {
        let same = match (self.queue, preemptor.queue) {
            (Some(queue), Some(other)) => queue == other,
            _ => self.name == preemptor.name,
        };
        if same { PreemptionKind::Preempt } else { PreemptionKind::Reclaim }
    }
}
