//! The floor that applies to a workload: which value, and from where.

use std::{collections::BTreeMap, fmt, str::FromStr};

use tenure_types::{ExtendedDuration, keys};

use crate::tree::{Inherited, QueueId, QueueTree};

/// The configuration of floors, with the names of the `MinRuntime` plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floors {
    /// `defaultPreemptMinRuntime`: where no queue on the way to the root says anything.
    pub preempt: ExtendedDuration,
    /// `defaultReclaimMinRuntime`: likewise.
    pub reclaim: ExtendedDuration,
    /// `reclaimResolveMethod`
    pub method: ReclaimResolveMethod,
    /// The node label whose value is the name of the node's pool.
    pub node_pool_label_key: String,
    /// Defaults for victims on the nodes of a pool, which come before those above. A value that a pool leaves out is as for all
    /// nodes.
    pub node_pools: BTreeMap<String, PartialFloors>,
}

/// Floors of which each may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialFloors {
    /// The floor against preemptors of the same leaf queue.
    pub preempt: Option<ExtendedDuration>,
    /// The floor against preemptors of other leaf queues.
    pub reclaim: Option<ExtendedDuration>,
}

/// The queue at which the search for a victim's `reclaimMinRuntime` begins. It always goes upward from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimResolveMethod {
    /// One below the lowest common ancestor of preemptor and victim: a queue's value holds against its siblings.
    #[default]
    Lca,
    /// The victim's leaf, for every preemptor.
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

/// The place that a value comes from.
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

/// A floor. Zero means no protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor<'t> {
    /// The time after its start in which a workload is protected.
    pub value: ExtendedDuration,
    /// The queue, node pool or default that the value comes from.
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
    /// Returns the floor against a preemptor of the same leaf queue: the nearest `preemptMinRuntime` from the victim's
    /// leaf upward, else the default. None stands for a queue that doesn't exist. A cycle that got stored has the
    /// default, too.
    pub fn preempt<'t>(
        &'t self,
        tree: &'t QueueTree,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> Floor<'t> {
        self.upward(tree, victim, Inherited::Preempt, pool)
    }

    /// Returns the floor against a preemptor of another leaf queue: the nearest `reclaimMinRuntime`, from the queue
    /// that the method gives upward, else the default. A preemptor without a queue counts as one of another tree:
    /// otherwise no workload would be safe from a preemptor that doesn't name its queue.
    pub fn reclaim<'t>(
        &'t self,
        tree: &'t QueueTree,
        preemptor: Option<QueueId>,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> Floor<'t> {
        let from = match self.method {
            ReclaimResolveMethod::Lca => victim.and_then(|victim| tree.towards(victim, preemptor).ok()),
            ReclaimResolveMethod::Queue => victim,
        };
        self.upward(tree, from, Inherited::Reclaim, pool)
    }

    /// Returns the shortest and the longest floor that [`Self::reclaim`] returns for any preemptor.
    pub fn reclaim_range<'t>(
        &'t self,
        tree: &'t QueueTree,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> [Floor<'t>; 2] {
        // any queue on the way to the root may be the one below the lowest common ancestor
        let way = victim.and_then(|victim| tree.path(victim).ok()).unwrap_or_default();
        let most = match self.method {
            ReclaimResolveMethod::Lca => way.len(),
            ReclaimResolveMethod::Queue => 1,
        };
        let from = || way.iter().take(most);
        let floors = || from().map(|from| self.upward(tree, Some(*from), Inherited::Reclaim, pool));
        let ends = [floors().min_by_key(|floor| floor.value), floors().max_by_key(|floor| floor.value)];
        ends.map(|floor| floor.unwrap_or_else(|| self.default_of(Inherited::Reclaim, pool)))
    }

    /// The longest floor that workloads of a queue may have, against any preemptor and on any node.
    pub fn longest(&self, tree: &QueueTree, queue: Option<QueueId>) -> ExtendedDuration {
        let pools = self.node_pools.keys().map(|name| Some(name.as_str())).chain([None]);
        let of_each = pools.flat_map(|pool| {
            let [_, reclaim] = self.reclaim_range(tree, queue, pool);
            [self.preempt(tree, queue, pool).value, reclaim.value]
        });
        of_each.max().unwrap_or_default()
    }

    /// The longest that workloads have where no queue on the way to the root says any.
    pub fn longest_default(&self, field: Inherited) -> Floor<'_> {
        let pools = self.node_pools.keys().map(|name| self.default_of(field, Some(name)));
        pools.fold(self.default_of(field, None), |longest, of_pool| {
            if of_pool.value > longest.value { of_pool } else { longest }
        })
    }

    fn upward<'t>(
        &'t self,
        tree: &'t QueueTree,
        from: Option<QueueId>,
        field: Inherited,
        pool: Option<&str>,
    ) -> Floor<'t> {
        Floor::of_queues(tree, from, field).unwrap_or_else(|| self.default_of(field, pool))
    }

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
    /// Returns the nearest from a queue upward; none if no queue has one. A cycle that got stored has none, too.
    pub(crate) fn of_queues(tree: &'t QueueTree, from: Option<QueueId>, field: Inherited) -> Option<Self> {
        let (name, queue) = tree.get(tree.nearest(from?, field).ok()??)?;
        Some(Self { value: field.of(queue)?, from: Source::Queue(name) })
    }
}

#[cfg(test)]
mod tests;
