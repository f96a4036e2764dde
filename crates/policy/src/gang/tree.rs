//! The subgroups of a `PodGroup` and their parents, each with its minimum.
//!
//! `GangShape` and `GangCounts` use this module. Users write the subgroups: names that occur twice, parents
//! that don't exist, and cycles are no errors. The index keeps a tree for each group, so a tree keeps hashes
//! of names in place of names.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    iter,
    sync::Arc,
};

use tenure_types::projection::SubGroup;

/// The nodes of a tree: first the subgroups that have pods, by name; then each parent after all its
/// children; and last the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubgroupTree {
    /// The names of the subgroups that have pods, with the numbers of the subgroups, in the order of
    /// the hashes: each change of a group may look up all of its pods.
    names: Arc<[(NameHash, u16)]>,
    pub nodes: Box<[SubgroupNode]>,
}

/// A hash of a subgroup's name, with a fixed key, which takes 8 bytes with a number. A user who finds
/// two names with the same hash confuses only the subgroups of their own group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NameHash([u8; 6]);

impl NameHash {
    fn of(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let [_, _, hash @ ..] = hasher.finish().to_be_bytes();
        Self(hash)
    }
}

/// A subgroup with pods, a parent of subgroups, or the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubgroupNode {
    /// The minimum of the node's pods. For a parent: of its children that must meet their own
    /// minimums.
    pub minimum: u32,
    /// The number of the parent. For the whole: a number that no node has.
    parent: u32,
}

impl SubgroupNode {
    fn parent(self) -> usize {
        usize::try_from(self.parent).unwrap_or(usize::MAX)
    }
}

impl SubgroupTree {
    /// Builds the tree. None: no subgroup has pods.
    ///
    /// Of several subgroups with one name, the first counts. Subgroups in a cycle are left out. A
    /// subgroup whose parent doesn't exist, or is left out, is at the top. `top_minimum` is the
    /// number of top-level subgroups that must meet their minimums. An unset minimum is one pod for
    /// a subgroup, and all children for a parent or the whole.
    pub fn new(sub_groups: &[SubGroup], top_minimum: Option<u32>) -> Option<Self> {
        let mut sorted: Vec<&SubGroup> = sub_groups.iter().collect();
        sorted.sort_by_key(|of| of.name.as_str());
        sorted.dedup_by_key(|of| of.name.as_str());
        let find = |name: &str| sorted.binary_search_by_key(&name, |of| of.name.as_str()).ok();
        let parents: Vec<Option<usize>> = sorted.iter().map(|of| find(of.parent.as_deref()?)).collect();
        let order = bottom_up(&parents);
        let root = order.len();
        let mut places = vec![root; sorted.len()];
        for (place, number) in order.iter().enumerate() {
            places.get_mut(*number)?.clone_from(&place);
        }
        let mut held: Vec<u32> = vec![0; root.saturating_add(1)];
        let (mut nodes, mut names) = (Vec::with_capacity(held.len()), Vec::<(NameHash, u16)>::new());
        for (place, number) in order.into_iter().enumerate() {
            let of = sorted.get(number)?;
            let parent = parents.get(number).copied().flatten().and_then(|parent| places.get(parent));
            let parent = parent.copied().unwrap_or(root);
            let minimum = match held.get(place) {
                Some(0) | None => {
                    names.push((NameHash::of(&of.name), u16::try_from(place).ok()?));
                    of.min_member.unwrap_or(1)
                }
                Some(held) => of.min_sub_group.unwrap_or(*held),
            };
            nodes.push(SubgroupNode { minimum, parent: u32::try_from(parent).ok()? });
            increase(held.get_mut(parent));
        }
        nodes.push(SubgroupNode { minimum: top_minimum.unwrap_or(*held.last()?), parent: u32::MAX });
        names.sort_unstable();
        (!names.is_empty()).then(|| Self { names: names.into(), nodes: nodes.into() })
    }

    /// Returns the number of subgroups that have pods.
    pub fn leaves(&self) -> usize {
        self.names.len()
    }

    /// Returns the number of the subgroup with a name. The result is [`Self::leaves`] if no
    /// subgroup with pods has that name.
    pub fn find(&self, name: &str) -> usize {
        let name = NameHash::of(name);
        let found = self.names.binary_search_by_key(&name, |(of, _)| *of).ok();
        found
            .and_then(|place| self.names.get(place))
            .map_or(self.leaves(), |(_, number)| usize::from(*number))
    }

