//! Messages to receivers outside of the cluster.
//!
//! The `EventQueue` adds a message for each event, and the [`MessageSender`] sends them while this
//! keeper leads. Each receiver has a queue and a task of its own, and no other part of the keeper
//! waits for them.

mod connect;
mod post;
mod queue;
mod sender;

use std::{
    collections::{BTreeMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tenure_policy::config::Config;
use tenure_service::{clock::ServerClock, config::Current};

use crate::{events::record::EventRecord, metrics::Metrics};
use queue::ReceiverQueue;

pub use sender::MessageSender;

/// The least number of acts that are remembered, so that no act is sent twice.
const REMEMBERED: usize = 10_000;

/// The messages that wait, for each receiver of the configuration. Clones share them.
#[derive(Clone, Debug)]
pub struct Messages {
    config: Current<Config>,
    clock: ServerClock,
    metrics: Metrics,
    /// The queues by the names of their receivers.
    queues: Arc<Mutex<BTreeMap<String, Arc<ReceiverQueue>>>>,
    /// The time from which on this keeper leads. None: another keeper leads.
    leads_since: Arc<Mutex<Option<Timestamp>>>,
    /// The acts whose messages were added.
    added: Arc<Mutex<RecentActIds>>,
}

/// The acts whose messages were added of late, by hashes of their ids: the event of an act may be
/// tried several times.
#[derive(Debug, Default)]
struct RecentActIds {
    hasher: RandomState,
    /// The latest acts, up to `REMEMBERED`.
    known: HashSet<u64>,
    /// As many acts before the latest.
    before: HashSet<u64>,
}

impl Messages {
    /// Creates the state without messages, and shows the counters of all receivers from zero on.
    pub fn new(config: Current<Config>, clock: ServerClock, metrics: Metrics) -> Self {
        for receiver in &config.get().receivers {
            metrics.receiver(&receiver.name);
        }
        let (queues, leads_since, added) = Default::default();
        Self { config, clock, metrics, queues, leads_since, added }
    }

    /// Adds the message about an event that an earlier leader may not have sent. Ignores events
    /// from this keeper's own term: it has sent those, so such a record is forged.
    pub fn add_earlier(&self, event: &EventRecord) {
        let leads_since = *self.leads_since.lock();
        if leads_since.is_none_or(|since| event.at < since) {
            self.add(event);
        }
    }

    /// Adds the message about an event for each receiver that wants it. Adds none for an act that
    /// has had its message.
    pub fn add(&self, event: &EventRecord) {
        let mut queues = self.queues.lock();
        // read under the lock: a receiver that goes at the same time takes its queue with it
        let config = self.config.get();
        let wanted = config.receivers.iter().filter(|of| of.wants(event.reason, &event.note));
        let mut wanted = wanted.peekable();
        if wanted.peek().is_none() {
            return;
        }
        let message = Arc::new(event.message(self.clock.now()));
        if !self.added.lock().is_new(&message.id) {
            return;
        }
        for receiver in wanted {
            self.queue(&mut queues, &receiver.name).push(Arc::clone(&message));
        }
    }

    /// Returns the queue of a receiver, and creates it if it is missing.
    fn queue(&self, queues: &mut BTreeMap<String, Arc<ReceiverQueue>>, receiver: &str) -> Arc<ReceiverQueue> {
        let new = || {
            self.metrics.receiver(receiver);
            Arc::new(ReceiverQueue::new(receiver, self.metrics.clone()))
        };
        Arc::clone(queues.entry(receiver.to_owned()).or_insert_with(new))
    }

    /// Returns the queue of each receiver of the configuration. Drops the queues and messages of
    /// other receivers.
    fn follow_config(&self) -> Vec<Arc<ReceiverQueue>> {
        let mut queues = self.queues.lock();
        let config = self.config.get();
        queues.retain(|name, queue| {
            let is_left = config.receivers.iter().any(|receiver| receiver.name == *name);
            if !is_left {
                queue.drop_all("its receiver was taken out of the configuration");
                self.metrics.forget_receiver(name);
            }
            is_left
        });
        config.receivers.iter().map(|receiver| self.queue(&mut queues, &receiver.name)).collect()
    }

    /// Drops all messages, and forgets which acts had a message. Tasks that are still ending have
    /// queues that get no messages any more.
    fn drop_all(&self, why: &str) {
        for queue in std::mem::take(&mut *self.queues.lock()).values() {
            queue.drop_all(why);
        }
        *self.added.lock() = RecentActIds::default();
    }
}

impl RecentActIds {
    /// True the first time, as far as ids are remembered.
    fn is_new(&mut self, id: &str) -> bool {
        let id = self.hasher.hash_one(id);
        if self.known.len() >= REMEMBERED {
            self.before = std::mem::take(&mut self.known);
        }
        !self.before.contains(&id) && self.known.insert(id)
    }
}

#[cfg(test)]
mod tests;
