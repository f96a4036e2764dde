//! The webhook's view of the cluster: pods by node, and which of them may make room for another.
//!
//! The webhook's watches feed a [`PlacementIndex`], and the scheduler extender and the guard ask it
//! for verdicts. Any number of them read at once, so all verdicts take `&self`, and go by the
//! starts that `recompute` has computed.

mod answer;
mod budgets;
mod guard;
mod kept;
mod pending;
mod places;
mod pods;
mod preemptors;
mod workloads;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use k8s_openapi::api::{
    scheduling::v1::PriorityClass,
    storage::v1::{CSINode, CSINodeDriver},
};
use kube::Resource;
use tenure_policy::{gang::PodProgress, start::LongestFormation, toleration::ClassState};
use tenure_types::{
    podgroup::LONGEST_NAME,
    projection::{Namespace, Node, PodDisruptionBudget},
    room::{PodNeeds, PodWithRoom},
    store::{ObjectKey, Store},
};

use crate::{
    Uid,
    cluster::{ClusterIndex, ClusterModel, ClusterObjects},
    uid::UidMap,
};

pub use answer::{NodeVerdict, PreemptiblePod, PreemptionRequest, Rejection};
use budgets::{Budgets, DisruptionBudget};
pub use guard::{GuardInput, RemovedPod};
pub use kept::KeptPod;
pub use pending::Pending;
use places::PodIndex;
use pods::{Interned, PodRecord};
pub use preemptors::PendingPod;

/// Pods by node, and their protections besides queues, `PodGroup`s and floors.
#[derive(Debug, Default)]
pub struct Placements {
    interned: Interned,
    places: PodIndex,
    /// The schedulers of pods that wait for a node. The schedulers of other pods don't matter.
    schedulers: UidMap<ArcStr>,
    /// The needs of pods besides room. Most pods have none, so they aren't part of each pod's record.
    needs: UidMap<Arc<PodNeeds>>,
    /// The labels of each node: one of them names its pool.
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    /// The number of storage drivers with a limit for attached volumes, by node. Nodes without such
    /// a driver are left out.
    limiting_drivers: BTreeMap<String, usize>,
    /// The states of `PriorityClass`es, by name.
    classes: BTreeMap<String, ClassState>,
    budgets: Budgets,
    /// The deletion times of namespaces that are being deleted.
    terminating_namespaces: BTreeMap<String, Timestamp>,
}

/// A function that returns the facts about the objects of a kind, by name.
type FactAccessor<F> = fn(&mut Placements) -> &mut BTreeMap<String, F>;

/// A cluster-scoped kind of objects of which one fact is kept. Each implementation makes
/// [`PlacementIndex`] a [`Store`] for the kind.
pub trait KeptFact: Resource {
    type Fact;

    /// The function that returns the facts about all objects.
    const FACTS: FactAccessor<Self::Fact>;

    /// Returns the fact. None: nothing is kept of the object.
    fn fact(self) -> Option<Self::Fact>;
}

impl KeptFact for PriorityClass {
    type Fact = ClassState;

    const FACTS: FactAccessor<ClassState> = |placements| &mut placements.classes;

    fn fact(self) -> Option<ClassState> {
        Some(ClassState::of(self.value.unwrap_or(0), self.metadata.annotations.as_ref()))
    }
}

impl KeptFact for Node {
    type Fact = BTreeMap<String, String>;

    const FACTS: FactAccessor<Self::Fact> = |placements| &mut placements.nodes;

    fn fact(self) -> Option<Self::Fact> {
        Some(self.metadata.labels.unwrap_or_default())
    }
}

impl KeptFact for CSINode {
    type Fact = usize;

    const FACTS: FactAccessor<usize> = |placements| &mut placements.limiting_drivers;

    fn fact(self) -> Option<usize> {
        let is_limiting =
            |driver: &&CSINodeDriver| driver.allocatable.as_ref().is_some_and(|of| of.count.is_some());
        Some(self.spec.drivers.iter().filter(is_limiting).count()).filter(|drivers| *drivers > 0)
    }
}

impl KeptFact for Namespace {
    type Fact = Timestamp;

