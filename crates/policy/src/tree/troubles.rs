//! What got stored although no queue may be so: how it counts is for people to know.

use std::{collections::HashSet, fmt};

use super::{QueueId, QueueTree};

/// Something that is wrong with how queues hang together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// A queue names a parent that doesn't exist: it counts as being at the top.
    MissingParent {
        /// The queue.
        queue: String,
        /// The name that no queue has.
        parent: String,
    },
    /// A queue names itself.
    SelfParent {
        /// The queue.
        queue: String,
    },
    /// Each queue names the next, and the last one the first.
    Cycle {
        /// All of them, the first in the alphabet first.
        members: Vec<String>,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingParent { queue, parent } => {
                write!(
                    f,
                    "queue {queue:?}: its parent {parent:?} doesn't exist: it counts as a top-level queue"
                )
            }
            Self::SelfParent { queue } => {
                write!(f, "queue {queue:?} is its own parent: {WITHOUT_EFFECT}")
            }
            Self::Cycle { members } => {
                let first = members.first().map_or("", String::as_str);
                write!(
                    f,
                    "queues are each other's ancestors: {} -> {first}: {WITHOUT_EFFECT}",
                    members.join(" -> ")
                )
            }
        }
    }
}

const WITHOUT_EFFECT: &str = "in it and below it no floor and no ceiling applies but the defaults";

/// All troubles of a tree, each once, in the order of their kinds and names. Takes time in proportion to the number of
/// queues.
pub fn troubles(tree: &QueueTree) -> Vec<Trouble> {
    let ids =
        || (0u32..).zip(&tree.nodes).filter(|(_, node)| node.queue.is_some()).map(|(id, _)| QueueId(id));
    let mut walks = vec![0u32; tree.nodes.len()];
    let cycles = (1u32..).zip(ids()).filter_map(|(walk, id)| closes_a_cycle(tree, id, walk, &mut walks));
    let mut troubles: Vec<Trouble> = cycles.map(|id| cycle(tree, id)).collect();
    troubles.extend(ids().filter_map(|id| missing_parent(tree, id)));
    troubles.sort();
    troubles
}

/// What is wrong on the way from a queue to the root: one thing at most, for that is where the way ends.
pub fn trouble_above(tree: &QueueTree, leaf: QueueId) -> Option<Trouble> {
    let mut seen = HashSet::new();
    let mut at = leaf;
    while seen.insert(at) {
        match tree.parent(at) {
            Some(parent) => at = parent,
            None => return missing_parent(tree, at),
        }
    }
    Some(cycle(tree, at))
}

/// Goes up to where an earlier walk has been; a walk that meets itself has gone round a cycle.
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

fn missing_parent(tree: &QueueTree, id: QueueId) -> Option<Trouble> {
    let parent = tree.node(id)?.parent.filter(|parent| !tree.exists(*parent))?;
    Some(Trouble::MissingParent { queue: tree.name(id).into(), parent: tree.name(parent).into() })
}

/// The cycle that a queue is in.
fn cycle(tree: &QueueTree, of: QueueId) -> Trouble {
    let above = std::iter::successors(tree.parent(of), |id| tree.parent(*id)).take_while(|id| *id != of);
    let mut members: Vec<String> =
        std::iter::once(of).chain(above).map(|id| tree.name(id).to_owned()).collect();
    let first = members.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(place, _)| place);
    members.rotate_left(first);
    match members.as_slice() {
        [queue] => Trouble::SelfParent { queue: queue.clone() },
        _ => Trouble::Cycle { members },
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

    fn told(queues: &[(&str, &str)]) -> Vec<String> {
        troubles(&tree(queues)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_tree_has_no_troubles() {
        assert_eq!(told(&[("a", ""), ("b", "a"), ("c", "b"), ("d", "b")]), Vec::<String>::new());
        assert_eq!(told(&[]), Vec::<String>::new());
    }

    #[test]
    fn every_missing_parent_is_told_with_its_child() {
        assert_eq!(
            told(&[("b", "gone"), ("a", "gone"), ("c", "a")]),
            [
                "queue \"a\": its parent \"gone\" doesn't exist: it counts as a top-level queue",
                "queue \"b\": its parent \"gone\" doesn't exist: it counts as a top-level queue",
            ]
        );
    }

    #[test]
    fn a_queue_that_is_its_own_parent_is_told() {
        assert_eq!(
            told(&[("a", "a"), ("b", "a")]),
            [
                "queue \"a\" is its own parent: in it and below it no floor and no ceiling applies but the defaults"
            ]
        );
    }

    #[test]
    fn a_cycle_is_told_once_and_begins_with_the_first_name() {
        let queues = [("leaf", "c"), ("c", "a"), ("b", "c"), ("a", "b"), ("y", "x"), ("x", "y")];
        let told = told(&queues);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("queues are each other's ancestors: a -> b -> c -> a: "), "{told:?}");
        assert!(told[1].starts_with("queues are each other's ancestors: x -> y -> x: "), "{told:?}");
    }

    #[test]
    fn of_a_path_only_its_own_trouble_is_told() {
        let tree =
            tree(&[("a", "b"), ("b", "a"), ("c", "a"), ("d", "gone"), ("e", "d"), ("f", ""), ("g", "g")]);
        let above = |name| trouble_above(&tree, tree.find(name).unwrap());
        let members = vec!["a".to_owned(), "b".to_owned()];
        for name in ["a", "b", "c"] {
            assert_eq!(above(name), Some(Trouble::Cycle { members: members.clone() }), "{name}");
        }
        let missing = Trouble::MissingParent { queue: "d".into(), parent: "gone".into() };
        assert_eq!((above("d"), above("e")), (Some(missing.clone()), Some(missing)));
        assert_eq!(above("f"), None);
        assert_eq!(above("g"), Some(Trouble::SelfParent { queue: "g".into() }));
    }

    #[test]
    fn a_long_way_is_walked_once() {
        let names: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
        let queues: Vec<(&str, &str)> =
            names.iter().zip(names.iter().skip(1)).map(|(name, parent)| (&**name, &**parent)).collect();
        assert_eq!(troubles(&tree(&queues)).len(), 1);
    }
}
