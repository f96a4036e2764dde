//! The floor that applies to a workload: its value, and the queue or default that sets it.
//!
//! The scheduler extender and the guard ask this module by way of `crate::preemption`; the command
//! line and the status of queues ask as well. So all of them find the same floor.

use std::{collections::BTreeMap, fmt, str::FromStr};

use tenure_types::{ExtendedDuration, keys};

use crate::tree::{Inherited, QueueId, QueueTree};

/// The configuration of floors, with the names of the `MinRuntime` plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floors {
    /// `defaultPreemptMinRuntime`: the floor where no queue on the path to the root sets
    /// `preemptMinRuntime`.
    pub preempt: ExtendedDuration,
    /// `defaultReclaimMinRuntime`: the floor where no queue that is searched sets
    /// `reclaimMinRuntime`.
    pub reclaim: ExtendedDuration,
    /// `reclaimResolveMethod`
    pub method: ReclaimResolveMethod,
    /// The node label whose value is the name of the node's pool.
    pub node_pool_label_key: String,
    /// By the name of a node pool, the defaults for victims on its nodes, which come before those
    /// above. A value that a pool leaves out is the default for all nodes.
    pub node_pools: BTreeMap<String, PartialFloors>,
}

/// Floors that each may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialFloors {
    /// The floor against preemptors of the same leaf queue.
    pub preempt: Option<ExtendedDuration>,
    /// The floor against preemptors of other leaf queues.
    pub reclaim: Option<ExtendedDuration>,
}

/// The queue at which the search for a victim's `reclaimMinRuntime` begins. The search always goes
/// upward from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimResolveMethod {
    /// The queue one step below the lowest common ancestor of preemptor and victim, towards the
    /// victim: a queue's value holds against its siblings.
    #[default]
    Lca,
    /// The victim's leaf queue, for every preemptor.
    Queue,
}

impl FromStr for ReclaimResolveMethod {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "lca" => Ok(Self::Lca),
            "queue" => Ok(Self::Queue),
            _ => Err("must be lca (the default) or queue"),
        }
    }
}

impl fmt::Display for ReclaimResolveMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lca => "lca",
            Self::Queue => "queue",
        })
    }
}

