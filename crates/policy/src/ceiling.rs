//! The queues that limit the runs of a workload: the least ceiling, and the least total of
//! extensions, from its leaf queue up to the root.
//!
//! The index, the command line and `crate::creation` call this module. A name that no queue has
//! stands for the default queue, if the tree has one.

use tenure_types::ExtendedDuration;

use crate::{queue::RunaiQueue, tree::QueueTree};

/// Returns the least `maxDuration` on the path from a leaf to the root, and the queue that sets it.
/// None: no queue on the path has a ceiling, or there is no such leaf.
pub fn effective<'t>(tree: &'t QueueTree, leaf: &str) -> Option<(&'t str, ExtendedDuration)> {
    least(tree, leaf, |queue| queue.ceiling)
}

/// Returns the queue on the path from a leaf to the root that allows the shortest total of
/// extensions. A queue with a ceiling and without `extensions` allows none. None: no queue on the
/// path has a ceiling or `extensions`, or there is no such leaf.
pub fn least_extensions<'t>(tree: &'t QueueTree, leaf: &str) -> Option<&'t str> {
    least(tree, leaf, |queue| Some(queue.allowance()?.max_total)).map(|(name, _)| name)
}

/// Returns the least value on the path from a leaf to the root, and the queue that has this value.
/// If several have it, returns the queue nearest to the leaf. None: no queue on the path has a
/// value.
fn least<'t, T: Ord + Copy>(
    tree: &'t QueueTree,
    leaf: &str,
    value: impl Fn(&RunaiQueue) -> Option<T>,
) -> Option<(&'t str, T)> {
    let path = tree.path(tree.bind(leaf)?).into_iter().filter_map(|id| tree.get(id));
    let values = path.filter_map(|(name, queue)| Some((name, value(queue)?)));
    values.min_by_key(|(_, value)| *value)
}
