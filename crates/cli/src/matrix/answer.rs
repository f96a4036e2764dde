//! What a matrix says, computed as it is asked for.

use serde::{Serialize, Serializer};
use tenure_policy::{
    ceiling,
    floor::{Floor, Floors, Source},
    tree::{QueueId, QueueTree},
};
use tenure_types::ExtendedDuration;

/// A value and where it comes from.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sourced<'t> {
    #[serde(serialize_with = "shown")]
    pub value: ExtendedDuration,
    #[serde(serialize_with = "shown")]
    pub from: Source<'t>,
}

fn shown<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl<'t> From<Floor<'t>> for Sourced<'t> {
    fn from(Floor { value, from }: Floor<'t>) -> Self {
        Self { value, from }
    }
}

/// What applies in a queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row<'t> {
    pub name: &'t str,
    /// From the root to the queue itself.
    pub path: Vec<&'t str>,
    pub preempt_min_runtime: Sourced<'t>,
    /// Null: no limit.
    pub max_duration: Option<Sourced<'t>>,
}

/// What applies between two queues.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair<'t> {
    pub preemptor: &'t str,
    pub victim: &'t str,
    #[serde(flatten)]
    pub floor: Sourced<'t>,
}

/// Queues in alphabetical order, and all that can be asked of them.
pub struct Matrix<'t> {
    tree: &'t QueueTree,
    floors: &'t Floors,
    pool: Option<&'t str>,
    queues: Vec<(&'t str, QueueId)>,
    /// Whose pairs are asked for; none: those of all.
    preemptor: Option<&'t str>,
    victim: Option<&'t str>,
}

impl<'t> Matrix<'t> {
    pub fn new(
        tree: &'t QueueTree,
        floors: &'t Floors,
        pool: Option<&'t str>,
        preemptor: Option<&'t str>,
        victim: Option<&'t str>,
    ) -> Self {
        let named = |name: &'t str| Some((name, tree.find(name)?));
        let mut queues: Vec<_> = match (preemptor, victim) {
            (Some(preemptor), Some(victim)) => [preemptor, victim].into_iter().filter_map(named).collect(),
            _ => tree.queues().filter_map(|(name, _)| named(name)).collect(),
        };
        queues.sort_unstable_by_key(|(name, _)| *name);
        queues.dedup();
        Self { tree, floors, pool, queues, preemptor, victim }
    }

    /// The longest name and the longest floor that a pair can have.
    pub fn widest(&self) -> [String; 2] {
        let names = self.queues.iter().map(|(name, _)| (*name).to_owned());
        let own = self.tree.queues().filter_map(|(_, queue)| queue.reclaim_floor);
        let of_pools = self.floors.node_pools.values().filter_map(|pool| pool.reclaim);
        let floors = own.chain(of_pools).chain([self.floors.reclaim]).map(|floor| floor.to_string());
        [names.max_by_key(String::len), floors.max_by_key(String::len)].map(Option::unwrap_or_default)
    }

    /// What applies in each queue. In a cycle there is no root: then the way to it is the queue alone.
    pub fn rows(&self) -> impl Iterator<Item = Row<'t>> {
        self.queues.iter().map(|(name, id)| {
            let path = self.tree.path(*id).unwrap_or_else(|_| vec![*id]);
            let least = ceiling::effective(self.tree, name).ok().flatten();
            Row {
                name,
                path: path.into_iter().rev().map(|id| self.tree.name(id)).collect(),
                preempt_min_runtime: self.floors.preempt(self.tree, Some(*id), self.pool).into(),
                max_duration: least.map(|(from, value)| Sourced { value, from: Source::Queue(from) }),
            }
        })
    }

    /// What applies between each two queues that are asked for. A queue isn't another than itself, unless just that is
    /// asked for.
    pub fn pairs(&self) -> impl Iterator<Item = Pair<'t>> {
        let Self { preemptor, victim, .. } = *self;
        let (preemptors, victims) = (self.only(preemptor), self.only(victim));
        let itself = preemptor.is_some() && preemptor == victim;
        preemptors.iter().flat_map(move |ours| {
            victims.iter().filter(move |theirs| itself || theirs.1 != ours.1).map(move |theirs| Pair {
                preemptor: ours.0,
                victim: theirs.0,
                floor: self.floors.reclaim(self.tree, Some(ours.1), Some(theirs.1), self.pool).into(),
            })
        })
    }

    /// The queue of a name, or all of them.
    fn only(&self, name: Option<&str>) -> &[(&'t str, QueueId)] {
        let Some(name) = name else { return &self.queues };
        let place = self.queues.binary_search_by_key(&name, |(name, _)| name).ok();
        place.and_then(|place| self.queues.get(place..=place)).unwrap_or_default()
    }
}
