use std::{collections::HashSet, sync::Arc};

use kube::{ResourceExt, core::ObjectMeta};
use parking_lot::RwLock;
use tenure_index::RunaiQueues;
use tenure_service::watch::Store;
use tenure_types::projection::RunaiQueue;

/// The queues of the run.ai family, as the watch has seen them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct KnownQueues(Arc<RwLock<RunaiQueues>>);

impl KnownQueues {
    /// Looks at the queues.
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
