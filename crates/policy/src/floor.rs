//! The floor that applies to a workload: which value, and from where.

use std::{collections::BTreeMap, fmt, str::FromStr};

use tenure_types::{ExtendedDuration, keys};

use crate::{
    queue::RunaiQueue,
    tree::{Inherited, QueueId, QueueTree},
};

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
    /// Defaults for victims on the nodes of a pool, which come before those above.
    pub node_pools: BTreeMap<String, NodePool>,
}

/// The defaults of a node pool; a value that it leaves out is as for all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePool {
    /// `defaultPreemptMinRuntime`
    pub preempt: Option<ExtendedDuration>,
    /// `defaultReclaimMinRuntime`
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
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMethod> {
        match text {
            "lca" => Ok(Self::Lca),
            "queue" => Ok(Self::Queue),
            _ => Err(UnknownMethod),
        }
    }
}

/// The error for an unknown resolve method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be lca (the default) or queue")]
pub struct UnknownMethod;

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

    /// The longest floor that [`Self::reclaim`] returns for any preemptor.
    pub fn longest_reclaim<'t>(
        &'t self,
        tree: &'t QueueTree,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> Floor<'t> {
        let floors = self.reclaims(tree, victim, pool).into_iter();
        floors.max_by_key(|floor| floor.value).unwrap_or_else(|| self.default_of(Inherited::Reclaim, pool))
    }

    /// The shortest floor that [`Self::reclaim`] returns for any preemptor.
    pub fn shortest_reclaim<'t>(
        &'t self,
        tree: &'t QueueTree,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> Floor<'t> {
        let floors = self.reclaims(tree, victim, pool).into_iter();
        floors.min_by_key(|floor| floor.value).unwrap_or_else(|| self.default_of(Inherited::Reclaim, pool))
    }

    /// All floors that [`Self::reclaim`] returns for some preemptor; none where it is the default for each.
    fn reclaims<'t>(
        &'t self,
        tree: &'t QueueTree,
        victim: Option<QueueId>,
        pool: Option<&str>,
    ) -> Vec<Floor<'t>> {
        // any queue on the way to the root may be the one below the lowest common ancestor
        let way = victim.and_then(|victim| tree.path(victim).ok()).unwrap_or_default();
        let from = match self.method {
            ReclaimResolveMethod::Lca => way.as_slice(),
            ReclaimResolveMethod::Queue => way.get(..1).unwrap_or_default(),
        };
        from.iter().map(|from| self.upward(tree, Some(*from), Inherited::Reclaim, pool)).collect()
    }

    /// The longest floor that workloads of a queue may have, against any preemptor and on any node.
    pub fn longest(&self, tree: &QueueTree, queue: Option<QueueId>) -> ExtendedDuration {
        let pools = self.node_pools.keys().map(|name| Some(name.as_str())).chain([None]);
        let of_each =
            pools.flat_map(|pool| [self.preempt(tree, queue, pool), self.longest_reclaim(tree, queue, pool)]);
        of_each.map(|floor| floor.value).max().unwrap_or_default()
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
        let queue = from.and_then(|from| tree.nearest(from, field).ok().flatten());
        let own = queue.and_then(|queue| tree.get(queue));
        match own.and_then(|(name, queue)| Some((name, field.of(queue)?))) {
            Some((name, value)) => Floor { value, from: Source::Queue(name) },
            None => self.default_of(field, pool),
        }
    }

    pub(crate) fn default_of(&self, field: Inherited, pool: Option<&str>) -> Floor<'_> {
        let pool = pool.and_then(|name| self.node_pools.get_key_value(name));
        let of_pool = pool.and_then(|(name, pool)| match field {
            Inherited::Preempt => Some((name, pool.preempt?)),
            Inherited::Reclaim => Some((name, pool.reclaim?)),
        });
        match (of_pool, field) {
            (Some((name, value)), _) => Floor { value, from: Source::NodePool(name) },
            (None, Inherited::Preempt) => Floor { value: self.preempt, from: Source::Default },
            (None, Inherited::Reclaim) => Floor { value: self.reclaim, from: Source::Default },
        }
    }
}

/// The floors of a queue against any preemptor and on any node, worked out on the way from the root down to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LongestFloors {
    /// The nearest of its own, or of a queue above it.
    preempt: Option<ExtendedDuration>,
    reclaim: Option<ExtendedDuration>,
    /// The longest on the way. Any queue on it may be the one below the lowest common ancestor.
    longest_reclaim: Option<ExtendedDuration>,
    /// The queue at the top has none: there the default counts.
    has_default: Option<bool>,
}

impl LongestFloors {
    /// The floors of a queue whose parent has these.
    #[must_use]
    pub(crate) fn below(self, queue: &RunaiQueue, floors: &Floors) -> Self {
        let reclaim = queue.reclaim_floor.or(self.reclaim);
        let longest_reclaim = match floors.method {
            ReclaimResolveMethod::Lca => self.longest_reclaim.max(queue.reclaim_floor),
            ReclaimResolveMethod::Queue => reclaim,
        };
        let has_default = match floors.method {
            ReclaimResolveMethod::Lca => self.has_default.unwrap_or(queue.reclaim_floor.is_none()),
            ReclaimResolveMethod::Queue => reclaim.is_none(),
        };
        let preempt = queue.preempt_floor.or(self.preempt);
        Self { preempt, reclaim, longest_reclaim, has_default: Some(has_default) }
    }

    /// The longest of them.
    pub(crate) fn longest(&self, floors: &Floors) -> ExtendedDuration {
        let default = |field| floors.longest_default(field).value;
        let preempt = self.preempt.unwrap_or_else(|| default(Inherited::Preempt));
        let reclaim = self.has_default.unwrap_or(true).then(|| default(Inherited::Reclaim));
        preempt.max(reclaim.max(self.longest_reclaim).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
