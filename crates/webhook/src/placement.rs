//! The placement of pods in the cluster, for the scheduler extender and the guard.
//!
//! Watches write it, and answers to requests read it. The index is `tenure_index::PlacementIndex`;
//! this module adds a lock and the watches. The index stays empty if extender and guard are off.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::{scheduling::v1::PriorityClass, storage::v1::CSINode};
use kube::{Api, Client, runtime::watcher};
use parking_lot::{RwLock, RwLockWriteGuard};
use tenure_index::PlacementIndex;
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
use tokio::task::{JoinSet, block_in_place};

/// Pods by node, as the watches have seen them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Placement(Arc<RwLock<PlacementIndex>>);

impl Placement {
    /// Calls `f` with the computed index. Any number of readers read at the same time. The first
    /// reader after a change recomputes the index, while all others wait.
    pub fn with<T>(&self, f: impl FnOnce(&PlacementIndex) -> T) -> T {
        let index = self.0.read();
        if index.is_computed() {
            return f(&index);
        }
        drop(index);
        let mut index = self.0.write();
        index.recompute();
        f(&RwLockWriteGuard::downgrade(index))
    }

    /// Calls `change` with the index, while all readers wait.
    pub fn change<T>(&self, change: impl FnOnce(&mut PlacementIndex) -> T) -> T {
        change(&mut self.0.write())
    }

    /// Changes the index as a watch has shown. An answer may read the index for long: while this
    /// thread waits, another one takes over its other tasks, which may be reviews.
    fn update<T>(&self, update: impl FnOnce(&mut PlacementIndex) -> T) -> T {
        let free = self.0.try_write();
        update(&mut free.unwrap_or_else(|| block_in_place(|| self.0.write())))
    }

    /// Follows pods, nodes, their storage drivers, priority classes, disruption budgets and
    /// `PodGroup`s, and namespaces if `guards` is true. The process is unready until the first list
    /// of each. Each watch is a task, so an event polls no other watch. Never ends.
    pub async fn follow(self, client: Client, readiness: ProcessReadiness, guards: bool) {
        let mut watches = JoinSet::new();
        let (server, store, all) = (|| client.clone(), || self.clone(), watcher::Config::default);
        let awaiting = |what: &str| readiness.awaiting(what);
        // pods that have ended take no room
        let live = all().fields("status.phase!=Succeeded,status.phase!=Failed");
        watches.spawn(follow(Api::<PodWithRoom>::all(server()), live, awaiting("pods"), store()));
        watches.spawn(follow(Api::<Node>::all(server()), all(), awaiting("nodes"), store()));
        watches.spawn(follow(Api::<CSINode>::all(server()), all(), awaiting("csinodes"), store()));
        let classes = Api::<PriorityClass>::all(server());
        watches.spawn(follow(classes, all(), awaiting("priorityclasses"), store()));
        let budgets = Api::<Tolerant<PodDisruptionBudget>>::all(server());
        watches.spawn(follow(budgets, all(), awaiting("poddisruptionbudgets"), TolerantStore(store())));
        if guards {
            watches.spawn(follow(Api::<Namespace>::all(server()), all(), awaiting("namespaces"), store()));
        }
        let listed = awaiting("the kinds of PodGroups");
        let store = move |kind| PodGroupStore { placement: self.clone(), kind };
        let groups = follow_groups(client, store, readiness, listed);
        tokio::join!(watches.join_all(), groups);
    }
}

impl<K> Store<K> for Placement
where
    PlacementIndex: Store<K>,
{
    type Key = <PlacementIndex as Store<K>>::Key;

    fn begin(&mut self) {
        self.update(<PlacementIndex as Store<K>>::begin);
    }

    fn apply(&mut self, object: K) {
        self.update(|index| index.apply(object));
    }

    fn delete(&mut self, key: &Self::Key) {
        self.update(|index| <PlacementIndex as Store<K>>::delete(index, key));
    }

    fn retain(&mut self, keys: &HashSet<Self::Key>) {
        self.update(|index| <PlacementIndex as Store<K>>::retain(index, keys));
    }
}

/// The store of the `PodGroup`s of one kind.
#[derive(Debug)]
struct PodGroupStore {
    placement: Placement,
    kind: PodGroupKind,
}

impl Store<PodGroup> for PodGroupStore {
    type Key = (String, String);

    fn apply(&mut self, group: PodGroup) {
        self.placement.update(|index| index.apply_group(self.kind, &group));
    }

    fn delete(&mut self, (namespace, name): &(String, String)) {
        self.placement.update(|index| index.delete_group(self.kind, namespace, name));
    }

    fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.placement.update(|index| index.retain_groups(self.kind, keys));
    }
}
