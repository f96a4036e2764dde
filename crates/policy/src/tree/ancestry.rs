//! The way from a queue to the root: its length, its queues, and the nearest queue with a floor.
//!
//! The length and the nearest queue are remembered for each queue on the way, until the tree
//! changes. Called by the rules of floors and ceilings, by the status of queues, and by `matrix` of
//! the plugin.

use super::{Cycle, Inherited, NO_QUEUE, QueueId, QueueNode, QueueTree, memo::Memo};

impl QueueTree {
    /// Returns the number of queues on the way to the root, the queue itself included.
    pub fn depth(&self, leaf: QueueId) -> Result<u32, Cycle> {
        match self.node(leaf).and_then(|node| node.depth.get(self.generation)) {
            Some(0) => Err(Cycle),
            Some(depth) => Ok(depth),
            None => self.count_depth(leaf),
        }
    }

    /// Counts the depth of a queue, and remembers that of each queue on the way.
    fn count_depth(&self, leaf: QueueId) -> Result<u32, Cycle> {
        let known = |id| self.node(id).and_then(|node| node.depth.get(self.generation));
        let queues = u32::try_from(self.len).unwrap_or(u32::MAX);
        let (mut steps, mut top) = (0u32, Some(leaf));
        let above = loop {
            let Some(id) = top else { break 0 };
            match known(id) {
                Some(0) => return self.in_cycle(leaf),
                Some(depth) => break depth,
                // only a way round a cycle has more steps than there are queues
                None if steps > queues => return self.in_cycle(leaf),
                None => {
                    top = self.parent(id);
                    steps = steps.saturating_add(1);
                }
            }
        };
        let depth = steps.saturating_add(above);
        let mut next = Some(leaf);
        for place in (above.saturating_add(1)..=depth).rev() {
            let Some(id) = next else { break };
            self.remember(id, |node| &node.depth, place);
            next = self.parent(id);
        }
        Ok(depth)
    }

    /// Remembers that a queue and all above it have no way to the root.
    fn in_cycle(&self, leaf: QueueId) -> Result<u32, Cycle> {
        let unknown =
            |id: &QueueId| self.node(*id).is_some_and(|node| node.depth.get(self.generation).is_none());
        let mut next = Some(leaf).filter(unknown);
        while let Some(id) = next {
            self.remember(id, |node| &node.depth, 0);
            next = self.parent(id).filter(unknown);
        }
        Err(Cycle)
    }

    /// Returns a queue and its ancestors, leaf first. A queue that doesn't exist ends the path: its
    /// children are at the top.
    pub fn path(&self, leaf: QueueId) -> Result<Vec<QueueId>, Cycle> {
        self.depth(leaf)?;
        Ok(std::iter::successors(Some(leaf), |id| self.parent(*id)).collect())
    }

    /// Returns the nearest queue on the way to the root that has a floor of its own. None: no queue
    /// has one.
    pub fn nearest(&self, leaf: QueueId, field: Inherited) -> Result<Option<QueueId>, Cycle> {
        let known = |id| self.node(id).and_then(|node| memo(field, node).get(self.generation));
        let own = |id| self.node(id).is_some_and(|node| field.pick(node.has_preempt, node.has_reclaim));
        let found = if let Some(found) = known(leaf) {
            found
        } else {
            self.depth(leaf)?;
            let mut way = std::iter::successors(Some(leaf), |id| self.parent(*id));
            let found = way.find_map(|id| known(id).or_else(|| own(id).then_some(id.0))).unwrap_or(NO_QUEUE);
            let mut below = std::iter::successors(Some(leaf), |id| self.parent(*id));
            while let Some(id) = below.next().filter(|id| known(*id).is_none()) {
                self.remember(id, |node| memo(field, node), found);
                if id.0 == found {
                    break;
                }
            }
            found
        };
        Ok((found != NO_QUEUE).then_some(QueueId(found)))
    }

    /// Returns the queue one step below the lowest common ancestor, towards the victim: the victim
    /// itself if it is that ancestor, its top-level queue if they have none. A preemptor that is in
    /// no tree has no ancestor in common with any queue.
    pub fn towards(&self, victim: QueueId, preemptor: Option<QueueId>) -> Result<QueueId, Cycle> {
        let mut depth = self.depth(victim)?;
        let other = preemptor.and_then(|id| Some((id, self.depth(id).ok()?)));
        let (mut other, mut other_depth) = other.map_or((None, 0), |(id, depth)| (Some(id), depth));
        while other_depth > depth {
            other = other.and_then(|id| self.parent(id));
            other_depth = other_depth.saturating_sub(1);
        }
        let (mut below, mut at) = (victim, Some(victim));
        while let Some(id) = at.filter(|_| at != other) {
            below = id;
            at = self.parent(id);
            if depth == other_depth {
                other = other.and_then(|id| self.parent(id));
                other_depth = other_depth.saturating_sub(1);
            }
            depth = depth.saturating_sub(1);
        }
        Ok(below)
    }
}

fn memo(field: Inherited, node: &QueueNode) -> &Memo {
    field.pick(&node.nearest_preempt, &node.nearest_reclaim)
}
