//! The webhook's view of the cluster: pods by node, and which of them may make room for another.

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
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use k8s_openapi::api::{
    scheduling::v1::PriorityClass,
    storage::v1::{CSINode, CSINodeDriver},
};
use kube::core::ObjectMeta;
use tenure_policy::{kueue, start::LongestFormation, toleration::ClassState};
use tenure_types::{
    projection::PodDisruptionBudget,
    room::{Needs, PodWithRoom},
};

use crate::{
    Uid,
    cluster::{ClusterModel, Moved, Reader},
    uid::UidMap,
};

pub use answer::{NodeVerdict, PreemptionRequest, Rejection, Taken};
use budgets::Budgets;
pub use guard::{Guarding, Sought};
pub use kept::KeptPod;
pub use pending::Pending;
use places::Places;
use pods::{Interned, PodRecord};
pub use preemptors::PendingPod;
use preemptors::Schedulers;

/// Pods by node, and what protects them besides queues, `PodGroup`s and floors.
#[derive(Debug, Default)]
pub struct Placements {
    interned: Interned,
    places: Places,
    schedulers: Schedulers,
    /// The needs of pods besides room. Most pods have none, so they aren't part of each pod's record.
    needs: UidMap<Arc<Needs>>,
    /// The labels of each node: one of them names its pool.
    nodes: HashMap<ArcStr, BTreeMap<String, String>>,
    /// The nodes with a limit for attached volumes.
    limit_volumes: HashSet<String>,
    classes: HashMap<String, ClassState>,
    budgets: Budgets,
    /// The namespaces that are being deleted.
    terminating_namespaces: HashSet<String>,
}

impl Reader for Placements {
    fn delete_pod(&mut self, uid: Uid) {
        self.places.remove(uid);
        self.schedulers.remove(uid);
        self.needs.remove(&uid);
    }

    fn retain_pods(&mut self, uids: &HashSet<Uid>) {
        let gone: Vec<Uid> = self.places.uids().filter(|uid| !uids.contains(uid)).collect();
        for uid in gone {
            self.delete_pod(uid);
        }
    }
}

/// The model of the webhook: everything that decides which pods may make room.
pub type PlacementIndex = ClusterModel<Placements>;

impl PlacementIndex {
    /// Sets the longest time that workloads may take to form.
    pub fn set_longest_formation(&mut self, formation: LongestFormation) {
        self.objects.gangs.set_longest_formation(formation);
    }

    /// Sets the queues that Kueue's queues stand for. Only pods that are added or updated later are in them.
    pub fn set_kueue_queues(&mut self, queues: kueue::Queues) {
        self.objects.interner.kueue_queues = queues;
    }

    /// Adds or updates a pod.
    pub fn apply_pod(&mut self, pod: PodWithRoom) {
        let (pod, room) = pod.split();
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::of) else { return };
        self.apply_member(&pod);
        if pod.is_finished() {
            self.reader.delete_pod(uid);
            return;
        }
        let mut placed = PodRecord::read(&pod, &room, &mut self.objects.interner, &mut self.reader.interned);
        self.reader.schedulers.put(uid, &pod, &placed, &mut self.objects.interner.names);
        match room.needs {
            None => self.reader.needs.remove(&uid),
            Some(needs) => {
                let needs = self.reader.interned.needs(needs);
                self.reader.needs.insert(uid, needs)
            }
        };
        placed.memberships = self.objects.gangs.shared_memberships(uid);
        self.reader.places.put(uid, placed);
    }

    /// Computes the starts that may have changed: before questions are asked, and not at each change, since the pods of
    /// a gang come one by one.
    pub fn settle(&mut self) {
        self.objects.gangs.moved();
        self.objects.moved = Moved::default();
    }

    /// True if [`Self::settle`] has nothing to do.
    pub fn is_settled(&self) -> bool {
        let Moved { all, owners, pods } = &self.objects.moved;
        self.objects.gangs.are_computed() && !all && owners.is_empty() && pods.is_empty()
    }

    /// Adds or updates a `PriorityClass`.
    pub fn apply_class(&mut self, class: &PriorityClass) {
        let name = class.metadata.name.clone().unwrap_or_default();
        let state = ClassState::of(class.value.unwrap_or(0), class.metadata.annotations.as_ref());
        self.reader.classes.insert(name, state);
    }

    /// Forgets a `PriorityClass`.
    pub fn delete_class(&mut self, name: &str) {
        self.reader.classes.remove(name);
    }

    /// Forgets all `PriorityClass`es but these.
    pub fn retain_classes(&mut self, names: &HashSet<String>) {
        self.reader.classes.retain(|name, _| names.contains(name));
    }

    /// Adds or updates a node.
    pub fn apply_node(&mut self, node: &ObjectMeta) {
        let name = self.objects.interner.names.shared(node.name.as_deref().unwrap_or_default());
        self.reader.nodes.insert(name, node.labels.clone().unwrap_or_default());
    }

    /// Forgets a node.
    pub fn delete_node(&mut self, name: &str) {
        self.reader.nodes.remove(name);
    }

    /// Forgets all nodes but these.
    pub fn retain_nodes(&mut self, names: &HashSet<String>) {
        self.reader.nodes.retain(|name, _| names.contains(name.as_str()));
    }

    /// Adds or updates the CSI drivers of a node.
    pub fn apply_csi_node(&mut self, node: &CSINode) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let count = |driver: &CSINodeDriver| driver.allocatable.as_ref()?.count;
        if node.spec.drivers.iter().any(|driver| count(driver).is_some()) {
            self.reader.limit_volumes.insert(name);
        } else {
            self.reader.limit_volumes.remove(&name);
        }
    }

    /// Forgets the CSI drivers of a node.
    pub fn delete_csi_node(&mut self, name: &str) {
        self.reader.limit_volumes.remove(name);
    }

    /// Forgets the CSI drivers of all nodes but these.
    pub fn retain_csi_nodes(&mut self, names: &HashSet<String>) {
        self.reader.limit_volumes.retain(|name| names.contains(name));
    }

    /// Adds or updates a disruption budget.
    pub fn apply_budget(&mut self, budget: &PodDisruptionBudget) {
        self.reader.budgets.apply(budget, &mut self.objects.interner.names);
    }

    /// Forgets a disruption budget.
    pub fn delete_budget(&mut self, namespace: &str, name: &str) {
        self.reader.budgets.delete(namespace, name);
    }

    /// Forgets all disruption budgets but these, by namespace and name.
    pub fn retain_budgets(&mut self, keys: &HashSet<(String, String)>) {
        self.reader.budgets.retain(keys);
    }

    /// Adds or updates a namespace.
    pub fn apply_namespace(&mut self, namespace: &ObjectMeta) {
        let name = namespace.name.as_deref().unwrap_or_default();
        if namespace.deletion_timestamp.is_some() {
            self.reader.terminating_namespaces.insert(name.to_owned());
        } else {
            self.reader.terminating_namespaces.remove(name);
        }
    }

    /// Forgets a namespace.
    pub fn delete_namespace(&mut self, name: &str) {
        self.reader.terminating_namespaces.remove(name);
    }

    /// Forgets all namespaces but these.
    pub fn retain_namespaces(&mut self, names: &HashSet<String>) {
        self.reader.terminating_namespaces.retain(|name| names.contains(name));
    }

    /// The number of pods that are kept.
    pub fn pods(&self) -> usize {
        self.reader.places.pods()
    }
}

#[cfg(test)]
mod tests;
