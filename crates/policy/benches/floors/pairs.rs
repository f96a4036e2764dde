//! Bytes that are held after all pairs of pending workloads and victims were asked about.

use std::{collections::HashMap, hint::black_box};

use tenure_policy::{
    floor::Floors,
    tree::{QueueId, QueueTree},
};

use crate::{
    Extent,
    counting::{held, held_by},
    forest::{Forest, Leaf, find},
};

const DEPTH: usize = 6;

pub fn run(extent: &Extent) {
    let (jobs, few) = (extent.jobs, extent.cached_jobs);
    // of which more than half are leaves
    let forest = Forest::new(jobs * 4, DEPTH);
    let (tree, bytes) = held_by(|| forest.tree());
    let leaves: Vec<QueueId> = forest.leaves.iter().map(|(name, _)| find(&tree, name)).collect();
    let grown = resolve_all(&tree, &leaves[..jobs], &leaves[jobs..2 * jobs]);
    let pairs = jobs * jobs;
    let (cache, cached_bytes) = held_by(|| cache(&forest.leaves[..few], &forest.leaves[jobs..jobs + few]));
    let cached: usize = cache.values().map(HashMap::len).sum();
    println!(
        "memory   {jobs} pending workloads and {jobs} victims, each in a queue of its own of {}",
        tree.len()
    );
    println!("tree                    {} bytes a queue, {} KiB", bytes / tree.len(), bytes >> 10);
    println!("growth                  {grown} bytes, by {pairs} resolutions");
    println!(
        "control: cache by pair  {} bytes an entry, {} MiB for as many; built as KAI-Scheduler did before v0.17,",
        cached_bytes / cached,
        (cached_bytes / cached * pairs) >> 20
    );
    println!("                        a map of maps by 16-byte names, for {cached} pairs");
    assert_eq!(grown, 0, "what is remembered must not grow with the pairs that are asked about");
}

/// Says by how many bytes that makes something grow.
fn resolve_all(tree: &QueueTree, pending: &[QueueId], victims: &[QueueId]) -> usize {
    let floors = Floors::default();
    let before = held();
    for preemptor in pending {
        for victim in victims {
            black_box(floors.reclaim(tree, Some(*preemptor), Some(*victim), None));
            black_box(floors.preempt(tree, Some(*victim), None));
        }
    }
    held() - before
}

/// Records for pairs of names whether a victim is protected from a pending workload. A `&str` takes as many bytes as a
/// string of Go.
fn cache<'a>(pending: &'a [Leaf], victims: &'a [Leaf]) -> HashMap<&'a str, HashMap<&'a str, bool>> {
    let mut cache: HashMap<&str, HashMap<&str, bool>> = HashMap::new();
    for (preemptor, _) in pending {
        for (victim, _) in victims {
            cache.entry(preemptor).or_default().insert(victim, false);
        }
    }
    cache
}
