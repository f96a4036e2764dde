//! The queues of the run.ai family, as a watch has seen them.
//!
//! The watch of `sight.rs` writes them; all parts that answer requests read them. Queues and
//! running workloads have a lock each, so a reader of both may see one of them a moment earlier.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::RwLock;
use tenure_index::{FamilyQueues, ReadQueue};
use tenure_policy::queue_change::RunningWorkloads;
use tenure_service::watch::Store;
use tenure_types::{projection::ObservedQueue, store::ObjectKey};

/// The queues of the run.ai family, as the watch has seen them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct KnownQueues {
    queues: Arc<RwLock<FamilyQueues>>,
    /// The running workloads of each queue that has some, by the name of the queue and as its
    /// status says.
    running: Arc<RwLock<HashMap<String, RunningWorkloads>>>,
}

impl KnownQueues {
    /// Calls `f` with the queues.
    pub fn with<T>(&self, f: impl FnOnce(&FamilyQueues) -> T) -> T {
        f(&self.queues.read())
    }

    /// Sets the queue that counts for workloads whose queue doesn't exist. None: no queue does.
    pub fn set_default(&self, name: Option<&str>) {
        self.queues.write().set_default(name);
    }

    /// Calls `f` with the running workloads, by the name of the queue.
    pub fn with_running<T>(&self, f: impl FnOnce(&HashMap<String, RunningWorkloads>) -> T) -> T {
        f(&self.running.read())
    }
}

impl<Q: ReadQueue + ObservedQueue> Store<Q> for KnownQueues {
    type Key = String;

    fn apply(&mut self, queue: Q) {
        let name = String::of_object(queue.meta());
        let running = RunningWorkloads::read(&queue.observed_status().workloads.read().unwrap_or_default());
        if running.workloads == 0 {
            self.running.write().remove(&name);
        } else {
            self.running.write().insert(name.clone(), running);
        }
        self.queues.write().apply(&name, &queue);
    }

    fn delete(&mut self, name: &String) {
        self.queues.write().delete(name);
        self.running.write().remove(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.queues.write().retain(names);
        self.running.write().retain(|name, _| names.contains(name));
    }
}
