//! The queues that set what applies in a tree of queues.

use tenure_types::ExtendedDuration;

use crate::{
    queue::RunaiQueue,
    tree::{Cycle, QueueTree},
};

/// The ceiling that applies to workloads of a leaf, and the queue that it comes from. A stored cycle has none.
pub fn effective<'t>(tree: &'t QueueTree, leaf: &str) -> Result<Option<(&'t str, ExtendedDuration)>, Cycle> {
    least(tree, leaf, |queue| queue.ceiling)
}

/// Returns the queue on the way from a leaf to the root that allows the shortest total of extensions.
pub fn least_extensions<'t>(tree: &'t QueueTree, leaf: &str) -> Option<&'t str> {
    let least = least(tree, leaf, |queue| Some(queue.allowance()?.max_total));
    least.ok()?.map(|(name, _)| name)
}

/// The least value from a leaf to the root, and the queue nearest to the leaf that has it. None: there is no such queue.
fn least<'t, T: Ord + Copy>(
    tree: &'t QueueTree,
    leaf: &str,
    value: impl Fn(&RunaiQueue) -> Option<T>,
) -> Result<Option<(&'t str, T)>, Cycle> {
    let Some(leaf) = tree.bind(leaf) else { return Ok(None) };
    let path = tree.path(leaf)?.into_iter().filter_map(|id| tree.get(id));
    let values = path.filter_map(|(name, queue)| Some((name, value(queue)?)));
    Ok(values.min_by_key(|(_, value)| *value))
}
