//! The queues by which the past is judged, and what applies to the workloads of each.

use jiff::SignedDuration;
use tenure_policy::{
    config::Config,
    expiry::{Family, PerFamily},
    floor::{Floor, Floors},
    limits::Limits,
    preemption::Place,
    queue::RunaiQueue,
    tree::QueueTree,
};
use tenure_types::ExtendedDuration;

use super::past::{Past, PastQueue};
use crate::snapshot::Snapshot;

/// Queues, with the configuration of floors.
#[derive(Debug, Default)]
pub struct SimulatedPolicy {
    pub trees: PerFamily<QueueTree>,
    pub floors: Floors,
    defaults: PerFamily<Option<String>>,
}

/// Values that all queues get in place of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub ceiling: Option<ExtendedDuration>,
    pub preempt: Option<ExtendedDuration>,
    pub reclaim: Option<ExtendedDuration>,
}

impl Overrides {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// What applies to the workloads of a queue of the past.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'t> {
    pub limits: PerFamily<Option<Limits>>,
    /// Its place in the tree that has floors.
    pub place: Place<'t>,
    /// The shortest and the longest floor that a run has against preemptors in the queues of the past.
    pub floors: Option<[Floor<'t>; 2]>,
}

impl SimulatedPolicy {
    pub fn of(snapshot: &Snapshot, config: &Config) -> Self {
        Self::copied(
            |family| snapshot.index.queues(family).tree(),
            config.floors.clone(),
            config.default_queues.clone(),
        )
    }

    /// No queues at all, with the configured floors.
    pub fn default_of(config: &Config) -> Self {
        let (floors, defaults) = (config.floors.clone(), config.default_queues.clone());
        Self { trees: PerFamily::default(), floors, defaults }
    }

    fn copied<'t>(
        tree: impl Fn(Family) -> &'t QueueTree,
        floors: Floors,
        defaults: PerFamily<Option<String>>,
    ) -> Self {
        let trees = PerFamily::new(|family| {
            let queues = tree(family).queues().map(|(name, queue)| (name.to_owned(), queue.clone()));
            let mut copy: QueueTree = queues.collect();
            copy.set_default(defaults[family].as_deref());
            copy
        });
        Self { trees, floors, defaults }
    }

    /// Returns the same policy with other values of all queues that runs of the past are in.
    pub fn with(&self, overrides: Overrides, past: &Past) -> Self {
        let mut policy =
            Self::copied(|family| &self.trees[family], self.floors.clone(), self.defaults.clone());
        if overrides.is_none() {
            return policy;
        }
        for queue in &past.queues {
            let Some(family) = self.families(queue).first().copied().or(Some(Family::Runai)) else {
                continue;
            };
            let tree = &mut policy.trees[family];
            let bound = tree.bind(&queue.name).map_or(&*queue.name, |id| tree.name(id)).to_owned();
            let known = tree.queue(&bound).map(|(_, known)| known.clone()).unwrap_or_default();
            let is_runai = family == Family::Runai;
            tree.put(
                &bound,
                RunaiQueue {
                    ceiling: overrides.ceiling.or(known.ceiling),
                    preempt_floor: overrides.preempt.filter(|_| is_runai).or(known.preempt_floor),
                    reclaim_floor: overrides.reclaim.filter(|_| is_runai).or(known.reclaim_floor),
                    ..known
                },
            );
        }
        policy
    }

    /// The families that have a queue of the past.
    fn families(&self, queue: &PastQueue) -> Vec<Family> {
        let mut families = Family::ALL.to_vec();
        families.retain(|family| {
            queue.family.is_none_or(|of| of == *family) && self.trees[*family].bind(&queue.name).is_some()
        });
        families
    }

    /// Resolves what applies in each queue of the past, by its number.
    pub fn leaves<'t>(&'t self, past: &'t Past) -> Vec<Leaf<'t>> {
        let mut leaves: Vec<Leaf<'t>> = past.queues.iter().map(|queue| self.leaf(queue)).collect();
        let places: Vec<Place<'t>> = leaves.iter().map(|leaf| leaf.place).collect();
        let tree = &self.trees[Family::Runai];
        for leaf in leaves.iter_mut().filter(|leaf| leaf.place.name.is_some()) {
            let own = leaf.place.queue;
            let others = places.iter().filter(|other| other.name != leaf.place.name);
            let reclaim = others.map(|other| self.floors.reclaim(tree, other.queue, own, None));
            let preempt = self.floors.preempt(tree, own, None);
            leaf.floors = Some(reclaim.fold([preempt; 2], |[least, most], floor| {
                [
                    if floor.value < least.value { floor } else { least },
                    if floor.value > most.value { floor } else { most },
                ]
            }));
        }
        leaves
    }

    fn leaf<'t>(&'t self, queue: &'t PastQueue) -> Leaf<'t> {
        let families = self.families(queue);
        let limits = PerFamily::new(|family| {
            let tree = &self.trees[family];
            let leaf = tree.bind(&queue.name).filter(|_| families.contains(&family))?;
            // as for the keeper, a stored cycle has no ceiling
            Some(Limits::of(tree, &self.floors, leaf).unwrap_or_default())
        });
        let is_in_one = queue.family != Some(Family::Tensorstack) && is_queue(&queue.name);
        let name = Some(&*queue.name).filter(|_| is_in_one || families.contains(&Family::Runai));
        Leaf { limits, place: Place::find(&self.trees[Family::Runai], name), floors: None }
    }

    /// The number of queues of the past that aren't among these.
    pub fn unknown(&self, past: &Past) -> usize {
        past.queues.iter().filter(|queue| self.families(queue).is_empty()).count()
    }
}

/// Stands before the namespace of pods that are in no queue. No queue has such a name.
pub const OF_NAMESPACE: &str = "namespace/";

fn is_queue(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(OF_NAMESPACE)
}

impl Leaf<'_> {
    /// The ceilings of a run that notes this one itself. It counts in queues that exist.
    pub fn ceilings(&self, own: Option<SignedDuration>) -> PerFamily<Option<SignedDuration>> {
        PerFamily::new(|family| {
            self.limits[family]?.ceiling.into_iter().map(ExtendedDuration::to_signed).chain(own).min()
        })
    }

    /// True if what its ceiling ends comes back by itself.
    pub fn is_requeued(&self, family: Family) -> bool {
        self.limits[family].is_some_and(|limits| limits.nearest.slice_delay().is_some())
    }

    /// The time that a run gets beyond its ceiling without approval, if its user asks for it.
    pub fn auto_approved(&self, family: Family) -> SignedDuration {
        let allowance = self.limits[family].map(|limits| limits.extensions);
        allowance
            .filter(|of| !of.is_none())
            .map_or(SignedDuration::ZERO, |of| of.auto_approve.min(of.max_total).to_signed())
    }
}
