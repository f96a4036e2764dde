//! The ceiling that applies in a tree of queues.

use tenure_types::ExtendedDuration;

use crate::{
    queue::RunaiQueue,
    tree::{Cycle, QueueTree},
};

/// A queue and its ancestors, leaf first; empty if there is no such queue.
pub fn path<'t>(tree: &'t QueueTree, leaf: &str) -> Result<Vec<(&'t str, &'t RunaiQueue)>, Cycle> {
    let ids = tree.find(leaf).map_or_else(|| Ok(Vec::new()), |leaf| tree.path(leaf))?;
    Ok(ids.into_iter().filter_map(|id| tree.get(id)).collect())
}

/// The least ceiling on a path, and the queue that has it; the one nearest to the leaf if several have it.
pub fn least<'t>(path: &[(&'t str, &RunaiQueue)]) -> Option<(&'t str, ExtendedDuration)> {
    let ceilings = path.iter().filter_map(|(name, queue)| Some((*name, queue.ceiling?)));
    ceilings.min_by_key(|(_, ceiling)| *ceiling)
}

/// The nearest value of a field that is inherited, and the queue that has it.
pub fn nearest<'t>(
    path: &[(&'t str, &RunaiQueue)],
    field: fn(&RunaiQueue) -> Option<ExtendedDuration>,
) -> Option<(&'t str, ExtendedDuration)> {
    path.iter().find_map(|(name, queue)| Some((*name, field(queue)?)))
}

/// Returns the queue on a path that allows the shortest total of extensions; the one nearest to the leaf if several do.
pub fn least_extensions<'t>(path: &[(&'t str, &RunaiQueue)]) -> Option<&'t str> {
    let totals = path.iter().filter_map(|(name, queue)| Some((*name, queue.allowance()?.max_total)));
    totals.min_by_key(|(_, total)| *total).map(|(name, _)| name)
}

/// The ceiling that applies to workloads of a leaf, and the queue that it comes from. A cycle that got stored
/// has none.
pub fn effective<'t>(tree: &'t QueueTree, leaf: &str) -> Result<Option<(&'t str, ExtendedDuration)>, Cycle> {
    Ok(least(&path(tree, leaf)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(queues: &[(&str, &str, &str)]) -> QueueTree {
        let queue = |parent: &str, ceiling: &str| RunaiQueue {
            parent: Some(parent.to_owned()).filter(|parent| !parent.is_empty()),
            ceiling: ceiling.parse().ok(),
            ..RunaiQueue::default()
        };
        queues.iter().map(|(name, parent, ceiling)| (name, queue(parent, ceiling))).collect()
    }

    fn effective_of(queues: &[(&str, &str, &str)], leaf: &str) -> Result<Option<(String, String)>, Cycle> {
        let tree = tree(queues);
        Ok(effective(&tree, leaf)?.map(|(name, ceiling)| (name.into(), ceiling.to_string())))
    }

    #[test]
    fn the_least_ceiling_on_the_path_applies() {
        let queues = [("root", "", "2h"), ("team", "root", "1h"), ("leaf", "team", "3h")];
        assert_eq!(effective_of(&queues, "leaf"), Ok(Some(("team".into(), "1h0m0s".into()))));
        assert_eq!(effective_of(&queues, "root"), Ok(Some(("root".into(), "2h0m0s".into()))));
    }

    #[test]
    fn a_child_can_shorten() {
        assert_eq!(
            effective_of(&[("root", "", "2h"), ("leaf", "root", "1m")], "leaf"),
            Ok(Some(("leaf".into(), "1m0s".into())))
        );
    }

    #[test]
    fn a_missing_queue_or_parent_is_no_ceiling() {
        assert_eq!(effective_of(&[], "leaf"), Ok(None));
        assert_eq!(effective_of(&[("leaf", "gone", "")], "leaf"), Ok(None));
    }

    #[test]
    fn a_stored_cycle_is_told_and_never_hangs() {
        assert_eq!(effective_of(&[("a", "b", "1h"), ("b", "a", "1h")], "a"), Err(Cycle));
        assert_eq!(effective_of(&[("a", "a", "1h")], "a"), Err(Cycle));
        assert_eq!(effective_of(&[("a", "b", "1h"), ("b", "c", ""), ("c", "b", "")], "a"), Err(Cycle));
    }
}
