use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::RwLock;
use tenure_index::{Queues, ReadQueue};
use tenure_policy::queue_change::Running;
use tenure_service::watch::Store;
use tenure_types::{projection::ObservedQueue, store::ObjectKey};

/// The queues of the run.ai family, as the watch has seen them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct KnownQueues {
    queues: Arc<RwLock<Queues>>,
    /// The running workloads of each that has some, as its status says.
    running: Arc<RwLock<HashMap<String, Running>>>,
}

impl KnownQueues {
    /// Reads the queues.
    pub fn look<T>(&self, look: impl FnOnce(&Queues) -> T) -> T {
        look(&self.queues.read())
    }

    /// Sets the queue that counts for workloads that name a queue that doesn't exist.
    pub fn set_default(&self, name: Option<&str>) {
        self.queues.write().set_default(name);
    }

    /// Looks at the running workloads of queues.
    pub fn look_at_running<T>(&self, look: impl FnOnce(&HashMap<String, Running>) -> T) -> T {
        look(&self.running.read())
    }
}

impl<Q: ReadQueue + ObservedQueue> Store<Q> for KnownQueues {
    type Key = String;

    fn apply(&mut self, queue: Q) {
        let name = String::of_object(queue.meta());
        let running = Running::read(&queue.observed_status().workloads);
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
