//! Counters by queue, and by more.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Labels that include a queue.
pub trait QueueLabel: Clone + Eq + Hash + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static {
    /// The name of the queue; empty if there is none.
    fn queue(&self) -> &str;
}

/// Counters that are dropped with their queue, so that there are no more of them than queues.
#[derive(Clone, Debug)]
pub struct ByQueue<L: QueueLabel> {
    counters: Family<L, Counter>,
    labels: Arc<Mutex<HashSet<L>>>,
}

impl<L: QueueLabel> ByQueue<L> {
    /// Registers counters that are at zero.
    pub fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let counters = Family::default();
        registry.register(name, help, counters.clone());
        Self { counters, labels: Arc::default() }
    }

    /// Counts one.
    pub fn inc(&self, labels: L) {
        self.counters.get_or_create(&labels).inc();
        self.labels.lock().insert(labels);
    }

    /// Forgets the counters of queues that don't exist.
    pub fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.labels.lock().retain(|labels| {
            let stays = labels.queue().is_empty() || exists(labels.queue());
            if !stays {
                self.counters.remove(labels);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
    struct Labels {
        queue: String,
    }

    impl QueueLabel for Labels {
        fn queue(&self) -> &str {
            &self.queue
        }
    }

    fn encoded(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn counters_of_a_queue_that_is_deleted_go_with_it() {
        let mut registry = Registry::default();
        let counters = ByQueue::register(&mut registry, "a", "a");
        for queue in ["stays", "goes", ""] {
            counters.inc(Labels { queue: queue.into() });
        }
        counters.retain(|queue| queue == "stays");
        let text = encoded(&registry);
        assert!(text.contains("queue=\"stays\"") && text.contains("queue=\"\""), "{text}");
        assert!(!text.contains("goes"), "{text}");
        counters.inc(Labels { queue: "goes".into() });
        assert!(encoded(&registry).contains("a_total{queue=\"goes\"} 1"));
    }
}
