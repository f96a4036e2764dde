//! The index, fed by the watches.

use std::{collections::HashSet, sync::Arc};

use kube::ResourceExt;
use parking_lot::Mutex;
use tenure_index::{CeilingIndex, Uid};
use tenure_service::watch::Store;
use tenure_types::projection::{Pod, RunaiQueue, TensorstackQueue};
use tokio::sync::Notify;

/// The cluster as the watches have seen it. Clones share it.
#[derive(Clone, Debug)]
pub struct Cluster {
    index: Arc<Mutex<CeilingIndex>>,
    changed: Arc<Notify>,
}

impl Cluster {
    pub fn new(priority_threshold: i32) -> Self {
        let index = CeilingIndex::new(priority_threshold);
        Self { index: Arc::new(Mutex::new(index)), changed: Arc::default() }
    }

    /// Looks at the index, or changes it without a need for anybody to look again.
    pub fn with<T>(&self, look: impl FnOnce(&mut CeilingIndex) -> T) -> T {
        look(&mut self.index.lock())
    }

    /// Returns when a watch has changed something since this was last asked.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut CeilingIndex)) {
        self.with(change);
        self.changed.notify_one();
    }
}

#[derive(Debug)]
pub struct PodStore(pub Cluster);

impl Store<Pod> for PodStore {
    type Key = Uid;

    fn key(pod: &Pod) -> Uid {
        Uid::of(pod.metadata.uid.as_deref().unwrap_or_default())
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

    fn key(queue: &RunaiQueue) -> String {
        queue.name_any()
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

    fn key(queue: &TensorstackQueue) -> String {
        queue.name_any()
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