    const FACTS: FactAccessor<Timestamp> = |placements| &mut placements.terminating_namespaces;

    fn fact(self) -> Option<Timestamp> {
        self.metadata.deletion_timestamp.map(|at| at.0)
    }
}

impl<K: KeptFact> Store<K> for PlacementIndex {
    type Key = String;

    fn apply(&mut self, object: K) {
        let name = String::of_object(object.meta());
        match object.fact() {
            Some(fact) => _ = K::FACTS(&mut self.reader).insert(name, fact),
            None => _ = K::FACTS(&mut self.reader).remove(&name),
        }
    }

    fn delete(&mut self, name: &String) {
        K::FACTS(&mut self.reader).remove(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        K::FACTS(&mut self.reader).retain(|name, _| names.contains(name));
    }
}

impl Store<PodDisruptionBudget> for PlacementIndex {
    type Key = (String, String);

    fn apply(&mut self, budget: PodDisruptionBudget) {
        let key = ObjectKey::of_object(&budget.metadata);
        self.reader.budgets.put(key, DisruptionBudget::read(budget));
    }

    fn delete(&mut self, key: &(String, String)) {
        self.reader.budgets.put(key.clone(), None);
    }

    fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.reader.budgets.retain(keys);
    }
}

impl Store<PodWithRoom> for PlacementIndex {
    type Key = Uid;

    fn begin(&mut self) {
        self.begin_pods();
    }

    fn apply(&mut self, pod: PodWithRoom) {
        self.apply_pod(pod);
    }

    fn delete(&mut self, uid: &Uid) {
        self.delete_pod(*uid);
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.retain_pods(uids);
    }
}

impl ClusterIndex for Placements {
    fn pods(&self) -> impl Iterator<Item = Uid> {
        self.places.uids()
    }

    fn delete_pod(&mut self, _: &mut ClusterObjects, uid: Uid) {
        self.places.remove(uid);
        self.schedulers.remove(&uid);
        self.needs.remove(&uid);
    }
}

/// The model of the webhook: everything that decides which pods may make room.
pub type PlacementIndex = ClusterModel<Placements>;

impl PlacementIndex {
    /// Sets the longest time between the scheduling of a workload's first pod and its start.
    pub fn set_longest_formation(&mut self, formation: LongestFormation) {
        self.objects.gangs.set_longest_formation(formation);
    }

    /// Adds or updates a pod. A pod that has ended is forgotten, and a pod without a uid is
    /// ignored.
    pub fn apply_pod(&mut self, pod: PodWithRoom) {
        let (pod, room) = pod.split();
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::of) else { return };
        self.apply_member(&pod);
        if pod.is_finished() {
            self.reader.delete_pod(&mut self.objects, uid);
            return;
        }
        let mut placed = PodRecord::read(&pod, &room, &mut self.objects.interner, &mut self.reader.interned);
        // the API server takes any text: a longer one names no scheduler, and would only take
        // memory
        let scheduler = pod.spec.scheduler_name.as_deref().filter(|name| name.len() <= LONGEST_NAME);
        match scheduler.filter(|_| placed.progress == PodProgress::Waiting) {
            Some(name) => _ = self.reader.schedulers.insert(uid, self.objects.interner.names.shared(name)),
            None => _ = self.reader.schedulers.remove(&uid),
        }
        match room.needs {
            None => self.reader.needs.remove(&uid),
            Some(needs) => {
                let needs = self.reader.interned.needs.shared(needs);
                self.reader.needs.insert(uid, needs)
            }
        };
        placed.memberships = self.objects.gangs.shared_memberships(uid);
        self.reader.places.put(uid, placed);
    }

    /// Computes the starts that may have changed: before questions, since the pods of a gang come
    /// one by one.
    pub fn recompute(&mut self) {
        self.objects.gangs.moved();
    }

    /// True if [`Self::recompute`] has nothing to do.
    pub fn is_computed(&self) -> bool {
        self.objects.gangs.are_computed()
    }

    /// Returns the number of pods that are kept.
    pub fn pods(&self) -> usize {
        self.reader.places.pods()
    }
}

#[cfg(test)]
mod tests;
