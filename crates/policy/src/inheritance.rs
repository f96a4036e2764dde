//! The values that queues inherit from the queues above them, computed once for each queue of a
//! tree.
//!
//! The admission of queues calls [`Inheritance`], in the webhook and in the plugin's `validate`.
//! [`QueueLimits`](crate::limits::QueueLimits) takes the values of a single queue from here. Both ways lead
//! through `EffectiveValues::below`: a new field of a queue is resolved there and nowhere else.

use std::{cell::RefCell, collections::HashMap};

use tenure_types::{ExtendedDuration, runai::v3alpha1::MaxDurationAction};

use crate::{
    extension::Allowance,
    floor::{Floors, ReclaimResolveMethod},
    queue::{NearestFields, RunaiQueue},
    tree::{Inherited, QueueId, QueueTree},
};

/// A duration, and the name of the queue that sets it.
pub(crate) type SourcedDuration<'t> = (&'t str, ExtendedDuration);

/// The queues of a tree with the values that each of them inherits.
///
/// Computed values are kept: a visit of all queues takes time in proportion to their number, no
/// matter how deep the tree is. The tree can't change meanwhile, since it is borrowed.
#[derive(Debug)]
pub struct Inheritance<'t> {
    /// The queues of the run.ai family.
    pub tree: &'t QueueTree,
    /// The configured floors: the defaults, and the resolve method of reclaim.
    pub floors: &'t Floors,
    /// The values computed so far, by queue.
    known: RefCell<HashMap<QueueId, EffectiveValues<'t>>>,
}

/// The values that count for the workloads of a queue: its own, combined with those of the queues
/// above it.
///
/// The default stands for the place above a root queue, where no queue has set a value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EffectiveValues<'t> {
    /// The least `maxDuration` on the way to the root, and the queue that sets it: of several with
    /// the same value, the one nearest to the leaf. None: no ceiling.
    pub ceiling: Option<SourcedDuration<'t>>,
    /// The longest run: the ceiling or, where workloads are requeued, the time slice, which a floor
    /// may lengthen. None: no limit.
    ///
    /// With `maxDurationAction: Requeue` the queue's own `maxDuration` is a time slice, which lasts
    /// at least as long as the longest floor of that queue. The slice is never longer than the
    /// ceiling or slice of the parent's workloads, which no field of a child changes: so a child
    /// can shorten the slice, and never lengthen it.
    pub longest_run: Option<ExtendedDuration>,
    /// The nearest `preemptMinRuntime`. None: the configured default counts.
    pub preempt: Option<SourcedDuration<'t>>,
    /// The nearest `reclaimMinRuntime`. None: the configured default counts.
    pub reclaim: Option<SourcedDuration<'t>>,
    /// The longest `reclaimMinRuntime` on the way to the root: any queue there may be the one below
    /// the lowest common ancestor.
    longest_reclaim: Option<ExtendedDuration>,
    /// True if the queue at the top has no `reclaimMinRuntime`, so that the default counts there.
    /// None: no queue was added yet.
    top_has_default: Option<bool>,
    /// The fields of which the nearest value counts. None in a field: the configuration decides.
    pub nearest: NearestFields,
    /// The least of each value of `extensions`, of all queues that set the block or a ceiling.
    /// None: no queue sets either.
    pub extensions: Option<Allowance>,
    /// The nearest queue that has a ceiling and no `extensions`, and so allows none.
    pub without_extensions: Option<&'t str>,
    /// True if the queue at the top names a parent: one that doesn't exist, or that is on the path.
    pub lacks_parent: bool,
}

