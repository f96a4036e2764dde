//! The path of a queue: its length, its queues, and the nearest queue with a floor.
//!
//! A path leads from a queue upward. It ends before it would enter a queue for the second time, as
//! it ends at a parent that doesn't exist: in a cycle, each queue has all others above it.
//!
//! The length and the nearest queue are remembered for each queue on the way, until the tree
//! changes. Called by the rules of floors and ceilings, by the status of queues, and by `matrix` of
//! the plugin.

use std::iter;

use super::{Inherited, NO_QUEUE, QueueId, QueueNode, QueueTree, memo::Memo};

/// The bit in the depth of a queue that is in a cycle, or below one.
const CYCLIC: u32 = 1 << 31;

impl QueueTree {
    /// Returns the number of queues on the path of a queue, the queue itself included.
    pub fn depth(&self, leaf: QueueId) -> u32 {
        self.measure(leaf) & !CYCLIC
    }

    /// True if a queue is its own ancestor, or has such an ancestor.
    pub fn meets_cycle(&self, leaf: QueueId) -> bool {
        self.measure(leaf) & CYCLIC != 0
    }

    /// True if a queue is its own ancestor.
    pub fn is_in_cycle(&self, id: QueueId) -> bool {
        self.parent(id).is_some_and(|parent| self.measure(parent) == self.measure(id))
    }

    /// Returns the depth of a queue with its bit.
    fn measure(&self, leaf: QueueId) -> u32 {
        let known = self.node(leaf).and_then(|node| node.depth.get(self.generation));
        known.unwrap_or_else(|| self.count_depth(leaf))
    }

    /// Counts the depth of a queue, and remembers that of each queue on the way.
    fn count_depth(&self, leaf: QueueId) -> u32 {
        let known = |id| self.node(id).and_then(|node| node.depth.get(self.generation));
        let (mut steps, mut top) = (0u32, Some(leaf));
        let (mut mark, mut marked_at) = (None, 0);
        let above = loop {
            let Some(id) = top else { break 0 };
            if let Some(depth) = known(id) {
                break depth;
            }
            if mark == top {
                let length = steps.saturating_sub(marked_at);
                for (member, _) in self.upward(id).zip(0..length) {
                    self.remember(member, |node| &node.depth, length | CYCLIC);
                }
                // now the way ends where it enters the cycle
                (steps, top) = (0, Some(leaf));
                continue;
            }
            // each mark stays for twice as many steps: a way round a cycle comes back to one
            if steps.is_power_of_two() {
                (mark, marked_at) = (top, steps);
            }
            top = self.parent(id);
            steps = steps.saturating_add(1);
        };
        let depth = steps.saturating_add(above);
        for (id, place) in self.upward(leaf).zip((above.saturating_add(1)..=depth).rev()) {
            self.remember(id, |node| &node.depth, place);
        }
        depth
    }

    /// Returns a queue and its ancestors, leaf first. A way into a cycle never ends.
    fn upward(&self, leaf: QueueId) -> impl Iterator<Item = QueueId> {
        iter::successors(Some(leaf), |id| self.parent(*id))
    }

    /// Returns a queue and its ancestors, leaf first, each once. A queue that doesn't exist ends the
    /// path: its children are at the top.
    pub fn path(&self, leaf: QueueId) -> Vec<QueueId> {
        self.upward(leaf).zip(0..self.depth(leaf)).map(|(id, _)| id).collect()
    }

    /// Returns the nearest queue on the path that has a floor of its own. None: no queue has one.
    pub fn nearest(&self, leaf: QueueId, field: Inherited) -> Option<QueueId> {
        let known = |id| self.node(id).and_then(|node| memo(field, node).get(self.generation));
        let own = |id| self.node(id).is_some_and(|node| field.pick(node.has_preempt, node.has_reclaim));
        let found = known(leaf).unwrap_or_else(|| {
            let mut path = self.upward(leaf).zip(0..self.depth(leaf)).map(|(id, _)| id);
            let found = path.find_map(|id| known(id).or_else(|| own(id).then_some(id.0))).unwrap_or(NO_QUEUE);
            for id in self.upward(leaf).take_while(|id| known(*id).is_none()) {
                self.remember(id, |node| memo(field, node), found);
                if id.0 == found {
                    break;
                }
            }
            found
        });
        (found != NO_QUEUE).then_some(QueueId(found))
    }

    /// Returns the queue one step below the lowest common ancestor, towards the victim: the victim
    /// itself if it is that ancestor, the last queue of its path if they have none. From a common
    /// ancestor on, the two paths are the same. A preemptor that is in no tree has no ancestor in
    /// common with any queue.
    pub fn towards(&self, victim: QueueId, preemptor: Option<QueueId>) -> QueueId {
        let mut depth = self.depth(victim);
        let (mut other, mut other_depth) = (preemptor, preemptor.map_or(0, |id| self.depth(id)));
        while other_depth > depth {
            other = other.and_then(|id| self.parent(id));
            other_depth = other_depth.saturating_sub(1);
        }
        let (mut below, mut at) = (victim, Some(victim));
        while let Some(id) = at.filter(|_| depth > 0 && at != other) {
            below = id;
            at = self.parent(id);
            if depth == other_depth {
                other = other.and_then(|id| self.parent(id));
                other_depth = other_depth.saturating_sub(1);
            }
            depth = depth.saturating_sub(1);
        }
        below
    }
}

fn memo(field: Inherited, node: &QueueNode) -> &Memo {
    field.pick(&node.nearest_preempt, &node.nearest_reclaim)
}
