//! The values that queues have from the queues above them, worked out once for each queue of a tree.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

use tenure_types::{ExtendedDuration, runai::v3alpha1::MaxDurationAction};

use crate::{
    extension::Allowance,
    floor::{Floors, ReclaimResolveMethod},
    queue::{Nearest, RunaiQueue},
    tree::{Cycle, Inherited, QueueId, QueueTree},
};

/// A duration, and the queue that has it.
pub(crate) type Of<'t> = (&'t str, ExtendedDuration);

/// The queues of a tree with the values that each of them inherits. It remembers these: to look at every queue of a tree
/// takes time in proportion to the number of queues, however long the ways to the root are.
#[derive(Debug)]
pub struct Inheritance<'t> {
    /// The queues.
    pub tree: &'t QueueTree,
    /// The configuration of floors.
    pub floors: &'t Floors,
    known: RefCell<HashMap<QueueId, Effective<'t>>>,
}

/// The values of a queue and of the queues above it that count for its workloads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effective<'t> {
    /// The least `maxDuration`; that of the queue nearest to the leaf if several have it.
    pub ceiling: Option<Of<'t>>,
    /// The longest run: the ceiling, or the time slice where workloads are requeued, which a floor may stretch.
    ///
    /// With `maxDurationAction: Requeue` the queue's own `maxDuration` is a time slice, which lasts at least as long as the
    /// longest floor of that queue. The slice is never longer than the ceiling or slice of the parent's workloads, which no
    /// field of a child changes: so a child can shorten it, and never lengthen it.
    pub longest_run: Option<ExtendedDuration>,
    /// The nearest `preemptMinRuntime`.
    pub preempt: Option<Of<'t>>,
    /// The nearest `reclaimMinRuntime`.
    pub reclaim: Option<Of<'t>>,
    /// The longest `reclaimMinRuntime`. Any queue on the way may be the one below the lowest common ancestor.
    longest_reclaim: Option<ExtendedDuration>,
    /// True if the queue at the top has no `reclaimMinRuntime`: there the default counts. None: there is no queue yet.
    top_has_default: Option<bool>,
    /// The fields of which the nearest value counts.
    pub nearest: Nearest,
    /// The least of each value of `extensions`, of all queues that have a say.
    pub extensions: Option<Allowance>,
    /// The nearest queue that has a ceiling and allows no extensions.
    pub without_extensions: Option<&'t str>,
    /// True if the queue at the top names a parent that isn't there.
    pub lacks_parent: bool,
}

