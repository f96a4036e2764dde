//! The placement of pods in the cluster, fed by watches: for the scheduler extender and the guard.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::{scheduling::v1::PriorityClass, storage::v1::CSINode};
use kube::{Api, Client, core::ObjectMeta, runtime::watcher};
use parking_lot::{RwLock, RwLockWriteGuard};
use tenure_index::{PlacementIndex, Uid};
use tenure_service::{
    groups::follow_groups,
    readiness::ProcessReadiness,
    watch::{Store, TolerantStore, follow},
};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::{Namespace, Node, PodDisruptionBudget},
    room::PodWithRoom,
    tolerant::Tolerant,
};

/// Pods by node, as the watches have seen them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Placement(Arc<RwLock<PlacementIndex>>);

impl Placement {
    /// Reads the index. As long as nothing changes, any number of readers do so at once.
    pub fn look<T>(&self, look: impl FnOnce(&PlacementIndex) -> T) -> T {
        let index = self.0.read();
        if index.is_settled() {
            return look(&index);
        }
        drop(index);
        let mut index = self.0.write();
        index.settle();
        look(&RwLockWriteGuard::downgrade(index))
    }

    /// Changes the index.
    pub fn change<T>(&self, change: impl FnOnce(&mut PlacementIndex) -> T) -> T {
        change(&mut self.0.write())
    }

    /// Follows all objects that it holds, except namespaces. Never ends.
    pub async fn follow(self, client: Client, readiness: ProcessReadiness) {
        let all = watcher::Config::default;
        // pods that have ended take no room
        let live = all().fields("status.phase!=Succeeded,status.phase!=Failed");
        let pods = follow(Api::all(client.clone()), live, readiness.awaiting("pods"), Pods(self.clone()));
        let nodes = follow(Api::all(client.clone()), all(), readiness.awaiting("nodes"), Nodes(self.clone()));
        let drivers = readiness.awaiting("csinodes");
        let drivers = follow(Api::all(client.clone()), all(), drivers, Drivers(self.clone()));
        let classes = readiness.awaiting("priorityclasses");
        let classes = follow(Api::all(client.clone()), all(), classes, Classes(self.clone()));
        let budgets = readiness.awaiting("poddisruptionbudgets");
        let api = Api::<Tolerant<PodDisruptionBudget>>::all(client.clone());
        let budgets = follow(api, all(), budgets, TolerantStore(Budgets(self.clone())));
        let looked = readiness.awaiting("the kinds of PodGroups");
        let store = move |kind| Groups { placement: self.clone(), kind };
        let groups = follow_groups(client, store, readiness, looked);
        tokio::join!(pods, nodes, drivers, classes, budgets, groups);
    }

    /// Follows namespaces. Never ends.
    pub async fn follow_namespaces(self, client: Client, readiness: ProcessReadiness) {
        let synced = readiness.awaiting("namespaces");
        follow(Api::all(client), watcher::Config::default(), synced, Namespaces(self)).await;
    }
}

fn named(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

fn within_namespace(metadata: &ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), named(metadata))
}

#[derive(Debug)]
struct Pods(Placement);

impl Store<PodWithRoom> for Pods {
    type Key = Uid;

    fn key(metadata: &ObjectMeta) -> Uid {
        Uid::of(metadata.uid.as_deref().unwrap_or_default())
    }

    fn begin(&mut self) {
        self.0.change(PlacementIndex::begin_pods);
    }

    fn apply(&mut self, pod: PodWithRoom) {
        self.0.change(|index| index.apply_pod(pod));
    }

    fn delete(&mut self, uid: &Uid) {
        self.0.change(|index| index.delete_pod(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.0.change(|index| index.retain_pods(uids));
    }
}

#[derive(Debug)]
struct Nodes(Placement);

impl Store<Node> for Nodes {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        named(metadata)
    }

    fn apply(&mut self, node: Node) {
        self.0.change(|index| index.apply_node(&node.metadata));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|index| index.delete_node(name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|index| index.retain_nodes(names));
    }
}

#[derive(Debug)]
struct Drivers(Placement);

impl Store<CSINode> for Drivers {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        named(metadata)
    }

    fn apply(&mut self, node: CSINode) {
        self.0.change(|index| index.apply_csi_node(&node));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|index| index.delete_csi_node(name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|index| index.retain_csi_nodes(names));
    }
}

#[derive(Debug)]
struct Namespaces(Placement);

impl Store<Namespace> for Namespaces {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        named(metadata)
    }

    fn apply(&mut self, namespace: Namespace) {
        self.0.change(|index| index.apply_namespace(&namespace.metadata));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|index| index.delete_namespace(name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|index| index.retain_namespaces(names));
    }
}

#[derive(Debug)]
struct Classes(Placement);

impl Store<PriorityClass> for Classes {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        named(metadata)
    }

    fn apply(&mut self, class: PriorityClass) {
        self.0.change(|index| index.apply_class(&class));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|index| index.delete_class(name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|index| index.retain_classes(names));
    }
}

#[derive(Debug)]
struct Budgets(Placement);

impl Store<PodDisruptionBudget> for Budgets {
    type Key = (String, String);

    fn key(metadata: &ObjectMeta) -> (String, String) {
        within_namespace(metadata)
    }

    fn apply(&mut self, budget: PodDisruptionBudget) {
        self.0.change(|index| index.apply_budget(&budget));
    }

    fn delete(&mut self, (namespace, name): &(String, String)) {
        self.0.change(|index| index.delete_budget(namespace, name));
    }

    fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.0.change(|index| index.retain_budgets(keys));
    }
}

#[derive(Debug)]
struct Groups {
    placement: Placement,
    kind: PodGroupKind,
}

impl Store<PodGroup> for Groups {
    type Key = (String, String);

    fn key(metadata: &ObjectMeta) -> (String, String) {
        within_namespace(metadata)
    }

    fn apply(&mut self, group: PodGroup) {
        self.placement.change(|index| index.apply_group(self.kind, &group));
    }

    fn delete(&mut self, (namespace, name): &(String, String)) {
        self.placement.change(|index| index.delete_group(self.kind, namespace, name));
    }

    fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.placement.change(|index| index.retain_groups(self.kind, keys));
    }
}
