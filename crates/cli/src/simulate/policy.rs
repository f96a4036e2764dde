//! The queues by which the past is judged, and the limits of each queue's workloads.
//!
//! Called by `simulate` for the baseline and for the policy to try. Limits are resolved by
//! `tenure_policy`, once for each queue of the past.

use std::num::NonZeroU32;

use clap::Args;
use jiff::SignedDuration;
use tenure_policy::{
    expiry::{Family, PerFamily},
    floor::{Floor, Floors},
    limits::QueueLimits,
    preemption::QueuePlace,
    queue::RunaiQueue,
    tree::{QueueId, QueueTree},
};
use tenure_types::ExtendedDuration;

use super::past::{Past, PastQueue};
use crate::{floors::duration, snapshot::Snapshot};

/// The queues of both families, with the configuration of floors.
#[derive(Clone, Debug, Default)]
pub struct SimulatedPolicy {
    pub trees: PerFamily<QueueTree>,
    pub floors: Floors,
}

/// Values that all queues of the past get in place of their own. None: queues keep their own
/// values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct Overrides {
    /// Give all queues this maxDuration of their own
    #[arg(long = "max-duration", value_name = "DURATION", value_parser = ceiling, help_heading = "Policy")]
    pub ceiling: Option<ExtendedDuration>,

    /// Give all queues this preemptMinRuntime of their own
    #[arg(long = "preempt-min-runtime", value_name = "DURATION", value_parser = duration, help_heading = "Policy")]
    pub preempt: Option<ExtendedDuration>,

    /// Give all queues this reclaimMinRuntime of their own
    #[arg(long = "reclaim-min-runtime", value_name = "DURATION", value_parser = duration, help_heading = "Policy")]
    pub reclaim: Option<ExtendedDuration>,
}

/// The limits of the workloads of a queue of the past.
#[derive(Clone, Copy, Debug)]
pub struct LeafLimits<'t> {
    /// The limits in each family. None: the family has no such queue.
    pub limits: PerFamily<Option<QueueLimits>>,
    /// The place of the queue in the run.ai tree.
    pub place: QueuePlace<'t>,
    /// The shortest and the longest floor of a run against preemptors in the queues of the past.
    /// None: the workloads are in no queue.
    pub floors: Option<[Floor<'t>; 2]>,
}

/// The limits in each queue of the past, at the place of its number.
pub struct Leaves<'t>(Vec<LeafLimits<'t>>);

impl<'t> Leaves<'t> {
    pub fn of(&self, queue: u32) -> Option<&LeafLimits<'t>> {
        self.0.get(queue as usize)
    }
}

impl SimulatedPolicy {
    /// Returns the queues of a snapshot.
    pub fn of(Snapshot { index, floors, .. }: &Snapshot) -> Self {
        Self { trees: PerFamily::new(|family| index.trees()[family].clone()), floors: floors.clone() }
    }

    /// Returns the same policy with these values for all queues that runs of the past are in. A
    /// queue that doesn't exist is added, unless the default queue stands for it. Floors are for
    /// the run.ai family alone.
    pub fn with(&self, overrides: Overrides, past: &Past) -> Self {
        let mut policy = self.clone();
        for queue in past.queues.iter().filter(|_| overrides != Overrides::default()) {
            let family = self.family(queue);
            let tree = &mut policy.trees[family];
            let bound = tree.bind(&queue.name).map_or(&*queue.name, |id| tree.name(id)).to_owned();
            let known = tree.queue(&bound).map(|(_, known)| known.clone()).unwrap_or_default();
            let is_runai = family == Family::Runai;
            let queue = RunaiQueue {
                ceiling: overrides.ceiling.or(known.ceiling),
                preempt_floor: overrides.preempt.filter(|_| is_runai).or(known.preempt_floor),
                reclaim_floor: overrides.reclaim.filter(|_| is_runai).or(known.reclaim_floor),
                ..known
            };
            tree.put(&bound, queue);
        }
        policy
    }

    /// Returns the first family that has a queue of the past, or else the one that it is in.
    pub fn family(&self, queue: &PastQueue) -> Family {
        let first = Family::ALL.into_iter().find(|family| self.bound(*family, queue).is_some());
        first.or(queue.family).unwrap_or(Family::Runai)
    }