/// Why there are no such values.
#[derive(Debug)]
pub(crate) enum Broken<'t> {
    /// The parent doesn't exist.
    Missing(&'t str),
    /// The queue would be its own ancestor; the names on the way back to it.
    Cycle(Vec<&'t str>),
    /// A stored cycle above the queue, which isn't part of it.
    CycleAbove(&'t str),
}

impl<'t> Effective<'t> {
    /// Resolves the values of a queue in a tree.
    pub fn of(tree: &'t QueueTree, floors: &Floors, queue: QueueId) -> Result<Self, Cycle> {
        let path = tree.path(queue)?.into_iter().rev().filter_map(|id| tree.get(id));
        Ok(path.fold(Self::default(), |above, (name, queue)| above.below(name, queue, floors)))
    }

    /// The values of a queue whose parent has these.
    #[must_use]
    pub fn below(self, name: &'t str, queue: &'t RunaiQueue, floors: &Floors) -> Self {
        // a field that is added must be resolved here
        let RunaiQueue { parent, preempt_floor, reclaim_floor, ceiling, extensions, nearest } = queue;
        let own = |value: &Option<ExtendedDuration>| value.map(|value| (name, value));
        let allows_none = ceiling.is_some() && extensions.is_none();
        let allowances = queue.allowance().into_iter().chain(self.extensions);
        let mut here = Self {
            // of two that are equal the first is the least
            ceiling: own(ceiling).into_iter().chain(self.ceiling).min_by_key(|(_, ceiling)| *ceiling),
            longest_run: None,
            preempt: own(preempt_floor).or(self.preempt),
            reclaim: own(reclaim_floor).or(self.reclaim),
            longest_reclaim: self.longest_reclaim.max(*reclaim_floor),
            top_has_default: self.top_has_default.or(Some(reclaim_floor.is_none())),
            nearest: nearest.or(self.nearest),
            extensions: allowances.reduce(Allowance::least),
            without_extensions: allows_none.then_some(name).or(self.without_extensions),
            lacks_parent: self.top_has_default.map_or(parent.is_some(), |_| self.lacks_parent),
        };
        here.longest_run = match here.nearest.action.unwrap_or_default() {
            MaxDurationAction::Pause => here.ceiling.map(|(_, ceiling)| ceiling),
            MaxDurationAction::Requeue => {
                let slice = ceiling.map(|own| own.max(here.longest_floor(floors)));
                self.longest_run.into_iter().chain(slice).min()
            }
        };
        here
    }

    /// The longest floor against any preemptor and on any node.
    fn longest_floor(&self, floors: &Floors) -> ExtendedDuration {
        let default = |field| floors.longest_default(field).value;
        let value = |of: Option<Of<'_>>| of.map(|(_, value)| value);
        let (reclaim, has_default) = match floors.method {
            ReclaimResolveMethod::Lca => (self.longest_reclaim, self.top_has_default != Some(false)),
            ReclaimResolveMethod::Queue => (value(self.reclaim), self.reclaim.is_none()),
        };
        let preempt = value(self.preempt).unwrap_or_else(|| default(Inherited::Preempt));
        let by_default = has_default.then(|| default(Inherited::Reclaim));
        preempt.max(by_default.max(reclaim).unwrap_or_default())
    }
}

impl<'t> Inheritance<'t> {
    /// Creates it for the queues of a tree and the configured floors.
    pub fn new(tree: &'t QueueTree, floors: &'t Floors) -> Self {
        Self { tree, floors, known: RefCell::default() }
    }

    /// The values that a queue has from above. The tree may not have the queue itself yet, or an older version of it.
    pub(crate) fn above<'q>(
        &'q self,
        name: &str,
        queue: &'q RunaiQueue,
    ) -> Result<Effective<'q>, Broken<'q>> {
        let Some(parent) = queue.parent.as_deref() else { return Ok(Effective::default()) };
        if parent == name {
            return Err(Broken::Cycle(Vec::new()));
        }
        let id = self.tree.find(parent).ok_or(Broken::Missing(parent))?;
        if let Some(way) = way_to(name, id, self.tree) {
            return Err(Broken::Cycle(way));
        }
        self.tree.depth(id).map_err(|_| Broken::CycleAbove(parent))?;
        Ok(self.of(id))
    }

    /// The values of a queue that is in no cycle.
    fn of(&self, id: QueueId) -> Effective<'t> {
        let mut known = self.known.borrow_mut();
        let (mut unknown, mut next) = (Vec::new(), Some(id));
        while let Some(id) = next.filter(|id| !known.contains_key(id)) {
            unknown.push(id);
            next = self.tree.parent(id);
        }
        let above = next.and_then(|id| known.get(&id)).copied().unwrap_or_default();
        unknown.into_iter().rev().fold(above, |above, id| {
            let Some((name, queue)) = self.tree.get(id) else { return above };
            let own = above.below(name, queue, self.floors);
            known.insert(id, own);
            own
        })
    }
}

/// The queues from one of them up to a child of `name`; none if no queue on the way to the root is one.
fn way_to<'t>(name: &str, from: QueueId, tree: &'t QueueTree) -> Option<Vec<&'t str>> {
    let depth = |id| tree.depth(id).ok();
    let depths = depth(from).zip(tree.find(name).and_then(depth));
    if depths.is_some_and(|(from, of_name)| from <= of_name) {
        // a queue has fewer queues above it than each queue below it
        return None;
    }
    let (mut way, mut seen, mut next) = (Vec::new(), HashSet::new(), Some(from));
    while let Some(id) = next.filter(|id| seen.insert(*id)) {
        let (own, queue) = tree.get(id)?;
        way.push(own);
        if queue.parent.as_deref() == Some(name) {
            return Some(way);
        }
        next = tree.parent(id);
    }
    None
}
