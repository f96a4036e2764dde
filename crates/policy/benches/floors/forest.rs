//! Queues for a benchmark: trees whose leaves are all equally deep.

use tenure_policy::{
    queue::RunaiQueue,
    tree::{QueueId, QueueTree},
};
use tenure_types::ExtendedDuration;

use crate::Numbers;

/// A queue without parent and children.
pub const BYSTANDER: &str = "bystander";

/// The name of a deepest queue, and the number of the tree that it is in.
pub type Leaf = (String, usize);

/// At least two trees. Only their roots have floors, so that every path to a floor has full length.
pub struct Forest {
    /// The queues in no order, as a watch might list them.
    pub queues: Vec<(String, RunaiQueue)>,
    /// All are equally deep.
    pub leaves: Vec<Leaf>,
}

impl Forest {
    /// Creates `queues` queues, or more if two branches of this depth need more. Each level has the
    /// same multiple of the queues above it.
    pub fn new(queues: usize, depth: usize) -> Self {
        let up_to = |level: usize| match level {
            0 => 0,
            _ => (2 * level).max((queues as f64).powf(level as f64 / depth as f64).round() as usize),
        };
        let mut level = Vec::new();
        let mut all = Vec::new();
        for place in 0..depth {
            let below = (up_to(place)..up_to(place + 1)).enumerate();
            let below: Vec<Leaf> = below
                .map(|(column, number)| {
                    let parent: Option<&Leaf> = level.get(column % level.len().max(1));
                    let name = format!("department-{}-team-{number}", number % 97);
                    all.push((name.clone(), queue(parent.map(|(name, _)| name.clone()), column)));
                    (name, parent.map_or(column, |(_, tree)| *tree))
                })
                .collect();
            level = below;
        }
        Numbers(7).shuffle(&mut all);
        Self { queues: all, leaves: level }
    }

    /// Returns the tree with the bystander.
    pub fn tree(&self) -> QueueTree {
        let mut tree: QueueTree = self.queues.iter().cloned().collect();
        tree.put(BYSTANDER, queue(None, 0));
        tree
    }

    /// Two leaves of different trees. No way to a common ancestor is longer than to none.
    pub fn apart(&self, numbers: &mut Numbers) -> [&str; 2] {
        loop {
            let [(one, tree), (other, other_tree)] = [(); 2].map(|()| numbers.one_of(&self.leaves));
            if tree != other_tree {
                return [one, other];
            }
        }
    }
}

/// A root has floors; other queues inherit them.
fn queue(parent: Option<String>, number: usize) -> RunaiQueue {
    let floor = parent.is_none().then(|| minutes(60 + number % 30));
    RunaiQueue { parent, preempt_floor: floor, reclaim_floor: floor, ..RunaiQueue::default() }
}

fn minutes(minutes: usize) -> ExtendedDuration {
    format!("{minutes}m").parse().unwrap()
}

/// Changes an unrelated queue, so that the tree has to drop all results that it remembers.
pub fn change(tree: &mut QueueTree, floor: ExtendedDuration) {
    tree.put(BYSTANDER, RunaiQueue { preempt_floor: Some(floor), ..RunaiQueue::default() });
}

/// The place of a queue that exists.
pub fn find(tree: &QueueTree, name: &str) -> QueueId {
    tree.find(name).unwrap()
}
