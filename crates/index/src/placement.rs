//! Pods by the node that they are on, for whoever decides which of them make room for another.

mod answer;
mod budgets;
mod pods;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use k8s_openapi::api::{policy::v1::PodDisruptionBudget, scheduling::v1::PriorityClass};
use kube::core::ObjectMeta;
use tenure_policy::{preemption::Progress, toleration::ClassState, victims::Requests};
use tenure_types::{
    podgroup::{self, PodGroupKind},
    room::PodWithRoom,
};

use crate::{Uid, ceilings::Readers, gangs::Gangs, groups::GroupKey};

pub use answer::{Answer, Dropped, Offer, Question};
use budgets::Budgets;
use pods::Interned;

/// Pods by node, and what protects them, apart from queues and floors.
#[derive(Debug, Default)]
pub struct PlacementIndex {
    readers: Readers,
    interned: Interned,
    gangs: Gangs,
    pods: HashMap<Uid, Box<Placed>>,
    /// Pods that are on each node.
    by_node: HashMap<ArcStr, HashSet<Uid>>,
    /// The labels of each node: one of them names its pool.
    nodes: HashMap<ArcStr, BTreeMap<String, String>>,
    classes: HashMap<String, ClassState>,
    budgets: Budgets,
}

/// A pod, as far as a decision needs it.
#[derive(Debug)]
struct Placed {
    /// As the API server writes it, since answers name it.
    uid: Box<str>,
    namespace: ArcStr,
    node: Option<ArcStr>,
    priority: i32,
    class: Option<ArcStr>,
    /// The queue of the run.ai family that it names itself.
    queue: Option<ArcStr>,
    scheduled: Option<Timestamp>,
    progress: Progress,
    requests: Arc<Requests>,
    labels: Arc<BTreeMap<String, String>>,
    /// Whether its requests are all that it takes.
    plain: bool,
    /// Whether its place is free when it is deleted: neither a kubelet nor a `DaemonSet` would bring it back.
    frees: bool,
}

impl PlacementIndex {
    /// Takes a pod as the API server has it.
    pub fn apply_pod(&mut self, pod: PodWithRoom) {
        let (pod, room) = pod.split();
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::of) else { return };
        self.gangs.apply_pod(uid, &pod, &mut self.readers.names);
        if pod.is_finished() {
            self.forget(uid);
            return;
        }
        let placed = Placed::read(&pod, &room, &mut self.readers.names, &mut self.interned);
        let known = self.pods.get(&uid).and_then(|known| known.node.clone());
        if known != placed.node {
            self.forget(uid);
            if let Some(node) = &placed.node {
                self.by_node.entry(node.clone()).or_default().insert(uid);
            }
        }
        self.pods.insert(uid, Box::new(placed));
    }

    /// Forgets a pod.
    pub fn delete_pod(&mut self, uid: Uid) {
        self.gangs.delete_pod(uid);
        self.forget(uid);
    }

    /// Forgets all pods but these.
    pub fn retain_pods(&mut self, uids: &HashSet<Uid>) {
        self.gangs.retain_pods(uids);
        let gone: Vec<Uid> = self.pods.keys().copied().filter(|uid| !uids.contains(uid)).collect();
        for uid in gone {
            self.forget(uid);
        }
    }

    /// Computes the starts that may be others by now: before questions are asked, and not at each change, since a gang
    /// comes pod by pod.
    pub fn settle(&mut self) {
        self.gangs.moved();
        self.gangs.discard_stamps();
    }

    fn forget(&mut self, uid: Uid) {
        let Some(node) = self.pods.remove(&uid).and_then(|pod| pod.node) else { return };
        if let Some(here) = self.by_node.get_mut(&node) {
            here.remove(&uid);
            if here.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// Takes a `PodGroup` as the API server has it.
    pub fn apply_group(&mut self, kind: PodGroupKind, group: &podgroup::PodGroup) {
        self.gangs.apply_group(kind, group, &mut self.readers);
    }

    /// Forgets a `PodGroup`.
    pub fn delete_group(&mut self, kind: PodGroupKind, namespace: &str, name: &str) {
        self.gangs.delete_group(&GroupKey::new(kind, namespace, name, &mut self.readers.names));
    }

    /// Forgets all `PodGroup`s of a kind but these, by namespace and name.
    pub fn retain_groups(&mut self, kind: PodGroupKind, keys: &HashSet<(String, String)>) {
        self.gangs.retain_groups(kind, keys);
    }

    /// Takes a `PriorityClass` as the API server has it.
    pub fn apply_class(&mut self, class: &PriorityClass) {
        let name = class.metadata.name.clone().unwrap_or_default();
        let state = ClassState::of(class.value.unwrap_or(0), class.metadata.annotations.as_ref());
        self.classes.insert(name, state);
    }

    /// Forgets a `PriorityClass`.
    pub fn delete_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Forgets all `PriorityClass`es but these.
    pub fn retain_classes(&mut self, names: &HashSet<String>) {
        self.classes.retain(|name, _| names.contains(name));
    }

    /// Takes a node as the API server has it.
    pub fn apply_node(&mut self, node: &ObjectMeta) {
        let name = self.readers.names.shared(node.name.as_deref().unwrap_or_default());
        self.nodes.insert(name, node.labels.clone().unwrap_or_default());
    }

    /// Forgets a node.
    pub fn delete_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Forgets all nodes but these.
    pub fn retain_nodes(&mut self, names: &HashSet<String>) {
        self.nodes.retain(|name, _| names.contains(name.as_str()));
    }

    /// Takes a disruption budget as the API server has it.
    pub fn apply_budget(&mut self, budget: &PodDisruptionBudget) {
        self.budgets.apply(budget, &mut self.readers.names);
    }

    /// Forgets a disruption budget.
    pub fn delete_budget(&mut self, namespace: &str, name: &str) {
        self.budgets.delete(namespace, name);
    }

    /// Forgets all disruption budgets but these, by namespace and name.
    pub fn retain_budgets(&mut self, keys: &HashSet<(String, String)>) {
        self.budgets.retain(keys);
    }

    /// How many pods are kept.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }
}

#[cfg(test)]
mod tests;