    /// Returns the queue of a family that counts for a queue of the past. None: there is none.
    fn bound(&self, family: Family, queue: &PastQueue) -> Option<QueueId> {
        self.trees[family].bind(&queue.name).filter(|_| queue.family.is_none_or(|of| of == family))
    }

    /// Returns the limits in each queue of the past.
    pub fn leaves<'t>(&'t self, past: &'t Past) -> Leaves<'t> {
        let mut leaves: Vec<LeafLimits<'t>> = past.queues.iter().map(|queue| self.leaf(queue)).collect();
        let places: Vec<QueuePlace<'t>> = leaves.iter().map(|leaf| leaf.place).collect();
        let tree = &self.trees[Family::Runai];
        for leaf in leaves.iter_mut().filter(|leaf| leaf.place.name.is_some()) {
            let own = leaf.place.queue;
            let others = places.iter().filter(|other| other.name != leaf.place.name);
            let reclaim = others.map(|other| self.floors.reclaim(tree, other.queue, own, None));
            let mut floors: Vec<Floor<'t>> = reclaim.chain([self.floors.preempt(tree, own, None)]).collect();
            floors.sort_by_key(|floor| floor.value);
            leaf.floors = floors.first().zip(floors.last()).map(|(least, most)| [*least, *most]);
        }
        Leaves(leaves)
    }

    fn leaf<'t>(&'t self, queue: &'t PastQueue) -> LeafLimits<'t> {
        let limits = PerFamily::new(|family| {
            Some(QueueLimits::of(&self.trees[family], &self.floors, self.bound(family, queue)?))
        });
        let is_in_one = queue.family != Some(Family::Tensorstack) && is_queue(&queue.name);
        let is_in_one = is_in_one || self.bound(Family::Runai, queue).is_some();
        let name = Some(&*queue.name).filter(|_| is_in_one);
        LeafLimits { limits, place: QueuePlace::find(&self.trees[Family::Runai], name), floors: None }
    }

    /// Returns the number of queues of the past that the policy doesn't have. Namespaces of pods in
    /// no queue aren't among them.
    pub fn unknown(&self, past: &Past) -> usize {
        let has_none = |of: &PastQueue| Family::ALL.iter().all(|family| self.bound(*family, of).is_none());
        let is_unknown = |of: &&PastQueue| is_queue(&of.name) && has_none(of);
        past.queues.iter().filter(is_unknown).count()
    }
}

/// Reads a ceiling, which must not be zero.
pub fn ceiling(text: &str) -> Result<ExtendedDuration, String> {
    let value = Some(duration(text)?).filter(|value| *value != ExtendedDuration::ZERO);
    value.ok_or_else(|| "must be greater than zero, such as 2d".into())
}

/// Stands before the namespace of pods that are in no queue. No queue can have such a name.
pub const OF_NAMESPACE: &str = "namespace/";

/// True if a name is that of a queue.
fn is_queue(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(OF_NAMESPACE)
}

impl LeafLimits<'_> {
    /// Returns the ceilings of a run, which may note one itself, in seconds. Its own ceiling counts
    /// only in queues that exist.
    pub fn ceilings(&self, own: Option<NonZeroU32>) -> PerFamily<Option<SignedDuration>> {
        let own = own.map(|seconds| SignedDuration::from_secs(seconds.get().into()));
        PerFamily::new(|family| {
            self.limits[family]?.ceiling.into_iter().map(ExtendedDuration::to_signed).chain(own).min()
        })
    }

    /// Returns the time after which workloads that the ceiling ends come back by themselves. None:
    /// they don't.
    pub fn slice_delay(&self, family: Family) -> Option<ExtendedDuration> {
        self.limits[family]?.nearest.slice_delay()
    }

    /// Returns the time beyond its ceiling that a run gets without approval if its user asks for
    /// it.
    pub fn auto_approved(&self, family: Family) -> SignedDuration {
        let of = self.limits[family].map(|limits| limits.extensions).unwrap_or_default();
        if of.is_none() { SignedDuration::ZERO } else { of.auto_approve.min(of.max_total).to_signed() }
    }
}