/// The place that sets a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'t> {
    /// The spec of this queue.
    Queue(&'t str),
    /// The default of this node pool.
    NodePool(&'t str),
    /// The default for all.
    Default,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue {name:?}"),
            Self::NodePool(name) => write!(f, "node pool {name:?}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A floor and its source. A value of zero means no protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor<'t> {
    /// How long after its start a workload is protected.
    pub value: ExtendedDuration,
    /// The queue, node pool or default that sets the value.
    pub from: Source<'t>,
}

impl Default for Floors {
    fn default() -> Self {
        Self {
            preempt: ExtendedDuration::default(),
            reclaim: ExtendedDuration::default(),
            method: ReclaimResolveMethod::default(),
            node_pool_label_key: keys::NODE_POOL_LABEL.into(),
            node_pools: BTreeMap::new(),
        }
    }
}

impl Floors {
    /// Returns the floor against a preemptor of the same leaf queue: the nearest
    /// `preemptMinRuntime` from the victim's leaf upward, else the default. A victim of None is in
    /// a queue that doesn't exist, and has the default. `pool` is the pool of the victim's node.
    pub fn preempt<'t>(
        &'t self,
        tree: &'t QueueTree,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> Floor<'t> {
        self.upward(tree, victim, Inherited::Preempt, pool)
    }

    /// Returns the floor against a preemptor of another leaf queue: the nearest
    /// `reclaimMinRuntime`, upward from the queue that the method gives, else the default.
    ///
    /// A preemptor without a queue counts as one of another tree: otherwise no workload would be
    /// safe from a preemptor that doesn't name its queue.
    pub fn reclaim<'t>(
        &'t self,
        tree: &'t QueueTree,
        preemptor: Option<QueueId>,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> Floor<'t> {
        let from = match self.method {
            ReclaimResolveMethod::Lca => victim.map(|victim| tree.towards(victim, preemptor)),
            ReclaimResolveMethod::Queue => victim,
        };
        self.upward(tree, from, Inherited::Reclaim, pool)
    }

    /// Returns the shortest and the longest floor that [`Self::reclaim`] returns for any preemptor,
    /// in this order.
    pub fn reclaim_range<'t>(
        &'t self,
        tree: &'t QueueTree,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> [Floor<'t>; 2] {
        // any queue on the path may be the one below the lowest common ancestor; of a cycle, only
        // the victim and the last queue: what else comes into the cycle there has the same path
        let way = victim.map(|victim| tree.path(victim)).unwrap_or_default();
        let kept = [victim, way.last().copied()];
        let begins = |id: &&QueueId| kept.contains(&Some(**id)) || !tree.is_in_cycle(**id);
        let most = match self.method {
            ReclaimResolveMethod::Lca => way.len(),
            ReclaimResolveMethod::Queue => 1,
        };
        let from = || way.iter().take(most).filter(begins);
        let floors = || from().map(|from| self.upward(tree, Some(*from), Inherited::Reclaim, pool));
        let ends = [floors().min_by_key(|floor| floor.value), floors().max_by_key(|floor| floor.value)];
        ends.map(|floor| floor.unwrap_or_else(|| self.default_of(Inherited::Reclaim, pool)))
    }

    /// Returns the longest floor that workloads of a queue may have, against any preemptor and on
    /// any node.
    pub fn longest(&self, tree: &QueueTree, queue: Option<QueueId>) -> ExtendedDuration {
        let pools = self.node_pools.keys().map(|name| Some(name.as_str())).chain([None]);
        let of_each = pools.flat_map(|pool| {
            let [_, reclaim] = self.reclaim_range(tree, queue, pool);
            [self.preempt(tree, queue, pool).value, reclaim.value]
        });
        of_each.max().unwrap_or_default()
    }

    /// Returns the longest default of a floor, on any node: workloads have it where no queue on the
    /// path to the root sets the floor.
    pub fn longest_default(&self, field: Inherited) -> Floor<'_> {
        let pools = self.node_pools.keys().map(|name| self.default_of(field, Some(name)));
        pools.fold(self.default_of(field, None), |longest, of_pool| {
            if of_pool.value > longest.value { of_pool } else { longest }
        })
    }

    /// Returns the nearest floor from a queue upward, else the default for a node pool.
    fn upward<'t>(
        &'t self,
        tree: &'t QueueTree,
        from: Option<QueueId>,
        field: Inherited,
        pool: Option<&str>,
    ) -> Floor<'t> {
        Floor::of_queues(tree, from, field).unwrap_or_else(|| self.default_of(field, pool))
    }

    /// Returns the default of a floor for the nodes of a pool. None, or a pool without this value:
    /// the default for all nodes.
    pub(crate) fn default_of(&self, field: Inherited, pool: Option<&str>) -> Floor<'_> {
        let pool = pool.and_then(|name| self.node_pools.get_key_value(name));
        let of_pool = pool.and_then(|(name, pool)| Some((name, field.pick(pool.preempt, pool.reclaim)?)));
        match of_pool {
            Some((name, value)) => Floor { value, from: Source::NodePool(name) },
            None => Floor { value: field.pick(self.preempt, self.reclaim), from: Source::Default },
        }
    }
}

impl<'t> Floor<'t> {
    /// Returns the nearest floor from a queue upward. None: no queue on the path sets it.
    pub(crate) fn of_queues(tree: &'t QueueTree, from: Option<QueueId>, field: Inherited) -> Option<Self> {
        let (name, queue) = tree.get(tree.nearest(from?, field)?)?;
        Some(Self { value: field.of(queue)?, from: Source::Queue(name) })
    }
}

#[cfg(test)]
mod tests;