    /// Returns the bytes of the tree. `Copy` types hold no others.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        fn flat<T: Copy>(all: &[T]) -> usize {
            size_of_val(all)
        }
        flat(&self.names).saturating_add(flat(&self.nodes))
    }

    /// Returns a node and all nodes above it, from the bottom up, with their numbers.
    pub fn way_up(&self, number: usize) -> impl Iterator<Item = (usize, &SubgroupNode)> {
        let first = self.nodes.get(number).map(|node| (number, node));
        iter::successors(first, |(_, node)| Some((node.parent(), self.nodes.get(node.parent())?)))
    }

    /// Counts for each node its pods, or its children that meet their minimums. `of_leaf` returns
    /// the pods of a subgroup by its number.
    pub fn counts(&self, of_leaf: impl Fn(usize) -> u32) -> Box<[u32]> {
        let mut counts = vec![0; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(count) = counts.get_mut(number) else { break };
            if number < self.leaves() {
                *count = of_leaf(number);
            }
            if *count >= node.minimum {
                increase(counts.get_mut(node.parent()));
            }
        }
        counts.into()
    }

    /// True if there is a pod without which the whole still meets its minimums. All pods together
    /// must meet them. `total` counts all pods, `counts` those of each node.
    pub fn can_spare_one(&self, total: u32, counts: &[u32]) -> bool {
        let leaves = || counts.iter().take(self.leaves());
        if leaves().fold(0, |sum: u32, count| sum.saturating_add(*count)) < total {
            // a pod of no subgroup can go
            return true;
        }
        // nodes without which the workload lacks its minimum
        let mut needed = vec![false; self.nodes.len()];
        let is_tight = |number: usize| counts.get(number) == self.nodes.get(number).map(|node| &node.minimum);
        for (number, (node, count)) in self.nodes.iter().zip(counts).enumerate().rev() {
            let above = node.parent();
            let above = needed.get(above).is_none_or(|needed| *needed && is_tight(above));
            if let Some(needed) = needed.get_mut(number) {
                *needed = above && *count >= node.minimum;
            }
        }
        let mut leaves = leaves().zip(needed).enumerate();
        leaves.any(|(number, (count, needed))| *count > 0 && !(needed && is_tight(number)))
    }

    /// Returns the fewest pods with which the whole meets its minimums. `u32::MAX`: no number of
    /// pods suffices.
    pub fn least(&self) -> u32 {
        let mut held: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        let mut least = 0;
        for (number, node) in self.nodes.iter().enumerate() {
            let mut parts = held.get_mut(number).map(std::mem::take).unwrap_or_default();
            least = node.minimum;
            if number >= self.leaves() {
                let taken = usize::try_from(node.minimum).unwrap_or(usize::MAX);
                parts.sort_unstable();
                let sum = |taken: &[u32]| taken.iter().fold(0, |sum: u32, of| sum.saturating_add(*of));
                least = parts.get(..taken).map_or(u32::MAX, sum);
            }
            if let Some(parts) = held.get_mut(node.parent()) {
                parts.push(least);
            }
        }
        least
    }

    /// Lowers the minimums to those that these pods meet.
    ///
    /// Minimums that are met don't change, and neither do those below. Otherwise a subgroup's
    /// minimum becomes the number of its pods, and a parent's the number of its children that have
    /// pods or don't need any. A node below the top that has none of these keeps its minimum.
    pub fn attained_by(&self, counts: &[u32]) -> Self {
        // for each parent, the children that have pods or don't need any
        let mut present: Vec<u32> = vec![0; self.nodes.len()];
        for (number, (node, count)) in self.nodes.iter().zip(counts).enumerate() {
            let has = if number < self.leaves() { count } else { present.get(number).unwrap_or(&0) };
            if *has > 0 || *count >= node.minimum {
                increase(present.get_mut(node.parent()));
            }
        }
        let mut lowered = vec![false; self.nodes.len()];
        let mut nodes = self.nodes.clone();
        for (number, (node, count)) in nodes.iter_mut().zip(counts).enumerate().rev() {
            let above = lowered.get(node.parent()).copied();
            let has = if number < self.leaves() { count } else { present.get(number).unwrap_or(count) };
            let lowers = *count < node.minimum && above.is_none_or(|above| above && *has > 0);
            if lowers {
                node.minimum = node.minimum.min(*has);
            }
            if let Some(lowered) = lowered.get_mut(number) {
                *lowered = lowers;
            }
        }
        Self { names: Arc::clone(&self.names), nodes }
    }
}

fn increase(count: Option<&mut u32>) {
    if let Some(count) = count {
        *count = count.saturating_add(1);
    }
}

/// Returns the numbers of nodes, given the number of each node's parent: first the leaves, in
/// order; then the others, each after all of its children. Nodes in a cycle are left out.
fn bottom_up(parents: &[Option<usize>]) -> Vec<usize> {
    let mut open = vec![0_u32; parents.len()];
    for parent in parents.iter().flatten() {
        increase(open.get_mut(*parent));
    }
    let mut order: Vec<usize> = Vec::with_capacity(parents.len());
    order.extend(open.iter().enumerate().filter(|(_, open)| **open == 0).map(|(number, _)| number));
    let mut next = 0_usize;
    while let Some(number) = order.get(next) {
        next = next.saturating_add(1);
        let Some(parent) = parents.get(*number).copied().flatten() else { continue };
        if let Some(open) = open.get_mut(parent) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                order.push(parent);
            }
        }
    }
    order
}
