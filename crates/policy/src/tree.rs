//! The tree of queues that every inherited value is resolved in.

mod ancestry;
mod memo;
mod troubles;

use std::collections::{BTreeSet, HashMap, HashSet};

pub use crate::queue::Inherited;
use crate::queue::RunaiQueue;

use memo::Memo;
pub use troubles::{Trouble, troubles, way};

/// The queues of the run.ai family, linked to their parents.
///
/// A change costs as much as a queue has parents, which is one. Frequent results are remembered beside each queue until
/// the next change: memory grows with the number of queues, and never with that of pairs of them.
#[derive(Debug)]
pub struct QueueTree {
    ids: HashMap<Box<str>, QueueId>,
    nodes: Vec<Node>,
    /// The children of each of the nodes, in no order.
    children: Vec<BTreeSet<QueueId>>,
    free: Vec<QueueId>,
    /// The name of the queue that counts for names that no queue has.
    default: Option<Box<str>>,
    /// The number of queues that exist.
    len: usize,
    generation: u32,
}

/// A queue in a [`QueueTree`], as long as the tree doesn't change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u32);

impl QueueId {
    /// Its index in a list of nodes.
    fn place(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The queues on the way to the root go round in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue's ancestors form a cycle")]
pub struct Cycle;

/// All that a way to the root asks of a queue is in one line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Node {
    name: Box<str>,
    /// None: it doesn't exist, but another queue names it as its parent.
    queue: Option<Box<RunaiQueue>>,
    parent: Option<QueueId>,
    has_preempt: bool,
    has_reclaim: bool,
    /// Queues on the way to the root, itself included; 0 if there is no root.
    depth: Memo,
    nearest_preempt: Memo,
    nearest_reclaim: Memo,
}

impl Node {
    fn forget(&mut self) {
        (self.depth, self.nearest_preempt, self.nearest_reclaim) = Default::default();
    }
}

/// Remembered where there is no such queue.
const NO_QUEUE: u32 = u32::MAX;

impl Default for QueueTree {
    fn default() -> Self {
        // memos begin with generation 0
        let (ids, nodes, children, free, default) = Default::default();
        Self { ids, nodes, children, free, default, len: 0, generation: 1 }
    }
}

impl QueueTree {
    /// Takes a queue; says whether that changes anything.
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

    /// Forgets a queue; says whether it was known.
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

    /// Forgets all queues but these; says whether any was forgotten.
    pub fn retain(&mut self, names: &HashSet<String>) -> bool {
        let gone: Vec<Box<str>> =
            self.queues().filter(|(name, _)| !names.contains(*name)).map(|(name, _)| name.into()).collect();
        for name in &gone {
            self.delete(name);
        }
        !gone.is_empty()
    }

    /// The number of queues.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there is no queue.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A queue, if it exists.
    pub fn find(&self, name: &str) -> Option<QueueId> {
        let id = *self.ids.get(name)?;
        self.exists(id).then_some(id)
    }

    /// Sets the queue that counts for workloads that name a queue that doesn't exist.
    pub fn set_default(&mut self, name: Option<&str>) {
        self.default = name.map(Into::into);
    }

    /// The queue that counts for a workload that gives this name: the queue of that name, else the default queue.
    pub fn bind(&self, name: &str) -> Option<QueueId> {
        self.find(name).or_else(|| self.find(self.default.as_deref()?))
    }

    /// A queue by name, if it exists.
    pub fn queue(&self, name: &str) -> Option<(&str, &RunaiQueue)> {
        self.get(self.find(name)?)
    }

    /// Returns the name of a queue and its fields.
    pub fn get(&self, id: QueueId) -> Option<(&str, &RunaiQueue)> {
        let node = self.node(id)?;
        Some((&node.name, node.queue.as_deref()?))
    }

    /// The name of a queue.
    pub fn name(&self, id: QueueId) -> &str {
        self.node(id).map_or("", |node| &node.name)
    }

    /// The parent, if there is one and it exists.
    pub fn parent(&self, id: QueueId) -> Option<QueueId> {
        self.node(id)?.parent.filter(|parent| self.exists(*parent))
    }

    /// All queues, in no order.
    pub fn queues(&self) -> impl Iterator<Item = (&str, &RunaiQueue)> {
        self.nodes.iter().filter_map(|node| Some((&*node.name, node.queue.as_deref()?)))
    }

    /// The queues whose parent a name is, in no order. A queue of that name needn't exist.
    pub fn children(&self, name: &str) -> impl Iterator<Item = (&str, &RunaiQueue)> {
        let children = self.ids.get(name).and_then(|id| self.children.get(id.place()));
        children.into_iter().flatten().filter_map(|id| self.get(*id))
    }

    /// These names, and those of all queues below them.
    pub fn with_all_below<'t>(&'t self, names: impl IntoIterator<Item = &'t str>) -> HashSet<&'t str> {
        let (mut all, mut next) = (HashSet::new(), Vec::from_iter(names));
        while let Some(name) = next.pop() {
            if all.insert(name) {
                next.extend(self.children(name).map(|(child, _)| child));
            }
        }
        all
    }

    fn node(&self, id: QueueId) -> Option<&Node> {
        self.nodes.get(id.place())
    }

    fn node_mut(&mut self, id: QueueId) -> Option<&mut Node> {
        self.nodes.get_mut(id.place())
    }

    fn exists(&self, id: QueueId) -> bool {
        self.node(id).is_some_and(|node| node.queue.is_some())
    }

    fn remember(&self, id: QueueId, memo: impl Fn(&Node) -> &Memo, value: u32) {
        if let Some(node) = self.node(id) {
            memo(node).set(self.generation, value);
        }
    }

    fn changed(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            // what was remembered in the first generations would be believed again
            for node in &mut self.nodes {
                node.forget();
            }
            1
        });
    }

    /// The place of a name, made if there is none.
    fn enter(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let node = Node { name: name.into(), ..Node::default() };
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.children.push(BTreeSet::new());
            // a cluster has fewer than four thousand million queues
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
