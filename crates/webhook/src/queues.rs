use std::{collections::HashSet, sync::Arc};

use kube::{ResourceExt, core::ObjectMeta};
use parking_lot::RwLock;
use tenure_index::RunaiQueues;
use tenure_service::watch::Store;
use tenure_types::projection::{RunaiQueue, RunaiQueueV2};

/// The queues of the run.ai family, as the watch has seen them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct KnownQueues(Arc<RwLock<RunaiQueues>>);

impl KnownQueues {
    /// Reads the queues.
    pub fn look<T>(&self, look: impl FnOnce(&RunaiQueues) -> T) -> T {
        look(&self.0.read())
    }
}

impl Store<RunaiQueue> for KnownQueues {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, queue: RunaiQueue) {
        self.0.write().apply(&queue.name_any(), &queue.spec);
    }

    fn delete(&mut self, name: &String) {
        self.0.write().delete(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.write().retain(names);
    }
}

/// The same queues, fed with KAI-Scheduler's version, where KAI-Scheduler owns the definition.
#[derive(Clone, Debug, Default)]
pub struct KnownQueuesV2(pub KnownQueues);

impl Store<RunaiQueueV2> for KnownQueuesV2 {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        KnownQueues::key(metadata)
    }

    fn apply(&mut self, queue: RunaiQueueV2) {
        self.0.0.write().apply_v2(&queue.name_any(), &queue);
    }

    fn delete(&mut self, name: &String) {
        self.0.delete(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.retain(names);
    }
}
