//! The tree of queues in which every inherited value is resolved.
//!
//! The index keeps one per family from the watches of queues. A queue may name a parent that
//! doesn't exist, and stored queues may form cycles: the tree holds them. A path ends before it would
//! enter a queue for the second time, as it ends at a parent that doesn't exist.

mod ancestry;
mod errors;
mod memo;

use std::collections::{BTreeSet, HashMap, HashSet};

pub use crate::queue::Inherited;
use crate::queue::RunaiQueue;

pub use errors::{QueueTreeError, tree_errors, way};
use memo::Memo;

/// The queues of one family, linked to their parents. Queues of T9k have none.
///
/// A change costs as much as a queue has parents, which is one. Frequent results are remembered
/// beside each queue until the next change: memory grows with the number of queues, and never with
/// that of pairs of them.
#[derive(Clone, Debug)]
pub struct QueueTree {
    /// The place of each name: of queues, and of missing parents.
    ids: HashMap<Box<str>, QueueId>,
    /// The queues and missing parents, by [`QueueId`].
    nodes: Vec<QueueNode>,
    /// The children of each of the nodes, in no order.
    children: Vec<BTreeSet<QueueId>>,
    /// Places whose queue was deleted, to be used again.
    free: Vec<QueueId>,
    /// The name of the queue that counts for names that no queue has. None: no queue counts for
    /// them.
    default: Option<Box<str>>,
    /// The number of queues that exist.
    len: usize,
    /// The number of the last change. Memos of other generations don't count.
    generation: u32,
}

/// A queue in a [`QueueTree`]. Valid until the tree changes: a later queue may get the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u32);

impl QueueId {
    /// Returns its index in a list of nodes.
    fn place(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A queue, or a missing parent. All that a way to the root asks of a queue is in one line of the
/// processor's cache.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct QueueNode {
    name: Box<str>,
    /// The queue. None: it doesn't exist, but another queue names it as its parent.
    queue: Option<Box<RunaiQueue>>,
    /// The place of the parent's name. None: the queue is at the top.
    parent: Option<QueueId>,
    has_preempt: bool,
    has_reclaim: bool,
    /// The number of queues on the path, the queue itself included, and a bit if the path leads into
    /// a cycle.
    depth: Memo,
    /// The nearest queue with a `preemptMinRuntime`, or `NO_QUEUE`.
    nearest_preempt: Memo,
    /// The nearest queue with a `reclaimMinRuntime`, or `NO_QUEUE`.
    nearest_reclaim: Memo,
}

impl QueueNode {
    fn forget(&mut self) {
        (self.depth, self.nearest_preempt, self.nearest_reclaim) = Default::default();
    }
}

/// Remembered where no queue on the way has a floor.
const NO_QUEUE: u32 = u32::MAX;

impl Default for QueueTree {
    fn default() -> Self {
        // memos begin with generation 0, and none of these counts
        let (ids, nodes, children, free, default) = Default::default();
        Self { ids, nodes, children, free, default, len: 0, generation: 1 }
    }
}

impl QueueTree {
    /// Adds or replaces a queue. Returns true if that changes anything.
    pub fn put(&mut self, name: &str, queue: RunaiQueue) -> bool {
        let id = self.enter(name);
        let known = self.node(id).and_then(|node| node.queue.as_deref());
        if known == Some(&queue) {
            return false;
        }
        let is_new = known.is_none();
        let parent = queue.parent.as_deref().map(|parent| self.enter(parent));
        if let Some(node) = self.node_mut(id) {
            node.has_preempt = queue.preempt_floor.is_some();
            node.has_reclaim = queue.reclaim_floor.is_some();
            node.queue = Some(Box::new(queue));
        }
        self.hang(id, parent);
        self.len = self.len.saturating_add(usize::from(is_new));
        self.changed();
        true
    }

    /// Removes a queue. Returns true if it existed.
    pub fn delete(&mut self, name: &str) -> bool {
        let Some(id) = self.find(name) else { return false };
        if let Some(node) = self.node_mut(id) {
            node.queue = None;
            (node.has_preempt, node.has_reclaim) = (false, false);
        }
        self.hang(id, None);
        self.drop_if_unused(id);
        self.len = self.len.saturating_sub(1);
        self.changed();
        true
    }

    /// Returns the number of queues that exist.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there is no queue.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the queue of a name. None: it doesn't exist.
    pub fn find(&self, name: &str) -> Option<QueueId> {
        let id = *self.ids.get(name)?;
        self.exists(id).then_some(id)
    }

    /// Sets the default queue, which counts for workloads that name a missing queue. None: there is
    /// no default queue.
    pub fn set_default(&mut self, name: Option<&str>) {
        self.default = name.map(Into::into);
    }

    /// Returns the queue that counts for a workload that gives this name: the queue of that name,
    /// else the default queue. None: neither exists.
    pub fn bind(&self, name: &str) -> Option<QueueId> {
        self.find(name).or_else(|| self.find(self.default.as_deref()?))
    }

