//! Stored queues in relations that admission refuses, and the way in which each counts.
//!
//! They were stored before the webhook, or around it. The plugin's commands warn of them.

use std::fmt;

use super::{QueueId, QueueTree};

/// An error in the relations between stored queues. `Display` writes it with its effect, for
/// people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueTreeError {
    /// A queue names a parent that doesn't exist: the queue counts as a top-level queue.
    MissingParent {
        /// The queue.
        queue: String,
        /// The name of the missing parent.
        parent: String,
    },
    /// A queue names itself as its parent.
    SelfParent {
        /// The queue.
        queue: String,
    },
    /// Each queue names the next as its parent, and the last one the first.
    Cycle {
        /// The queues of the cycle, beginning with the first in the alphabet.
        members: Vec<String>,
    },
}

impl fmt::Display for QueueTreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingParent { queue, parent } => {
                write!(
                    f,
                    "queue {queue:?}: its parent {parent:?} doesn't exist: it counts as a top-level queue"
                )
            }
            Self::SelfParent { queue } => {
                write!(f, "queue {queue:?} is its own parent: it counts as a top-level queue")
            }
            Self::Cycle { members } => {
                let (first, all) = (members.first().map_or("", String::as_str), way(members));
                write!(
                    f,
                    "queues are each other's ancestors: {all} -> {first}: the limits of all of them apply in each, and below"
                )
            }
        }
    }
}

/// The most names that a message shows.
const SHOWN: usize = 10;

/// Returns queues on a way as a text: `a -> b -> c`. A long way is shown by its beginning and its
/// end.
pub fn way(names: &[impl AsRef<str>]) -> String {
    let shown = |names: &[_]| names.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(" -> ");
    match names.split_last_chunk::<1>() {
        Some((most, last)) if names.len() > SHOWN => {
            let first = most.get(..SHOWN.saturating_sub(1)).unwrap_or(most);
            let others = names.len().saturating_sub(SHOWN);
            format!("{} -> ({others} more) -> {}", shown(first), shown(last))
        }
        _ => shown(names),
    }
}

/// Returns all errors of a tree, each once, ordered by kind and name. Takes time in proportion to
/// the number of queues.
pub fn tree_errors(tree: &QueueTree) -> Vec<QueueTreeError> {
    let ids =
        || (0u32..).zip(&tree.nodes).filter(|(_, node)| node.queue.is_some()).map(|(id, _)| QueueId(id));
    let mut walks = vec![0u32; tree.nodes.len()];
    let cycles = (1u32..).zip(ids()).filter_map(|(walk, id)| closes_a_cycle(tree, id, walk, &mut walks));
    let mut errors: Vec<QueueTreeError> = cycles.map(|id| cycle(tree, id)).collect();
    errors.extend(ids().filter_map(|id| missing_parent(tree, id)));
    errors.sort();
    errors
}

/// Walks up from a queue to where an earlier walk has been. Returns a queue of the cycle if the
/// walk meets itself. None: no cycle was found, or an earlier walk has found it.
fn closes_a_cycle(tree: &QueueTree, from: QueueId, walk: u32, walks: &mut [u32]) -> Option<QueueId> {
    let mut next = Some(from);
    while let Some(id) = next {
        let seen = walks.get_mut(usize::try_from(id.0).ok()?)?;
        if *seen != 0 {
            return (*seen == walk).then_some(id);
        }
        *seen = walk;
        next = tree.parent(id);
    }
    None
}

fn missing_parent(tree: &QueueTree, id: QueueId) -> Option<QueueTreeError> {
    let parent = tree.node(id)?.parent.filter(|parent| !tree.exists(*parent))?;
    Some(QueueTreeError::MissingParent { queue: tree.name(id).into(), parent: tree.name(parent).into() })
}

/// Returns the error of the cycle that a queue is in.
fn cycle(tree: &QueueTree, of: QueueId) -> QueueTreeError {
    let mut members: Vec<String> = tree.path(of).into_iter().map(|id| tree.name(id).to_owned()).collect();
    let first = members.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(place, _)| place);
    members.rotate_left(first);
    match members.as_slice() {
        [queue] => QueueTreeError::SelfParent { queue: queue.clone() },
        _ => QueueTreeError::Cycle { members },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::RunaiQueue;

    fn tree(queues: &[(&str, &str)]) -> QueueTree {
        let queue = |parent: &str| RunaiQueue { parent: Some(parent.into()), ..RunaiQueue::default() };
        let none = RunaiQueue::default;
        queues
            .iter()
            .map(|(name, parent)| (*name, if parent.is_empty() { none() } else { queue(parent) }))
            .collect()
    }

    fn display_all(queues: &[(&str, &str)]) -> Vec<String> {
        tree_errors(&tree(queues)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_tree_has_no_errors() {
        assert_eq!(display_all(&[("a", ""), ("b", "a"), ("c", "b"), ("d", "b")]), Vec::<String>::new());
        assert_eq!(display_all(&[]), Vec::<String>::new());
    }

    #[test]
    fn every_missing_parent_is_reported_with_its_child() {
        assert_eq!(
            display_all(&[("b", "gone"), ("a", "gone"), ("c", "a")]),
            [
                "queue \"a\": its parent \"gone\" doesn't exist: it counts as a top-level queue",
                "queue \"b\": its parent \"gone\" doesn't exist: it counts as a top-level queue",
            ]
        );
    }

    #[test]
    fn a_queue_that_is_its_own_parent_is_reported() {
        assert_eq!(
            display_all(&[("a", "a"), ("b", "a")]),
            ["queue \"a\" is its own parent: it counts as a top-level queue"]
        );
    }

    #[test]
    fn a_cycle_is_reported_once_and_begins_with_the_first_name() {
        let queues = [("leaf", "c"), ("c", "a"), ("b", "c"), ("a", "b"), ("y", "x"), ("x", "y")];
        let displayed = display_all(&queues);
        assert_eq!(displayed.len(), 2, "{displayed:?}");
        assert!(
            displayed[0].starts_with("queues are each other's ancestors: a -> b -> c -> a: "),
            "{displayed:?}"
        );
        assert!(
            displayed[1].starts_with("queues are each other's ancestors: x -> y -> x: "),
            "{displayed:?}"
        );
    }

    #[test]
    fn of_a_long_way_the_ends_are_shown() {
        let names: Vec<String> = (0..100).map(|number| format!("q{number}")).collect();
        let displayed = "q0 -> q1 -> q2 -> q3 -> q4 -> q5 -> q6 -> q7 -> q8 -> (90 more) -> q99";
        assert_eq!((way(&names).as_str(), way(&names[..2]).as_str()), (displayed, "q0 -> q1"));
    }

    #[test]
    fn a_long_way_is_walked_once() {
        let names: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
        let queues: Vec<(&str, &str)> =
            names.iter().zip(names.iter().skip(1)).map(|(name, parent)| (&**name, &**parent)).collect();
        assert_eq!(tree_errors(&tree(&queues)).len(), 1);
    }
}
