//! The index, fed by the watches.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kube::{Resource, ResourceExt, core::ObjectMeta};
use parking_lot::Mutex;
use tenure_index::{CeilingIndex, Settings, Uid};
use tenure_policy::expiry::Family;
use tenure_service::watch::Store;
use tenure_types::projection::{Pod, PodGroupSpec, RunaiQueue, TensorstackQueue};
use tokio::sync::Notify;

use crate::recent::RecentPauses;

const CROWD: Duration = Duration::from_millis(50);

/// The cluster as the watches have seen it. Clones share it.
#[derive(Clone, Debug)]
pub struct Cluster {
    index: Arc<Mutex<CeilingIndex>>,
    changed: Arc<Notify>,
    /// What was paused of late.
    pub recent: RecentPauses,
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        Self {
            index: Arc::new(Mutex::new(CeilingIndex::new(settings))),
            changed: Arc::default(),
            recent: RecentPauses::default(),
        }
    }

    /// Looks at the index, or changes it without a need for anybody to look again.
    pub fn with<T>(&self, look: impl FnOnce(&mut CeilingIndex) -> T) -> T {
        look(&mut self.index.lock())
    }

    /// Returns when a watch has changed something since this was last asked, and a moment later: changes come in
    /// crowds, and each look may have all pods scheduled anew.
    pub async fn changed(&self) {
        self.changed.notified().await;
        tokio::time::sleep(CROWD).await;
    }

    pub fn change(&self, change: impl FnOnce(&mut CeilingIndex)) {
        self.with(change);
        self.changed.notify_one();
    }
}

#[derive(Debug)]
pub struct PodStore(pub Cluster);

impl Store<Pod> for PodStore {
    type Key = Uid;

    fn key(metadata: &ObjectMeta) -> Uid {
        Uid::of(metadata.uid.as_deref().unwrap_or_default())
    }

    fn apply(&mut self, pod: Pod) {
        self.0.change(|index| index.apply_pod(&pod));
    }

    fn delete(&mut self, uid: &Uid) {
        self.0.change(|index| index.delete_pod(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.0.change(|index| index.retain_pods(uids));
    }
}

#[derive(Debug)]
pub struct RunaiStore(pub Cluster);

impl Store<RunaiQueue> for RunaiStore {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, queue: RunaiQueue) {
        self.0.change(|index| index.apply_runai(&queue.name_any(), &queue.spec));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|index| index.delete_runai(name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|index| index.retain_runai(names));
    }
}

#[derive(Debug)]
pub struct TensorstackStore(pub Cluster);

impl Store<TensorstackQueue> for TensorstackStore {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, queue: TensorstackQueue) {
        self.0.change(|index| index.apply_tensorstack(&queue.name_any(), &queue.spec));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|index| index.delete_tensorstack(name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|index| index.retain_tensorstack(names));
    }
}

/// `PodGroup`s of either family.
#[derive(Debug)]
pub struct GroupStore {
    pub cluster: Cluster,
    pub family: Family,
}

impl<G: Resource + AsRef<PodGroupSpec>> Store<G> for GroupStore {
    type Key = (String, String);

    fn key(metadata: &ObjectMeta) -> (String, String) {
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }

    fn apply(&mut self, group: G) {
        self.cluster.change(|index| index.apply_group(self.family, group.meta(), group.as_ref()));
    }

    fn delete(&mut self, (namespace, name): &(String, String)) {
        self.cluster.change(|index| index.delete_group(self.family, namespace, name));
    }

    fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.cluster.change(|index| index.retain_groups(self.family, keys));
    }
}
