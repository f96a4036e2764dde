//! Counts of messages by receiver.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tenure_service::metrics::registered;

/// The counts of messages. The configuration bounds the names of receivers.
#[derive(Clone, Debug)]
pub struct MessageCounters {
    messages: Family<MessageLabels, Counter<u64, AtomicU64>>,
    waiting: Family<ReceiverLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MessageLabels {
    receiver: String,
    result: MessageResult,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReceiverLabels {
    receiver: String,
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
pub enum MessageResult {
    /// Its receiver has taken it.
    Sent,
    /// Its receiver won't ever take it.
    Refused,
    /// It was tried for too long.
    Failed,
    /// Too many messages waited, or it was too old, or its receiver or the leadership was gone.
    Dropped,
}

impl MessageResult {
    const ALL: [Self; 4] = [Self::Sent, Self::Refused, Self::Failed, Self::Dropped];
}

impl MessageCounters {
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            messages: registered(
                registry,
                "messages",
                "Messages that were to be sent, by receiver and result: what isn't Sent is lost",
                Family::default(),
            ),
            waiting: registered(
                registry,
                "waiting_messages",
                "Messages that wait to be sent, by receiver",
                Family::default(),
            ),
        }
    }

    /// Counts from zero on, so that Prometheus sees the first as well.
    pub fn receiver(&self, receiver: &str) {
        for result in MessageResult::ALL {
            drop(self.messages.get_or_create(&MessageLabels { receiver: receiver.into(), result }));
        }
        drop(self.waiting.get_or_create(&ReceiverLabels { receiver: receiver.into() }));
    }

    /// A receiver is gone. What it has lost stays.
    pub fn forget_receiver(&self, receiver: &str) {
        self.waiting.remove(&ReceiverLabels { receiver: receiver.into() });
    }

    pub fn count(&self, receiver: &str, result: MessageResult, count: usize) {
        let labels = MessageLabels { receiver: receiver.into(), result };
        self.messages.get_or_create(&labels).inc_by(count.try_into().unwrap_or(u64::MAX));
    }

    pub fn waiting(&self, receiver: &str, count: usize) {
        let labels = ReceiverLabels { receiver: receiver.into() };
        self.waiting.get_or_create(&labels).set(count.try_into().unwrap_or(i64::MAX));
    }
}
