//! Counters by labels, which are dropped with their queue.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::AtomicU64},
};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tenure_service::metrics::registered;

/// The names and values of the labels of one counter.
type CounterLabels<const N: usize> = [(&'static str, String); N];

/// Counters by the values of their labels. Counters of a queue are dropped with the queue, so that
/// deleted queues leave none behind. Clones share them.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize> {
    /// The names of the labels, in the order of their values.
    names: [&'static str; N],
    family: Family<CounterLabels<N>, Counter<u64, AtomicU64>>,
    /// The labels of all counters.
    known: Arc<Mutex<HashSet<CounterLabels<N>>>>,
}

impl<const N: usize> Counters<N> {
    /// Registers counters with labels of these names.
    pub fn register(registry: &mut Registry, name: &str, help: &str, names: [&'static str; N]) -> Self {
        Self { names, family: registered(registry, name, help, Family::default()), known: Arc::default() }
    }

    /// Adds one to a counter. The values are in the order of the label names.
    pub fn inc(&self, values: [&str; N]) {
        self.add(values, 1);
    }

    /// Adds to a counter, which begins at zero.
    pub fn add(&self, values: [&str; N], count: usize) {
        let mut values = values.into_iter().map(str::to_owned);
        let labels = self.names.map(|name| (name, values.next().unwrap_or_default()));
        self.family.get_or_create_owned(&labels).inc_by(count.try_into().unwrap_or(u64::MAX));
        self.known.lock().insert(labels);
    }

    /// Drops the counters of queues that don't exist. Counters without a queue, or with an empty
    /// name, stay.
    pub fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.known.lock().retain(|labels| {
            let mut queue = labels.iter().filter(|(name, queue)| *name == "queue" && !queue.is_empty());
            let stays = queue.all(|(_, queue)| exists(queue));
            if !stays {
                self.family.remove(labels);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn encoded(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn counters_of_a_queue_that_is_deleted_go_with_it() {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry, "a", "a", ["queue"]);
        for queue in ["stays", "goes", ""] {
            counters.inc([queue]);
        }
        counters.retain(|queue| queue == "stays");
        let text = encoded(&registry);
        assert!(text.contains("queue=\"stays\"") && text.contains("queue=\"\""), "{text}");
        assert!(!text.contains("goes"), "{text}");
        counters.inc(["goes"]);
        assert!(encoded(&registry).contains("a_total{queue=\"goes\"} 1"));
    }
}