/// The reason why the path of a queue doesn't end at a root: [`crate::admission`] refuses such a
/// queue, or warns of it.
#[derive(Debug)]
pub(crate) enum BrokenAncestry<'t> {
    /// The parent, which has this name, doesn't exist.
    Missing(&'t str),
    /// The queue would be its own ancestor. The names lead from its parent up to the queue that
    /// names it as parent; empty for a queue that is its own parent.
    Cycle(Vec<&'t str>),
    /// The parent, which has this name, is in or below a stored cycle. The queue itself isn't part
    /// of the cycle.
    CycleAbove(&'t str),
}

impl<'t> EffectiveValues<'t> {
    /// Resolves the values of one queue. Takes time in proportion to its depth.
    pub fn of(tree: &'t QueueTree, floors: &Floors, queue: QueueId) -> Self {
        let path = tree.path(queue).into_iter().rev().filter_map(|id| tree.get(id));
        path.fold(Self::default(), |above, (name, queue)| above.below(name, queue, floors))
    }

    /// Returns the values of a queue whose parent has the values `self`: `name` and `queue` are the
    /// child's.
    #[must_use]
    pub fn below(self, name: &'t str, queue: &'t RunaiQueue, floors: &Floors) -> Self {
        // a field that is added must be resolved here
        let RunaiQueue { parent, preempt_floor, reclaim_floor, ceiling, extensions, nearest } = queue;
        let own = |value: &Option<ExtendedDuration>| value.map(|value| (name, value));
        let allows_none = ceiling.is_some() && extensions.is_none();
        let allowances = queue.allowance().into_iter().chain(self.extensions);
        let mut here = Self {
            // of two equal values the first is the least: the queue's own
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

    /// Returns the longest floor of the queue's workloads against any preemptor and on any node.
    fn longest_floor(&self, floors: &Floors) -> ExtendedDuration {
        let default = |field| floors.longest_default(field).value;
        let value = |of: Option<SourcedDuration<'_>>| of.map(|(_, value)| value);
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
    /// Creates the view of a tree with the configured floors. Nothing is computed yet.
    pub fn new(tree: &'t QueueTree, floors: &'t Floors) -> Self {
        Self { tree, floors, known: RefCell::default() }
    }

    /// Returns the values that a queue inherits from above: those of its parent. A queue without a
    /// parent, or with one that doesn't exist, inherits nothing.
    ///
    /// The queue is given by value: the tree may lack it, or have an older version of it, while a
    /// change is reviewed.
    pub(crate) fn above(&self, queue: &RunaiQueue) -> EffectiveValues<'t> {
        let parent = queue.parent.as_deref().and_then(|parent| self.tree.find(parent));
        parent.map(|parent| self.of(parent)).unwrap_or_default()
    }

    /// Returns the reason why the path of a queue doesn't end at a root. None: it does.
    pub(crate) fn broken_ancestry<'q>(
        &'q self,
        name: &str,
        queue: &'q RunaiQueue,
    ) -> Option<BrokenAncestry<'q>> {
        let parent = queue.parent.as_deref()?;
        if parent == name {
            return Some(BrokenAncestry::Cycle(Vec::new()));
        }
        let Some(id) = self.tree.find(parent) else { return Some(BrokenAncestry::Missing(parent)) };
        if let Some(way) = way_to(name, id, self.tree) {
            return Some(BrokenAncestry::Cycle(way));
        }
        self.tree.meets_cycle(id).then_some(BrokenAncestry::CycleAbove(parent))
    }

    /// Returns the values of a queue. Keeps those of all queues on its path, unless it leads into a
    /// cycle: there the values of a queue depend on where the path begins.
    fn of(&self, id: QueueId) -> EffectiveValues<'t> {
        if self.tree.meets_cycle(id) {
            return EffectiveValues::of(self.tree, self.floors, id);
        }
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

/// Returns the names of the queues from `from` up to a child of `name`. None: no queue on that way
/// to the root is a child of `name`.
fn way_to<'t>(name: &str, from: QueueId, tree: &'t QueueTree) -> Option<Vec<&'t str>> {
    if tree.find(name).is_some_and(|of_name| tree.depth(from) < tree.depth(of_name)) {
        // a queue has no more ancestors than each queue below it
        return None;
    }
    let mut way = Vec::new();
    for id in tree.path(from) {
        let (own, queue) = tree.get(id)?;
        way.push(own);
        if queue.parent.as_deref() == Some(name) {
            return Some(way);
        }
    }
    None
}
