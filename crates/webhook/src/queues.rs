use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube::{ResourceExt, core::ObjectMeta};
use parking_lot::RwLock;
use tenure_index::RunaiQueues;
use tenure_policy::queue_change::Running;
use tenure_service::watch::Store;
use tenure_types::projection::{ObservedStatus, RunaiQueueObject, RunaiQueueV2Object};

/// The queues of the run.ai family, as the watch has seen them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct KnownQueues {
    queues: Arc<RwLock<RunaiQueues>>,
    /// The running workloads of each that has some, as its status says.
    running: Arc<RwLock<HashMap<String, Running>>>,
}

impl KnownQueues {
    /// Reads the queues.
    pub fn look<T>(&self, look: impl FnOnce(&RunaiQueues) -> T) -> T {
        look(&self.queues.read())
    }

    /// Looks at the running workloads of queues.
    pub fn look_at_running<T>(&self, look: impl FnOnce(&HashMap<String, Running>) -> T) -> T {
        look(&self.running.read())
    }

    fn observe(&self, name: &str, status: &ObservedStatus) {
        let running = Running::read(&status.workloads);
        let mut all = self.running.write();
        if running.workloads == 0 {
            all.remove(name);
        } else {
            all.insert(name.to_owned(), running);
        }
    }

    fn forget(&self, name: &str) {
        self.queues.write().delete(name);
        self.running.write().remove(name);
    }

    fn keep(&self, names: &HashSet<String>) {
        self.queues.write().retain(names);
        self.running.write().retain(|name, _| names.contains(name));
    }
}

impl Store<RunaiQueueObject> for KnownQueues {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, queue: RunaiQueueObject) {
        let name = queue.name_any();
        self.observe(&name, &queue.status);
        self.queues.write().apply(&name, &queue.spec);
    }

    fn delete(&mut self, name: &String) {
        self.forget(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.keep(names);
    }
}

/// The same queues, fed with KAI-Scheduler's version, where KAI-Scheduler owns the definition.
#[derive(Clone, Debug, Default)]
pub struct KnownQueuesV2(pub KnownQueues);

impl Store<RunaiQueueV2Object> for KnownQueuesV2 {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        KnownQueues::key(metadata)
    }

    fn apply(&mut self, queue: RunaiQueueV2Object) {
        let name = queue.name_any();
        self.0.observe(&name, &queue.observed_status());
        self.0.queues.write().apply_v2(&name, &queue);
    }

    fn delete(&mut self, name: &String) {
        self.0.forget(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.keep(names);
    }
}