    /// Returns the stored name and the fields of a queue. None: it doesn't exist.
    pub fn queue(&self, name: &str) -> Option<(&str, &RunaiQueue)> {
        self.get(self.find(name)?)
    }

    /// Returns the name of a queue and its fields. None: it doesn't exist.
    pub fn get(&self, id: QueueId) -> Option<(&str, &RunaiQueue)> {
        let node = self.node(id)?;
        Some((&node.name, node.queue.as_deref()?))
    }

    /// Returns the name of a queue, or of a missing parent.
    pub fn name(&self, id: QueueId) -> &str {
        self.node(id).map_or("", |node| &node.name)
    }

    /// Returns the parent. None: the queue is at the top, or its parent doesn't exist.
    pub fn parent(&self, id: QueueId) -> Option<QueueId> {
        self.node(id)?.parent.filter(|parent| self.exists(*parent))
    }

    /// Returns all queues with their names, in no order.
    pub fn queues(&self) -> impl Iterator<Item = (&str, &RunaiQueue)> {
        self.nodes.iter().filter_map(|node| Some((&*node.name, node.queue.as_deref()?)))
    }

    /// Returns the queues that name this parent, in no order. A queue of that name needn't exist.
    pub fn children(&self, name: &str) -> impl Iterator<Item = (&str, &RunaiQueue)> {
        let children = self.ids.get(name).and_then(|id| self.children.get(id.place()));
        children.into_iter().flatten().filter_map(|id| self.get(*id))
    }

    /// Returns these names, and those of all queues below them.
    pub fn with_all_below<'t>(&'t self, names: impl IntoIterator<Item = &'t str>) -> HashSet<&'t str> {
        let (mut all, mut next) = (HashSet::new(), Vec::from_iter(names));
        while let Some(name) = next.pop() {
            if all.insert(name) {
                next.extend(self.children(name).map(|(child, _)| child));
            }
        }
        all
    }

    fn node(&self, id: QueueId) -> Option<&QueueNode> {
        self.nodes.get(id.place())
    }

    fn node_mut(&mut self, id: QueueId) -> Option<&mut QueueNode> {
        self.nodes.get_mut(id.place())
    }

    fn exists(&self, id: QueueId) -> bool {
        self.node(id).is_some_and(|node| node.queue.is_some())
    }

    fn remember(&self, id: QueueId, memo: impl Fn(&QueueNode) -> &Memo, value: u32) {
        if let Some(node) = self.node(id) {
            memo(node).set(self.generation, value);
        }
    }

    /// Begins a new generation, so that no memo counts any more.
    fn changed(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            // the number starts again from 1: memos of the first generations would count again
            for node in &mut self.nodes {
                node.forget();
            }
            1
        });
    }

    /// Returns the place of a name. A name without a place gets one.
    fn enter(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let node = QueueNode { name: name.into(), ..QueueNode::default() };
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(QueueNode::default());
            self.children.push(BTreeSet::new());
            // a cluster has far fewer queues than a u32 has values
            QueueId(u32::try_from(self.nodes.len()).map_or(NO_QUEUE, |len| len.saturating_sub(1)))
        });
        if let Some(place) = self.node_mut(id) {
            *place = node;
        }
        self.ids.insert(name.into(), id);
        id
    }

    /// Gives a queue another parent, or none.
    fn hang(&mut self, id: QueueId, parent: Option<QueueId>) {
        let before = self.node_mut(id).and_then(|node| std::mem::replace(&mut node.parent, parent));
        if let Some(children) = before.and_then(|before| self.children.get_mut(before.place())) {
            children.remove(&id);
        }
        if let Some(children) = parent.and_then(|parent| self.children.get_mut(parent.place())) {
            children.insert(id);
        }
        if let Some(before) = before {
            self.drop_if_unused(before);
        }
    }

    /// Frees the place of a queue that doesn't exist and that no queue names as its parent.
    fn drop_if_unused(&mut self, id: QueueId) {
        let has_children = self.children.get(id.place()).is_some_and(|children| !children.is_empty());
        let Some(node) = self.node_mut(id).filter(|node| node.queue.is_none() && !has_children) else {
            return;
        };
        let name = std::mem::take(&mut node.name);
        // a queue that is its own parent is dropped by its child, and then by itself
        if self.ids.remove(&name).is_some() {
            self.free.push(id);
        }
    }
}

impl<N: AsRef<str>> FromIterator<(N, RunaiQueue)> for QueueTree {
    fn from_iter<I: IntoIterator<Item = (N, RunaiQueue)>>(queues: I) -> Self {
        let mut tree = Self::default();
        for (name, queue) in queues {
            tree.put(name.as_ref(), queue);
        }
        tree
    }
}

#[cfg(test)]
mod tests;
