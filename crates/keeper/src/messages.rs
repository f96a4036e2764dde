//! Messages to receivers outside of the cluster. Each receiver has a queue and a task of its own, and no other part of the
//! keeper waits for them.

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
use tenure_service::clock::ServerClock;

use crate::{config::Current, events::record::EventRecord, metrics::Metrics};
use queue::ReceiverQueue;

pub use sender::MessageSender;

/// The number of acts that are remembered at least, so that none is told twice.
const REMEMBERED: usize = 10_000;

/// The messages that wait, for each receiver of the configuration. Clones share them.
#[derive(Clone, Debug)]
pub struct Messages {
    config: Current,
    clock: ServerClock,
    metrics: Metrics,
    queues: Arc<Mutex<BTreeMap<String, Arc<ReceiverQueue>>>>,
    /// The time from which on this keeper leads.
    leads_since: Arc<Mutex<Option<Timestamp>>>,
    told: Arc<Mutex<ToldIds>>,
}

/// The acts that were told of late, by hashes of their ids: the event of an act may be tried several times.
#[derive(Debug, Default)]
struct ToldIds {
    hasher: RandomState,
    /// The latest, and as many before them.
    known: HashSet<u64>,
    before: HashSet<u64>,
}

impl Messages {
    pub fn new(config: Current, clock: ServerClock, metrics: Metrics) -> Self {
        for receiver in &config.get().receivers {
            metrics.receiver(&receiver.name);
        }
        let (queues, leads_since, told) = Default::default();
        Self { config, clock, metrics, queues, leads_since, told }
    }

    /// Adds the message about an event that an earlier leader may not have told. What has happened since this keeper leads
    /// it has told by itself: a record that says otherwise is a tenant's.
    pub fn tell_of_earlier(&self, event: &EventRecord) {
        let leads_since = *self.leads_since.lock();
        if leads_since.is_none_or(|since| event.at < since) {
            self.tell(event);
        }
    }

    /// Adds the message about an event for each receiver that wants it.
    pub fn tell(&self, event: &EventRecord) {
        let mut queues = self.queues.lock();
        // as it is under the lock: a receiver that goes at the same time takes its queue with it
        let config = self.config.get();
        let wanted = config.receivers.iter().filter(|of| of.wants(event.reason, &event.note));
        let mut wanted = wanted.peekable();
        if wanted.peek().is_none() {
            return;
        }
        let message = Arc::new(event.message(self.clock.now()));
        if !self.told.lock().is_new(&message.id) {
            return;
        }
        for receiver in wanted {
            self.queue(&mut queues, &receiver.name).push(Arc::clone(&message));
        }
    }

    fn queue(&self, queues: &mut BTreeMap<String, Arc<ReceiverQueue>>, receiver: &str) -> Arc<ReceiverQueue> {
        let new = || {
            self.metrics.receiver(receiver);
            Arc::new(ReceiverQueue::new(receiver, self.metrics.clone()))
        };
        Arc::clone(queues.entry(receiver.to_owned()).or_insert_with(new))
    }

    /// Returns the queue of each receiver of the configuration. Messages of others are dropped.
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

    /// Drops all messages. Tasks that still end have queues of which nothing comes any more.
    fn drop_all(&self, why: &str) {
        for queue in std::mem::take(&mut *self.queues.lock()).values() {
            queue.drop_all(why);
        }
        *self.told.lock() = ToldIds::default();
    }
}

impl ToldIds {
    /// Returns true the first time.
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
