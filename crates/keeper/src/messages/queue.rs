//! The messages that wait for one receiver.
//!
//! `Messages` adds to the [`ReceiverQueue`], and the task of the receiver takes from it. Namespaces
//! take turns. A message that is lost is logged and counted.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tenure_policy::message::Message;
use tenure_service::{
    log::with_causes,
    work::{Lease, Spread, Work, WorkLimits, WorkQueue},
};
use tenure_types::wait::Wait;
use tokio::time::Instant;
use tracing::{info, warn};

use super::post::{PostError, PostOutcome};
use crate::metrics::{MessageResult, Metrics, label};

/// The most messages that wait for a receiver.
const CAPACITY: usize = 5_000;

/// The most messages that are being sent at a time.
const AT_ONCE: usize = 8;

/// The waits after failures, of all messages of the receiver. After a wait, one message at a time
/// shows whether the receiver takes messages again.
const RETRY: Wait = Wait { first: Duration::from_secs(1), last: Duration::from_mins(1) };

/// The time from its first try for which a message is tried again.
const PATIENCE: Duration = Duration::from_hours(1);

/// The age from which on a message isn't sent any more.
const LONGEST_AGE: Duration = Duration::from_hours(24);

/// The longest rest that a receiver gets by asking for it.
const LONGEST_REST: Duration = Duration::from_mins(10);

/// The least time between two lines of log about messages that are dropped.
const BETWEEN_COMPLAINTS: Duration = Duration::from_mins(1);

/// The queue of one receiver.
#[derive(Debug)]
pub struct ReceiverQueue {
    /// The name of the receiver in the configuration.
    pub receiver: String,
    /// The messages, each once.
    pub work: WorkQueue<QueuedMessage>,
    state: Mutex<ReceiverState>,
    metrics: Metrics,
}

/// A message that waits or is being sent.
#[derive(Debug)]
pub struct QueuedMessage {
    pub message: Arc<Message>,
    /// The time at which the message was added.
    queued: Instant,
    /// The number of times that the queue had been emptied before.
    generation: u64,
}

impl Work for QueuedMessage {
    /// The id of the message.
    type Key = String;
    type Rank = ();

    fn key(&self) -> String {
        self.message.id.clone()
    }

    fn namespace(&self) -> &str {
        self.message.namespace()
    }

    fn rank(&self) {}
}

/// The state of the receiver.
#[derive(Debug, Default)]
struct ReceiverState {
    /// The number of times that the queue was emptied.
    generation: u64,
    /// True if the last try has failed.
    is_failing: bool,
    /// The time of the last line of log about dropped messages.
    complained: Option<Instant>,
    /// The number of messages that were dropped since that line.
    dropped: usize,
}

impl ReceiverQueue {
    /// Creates an empty queue.
    pub fn new(receiver: &str, metrics: Metrics) -> Self {
        let (at_once, per_namespace, retry) = (AT_ONCE, AT_ONCE, RETRY);
        let (spread, capacity) = (Spread::Queue, CAPACITY);
        let limits = WorkLimits { at_once, per_namespace, retry, spread, capacity, ..WorkLimits::default() };
        Self { receiver: receiver.into(), work: WorkQueue::new(limits), state: Mutex::default(), metrics }
    }

    /// Adds a message. If too many messages wait, drops one of the namespace with the most
    /// messages.
    pub fn push(&self, message: Arc<Message>) {
        let mut state = self.state.lock();
        let generation = state.generation;
        if self.work.push(QueuedMessage { message, queued: Instant::now(), generation }).is_some() {
            self.dropped(&mut state, 1, "too many messages wait");
        }
        self.count();
    }

    /// Drops all messages, including those that are being sent.
    pub fn drop_all(&self, why: &str) {
        let mut state = self.state.lock();
        let left = self.work.total();
        self.work.clear();
        let generation = state.generation.saturating_add(1);
        *state = ReceiverState { generation, ..ReceiverState::default() };
        if left > 0 {
            self.dropped(&mut state, left, why);
        }
        self.count();
    }

    /// Has all messages tried at once: the receiver's settings have changed.
    pub fn reset(&self) {
        self.state.lock().is_failing = false;
        self.work.reset();
    }

    /// Begins a try. None: the message was dropped meanwhile, or is too old.
    pub fn begin(&self, lease: Lease<QueuedMessage>) -> Option<Lease<QueuedMessage>> {
        let mut state = self.state.lock();
        if lease.work.generation != state.generation {
            return None;
        }
        self.count();
        if lease.work.queued.elapsed() >= LONGEST_AGE {
            lease.forget();
            self.dropped(&mut state, 1, "they are older than a day");
            return None;
        }
        Some(lease)
    }

    /// Ends a try. The message is done, tried again, or lost.
    pub fn tried(&self, lease: Lease<QueuedMessage>, result: &Result<(), PostError>) {
        let mut state = self.state.lock();
        // the message counts as dropped already
        if lease.work.generation != state.generation {
            return;
        }
        let (outcome, was_failing) = (PostOutcome::of(result), state.is_failing);
        // a refused body says nothing about other messages
        if outcome != PostOutcome::BodyRefused {
            state.is_failing = result.is_err();
        }
        let (receiver, message) = (&self.receiver, Arc::clone(&lease.work.message));
        let error = result.as_ref().err().map(|error| with_causes(error)).unwrap_or_default();
        if let PostOutcome::Failed(Some(rest)) = outcome {
            self.work.rest_until(Instant::now() + rest.min(LONGEST_REST));
        }
        match outcome {
            PostOutcome::Sent => {
                lease.done();
                self.metrics.messages.inc([receiver, &label(MessageResult::Sent)]);
                if was_failing {
                    info!(%receiver, "Takes messages again");
                }
            }
            PostOutcome::Failed(_) if lease.since.elapsed() < PATIENCE => {
                lease.failed();
                if !was_failing {
                    warn!(%receiver, error, "Failed to send a message: will try again");
                }
            }
            lost => {
                // users write parts of a message: one that is refused must not slow down the others
                if lost == PostOutcome::BodyRefused {
                    lease.forget();
                } else {
                    lease.given_up();
                }
                let is_refused = matches!(lost, PostOutcome::BodyRefused | PostOutcome::Refused);
                let lost = if is_refused { MessageResult::Refused } else { MessageResult::Failed };
                self.metrics.messages.inc([receiver, &label(lost)]);
                let (namespace, reason) = (message.namespace(), message.reason.name());
                warn!(%receiver, %namespace, reason, error, "Lost a message");
            }
        }
        self.count();
    }

    /// Sets the number of waiting messages in the metrics.
    fn count(&self) {
        self.metrics.waiting_messages(&self.receiver, self.work.waiting());
    }

    /// Counts dropped messages, and logs them at most once a minute.
    fn dropped(&self, state: &mut ReceiverState, count: usize, why: &str) {
        self.metrics.messages.add([&self.receiver, &label(MessageResult::Dropped)], count);
        state.dropped = state.dropped.saturating_add(count);
        if state.complained.is_none_or(|at| at.elapsed() >= BETWEEN_COMPLAINTS) {
            let (receiver, count) = (&self.receiver, std::mem::take(&mut state.dropped));
            state.complained = Some(Instant::now());
            warn!(%receiver, count, why, "Dropped messages");
        }
    }
}

#[cfg(test)]
mod tests;
