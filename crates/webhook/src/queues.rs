//! The queues of the run.ai family, as a watch has seen them.
//!
//! The watch of `sight.rs` writes them; all parts that answer requests read them. Queues and
//! running workloads have a lock each, so a reader of both may see one of them a moment earlier.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use parking_lot::RwLock;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use tenure_index::{FamilyQueues, ReadQueue};
use tenure_policy::{config::Config, expiry::Family, queue_change::RunningWorkloads};
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

    /// Applies the values of the configuration that name queues.
    pub fn configure(&self, config: &Config) {
        let mut queues = self.queues.write();
        queues.set_default(config.default_queues.runai.as_deref());
        queues.set_configured(config.queues(Family::Runai));
    }

    /// Calls `f` with the running workloads, by the name of the queue.
    pub fn with_running<T>(&self, f: impl FnOnce(&HashMap<String, RunningWorkloads>) -> T) -> T {
        f(&self.running.read())
    }
}

/// Shows the number of missing queues that the configuration names.
impl Collector for KnownQueues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let missing = self.with(FamilyQueues::missing_configured);
        let gauge = ConstGauge::new(i64::try_from(missing).unwrap_or(i64::MAX));
        let help = "Queues that the configuration names and that don't exist: such values have no effect";
        gauge.encode(encoder.encode_descriptor(
            "configured_queues_missing",
            help,
            None,
            gauge.metric_type(),
        )?)
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

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use serde_json::json;
    use tenure_types::projection::RunaiQueueObject;

    use super::*;

    #[test]
    fn a_bounded_queue_is_missing_from_the_first_list_until_it_exists() {
        let mut queues = KnownQueues::default();
        let config = "delegation: {bounds: [{queue: reserch, preemptMinRuntime: 2h}]}";
        queues.configure(&Config::parse(config).unwrap());
        let mut registry = Registry::with_prefix("tenure_webhook");
        registry.register_collector(Box::new(queues.clone()));
        let is_missing = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.contains("\ntenure_webhook_configured_queues_missing 1\n")
        };
        assert!(!is_missing(), "queues aren't listed yet");
        Store::<RunaiQueueObject>::retain(&mut queues, &HashSet::new());
        assert!(is_missing());
        let queue = json!({"metadata": {"name": "reserch"}});
        queues.apply(serde_json::from_value::<RunaiQueueObject>(queue).unwrap());
        assert!(!is_missing());
        Store::<RunaiQueueObject>::delete(&mut queues, &"reserch".to_owned());
        assert!(is_missing());
    }
}
