//! The queues of a family that the configuration names, and the missing ones among them.
//!
//! `FamilyQueues` compares them after each change of its queues. Each missing queue is logged when
//! it is first seen to be missing, and again if it is deleted later.

use std::collections::BTreeSet;

use tenure_policy::{config::ConfiguredQueue, tree::QueueTree};
use tracing::warn;

/// The queues that the configuration names.
#[derive(Debug, Default)]
pub struct ConfiguredQueues {
    named: BTreeSet<ConfiguredQueue>,
    /// The queues that don't exist. Each was logged.
    missing: BTreeSet<ConfiguredQueue>,
    /// True once all queues were listed. Before that, no queue counts as missing.
    is_listed: bool,
}

impl ConfiguredQueues {
    /// Replaces the queues that the configuration names.
    pub fn set(&mut self, named: BTreeSet<ConfiguredQueue>, tree: &QueueTree) {
        self.named = named;
        self.compare(tree);
    }

    /// Records that all queues were listed.
    pub fn end_list(&mut self, tree: &QueueTree) {
        self.is_listed = true;
        self.compare(tree);
    }

    /// Compares the names with the queues that exist, and logs each queue that is newly missing.
    pub fn compare(&mut self, tree: &QueueTree) {
        for ConfiguredQueue { value, queue } in self.newly_missing(tree) {
            let remedy = "create the queue, or correct the value";
            warn!(value, queue, remedy, "The configuration names a queue that doesn't exist: no effect");
        }
    }

    /// Returns the number of missing queues.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Finds the missing queues. Returns those that weren't missing before.
    fn newly_missing(&mut self, tree: &QueueTree) -> Vec<ConfiguredQueue> {
        if !self.is_listed {
            return Vec::new();
        }
        let missing = self.named.iter().filter(|of| tree.find(&of.queue).is_none()).cloned().collect();
        let before = std::mem::replace(&mut self.missing, missing);
        self.missing.difference(&before).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use tenure_policy::queue::RunaiQueue;

    use super::*;

    fn named(queues: &[&str]) -> BTreeSet<ConfiguredQueue> {
        let value = "tenancy.defaultQueue.runai";
        queues.iter().map(|queue| ConfiguredQueue { value, queue: (*queue).to_owned() }).collect()
    }

    #[test]
    fn a_missing_queue_is_told_once_after_the_list_and_again_once_it_is_deleted() {
        let mut tree = QueueTree::default();
        let mut configured = ConfiguredQueues { named: named(&["a"]), ..ConfiguredQueues::default() };
        let told = |configured: &mut ConfiguredQueues, tree: &QueueTree| {
            let told: Vec<String> = configured.newly_missing(tree).into_iter().map(|of| of.queue).collect();
            (told.join(" "), configured.missing())
        };
        assert_eq!(told(&mut configured, &tree), (String::new(), 0), "queues aren't listed yet");
        configured.is_listed = true;
        assert_eq!(told(&mut configured, &tree), ("a".into(), 1));
        assert_eq!(told(&mut configured, &tree), (String::new(), 1), "it was told");
        configured.named = named(&["a", "b"]);
        assert_eq!(told(&mut configured, &tree), ("b".into(), 2), "the configuration has changed");
        tree.put("a", RunaiQueue::default());
        assert_eq!(told(&mut configured, &tree), (String::new(), 1));
        tree.delete("a");
        assert_eq!(told(&mut configured, &tree), ("a".into(), 2));
    }
}
