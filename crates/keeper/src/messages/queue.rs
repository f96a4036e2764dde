//! The messages that wait for one receiver. Namespaces take turns.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tenure_policy::message::Message;
use tokio::{sync::Notify, time::Instant};
use tracing::{info, warn};

use super::{
    pace::Pace,
    post::{PostError, PostOutcome},
};
use crate::metrics::{MessageResult, Metrics};

/// The most messages that wait for a receiver.
pub const CAPACITY: usize = 5_000;

/// The time for which a message is tried again.
const PATIENCE: Duration = Duration::from_hours(1);

/// The age from which a message isn't worth sending.
const LONGEST_AGE: Duration = Duration::from_hours(24);

/// The longest rest that a receiver gets by asking for it.
const LONGEST_REST: Duration = Duration::from_mins(10);

/// The least time between two lines of log about messages that are dropped.
const BETWEEN_COMPLAINTS: Duration = Duration::from_mins(1);

/// The messages of a receiver.
#[derive(Debug)]
pub struct ReceiverQueue {
    receiver: String,
    lines: Mutex<Lines>,
    changed: Notify,
    metrics: Metrics,
}

/// A message that waits.
#[derive(Debug)]
pub struct WaitingMessage {
    pub message: Arc<Message>,
    queued: Instant,
    /// The time of the first try.
    since: Option<Instant>,
    /// The number of times that the queue had been emptied when it was taken.
    generation: u64,
}

/// The messages by namespace.
#[derive(Debug, Default)]
struct Lines {
    by_namespace: BTreeMap<String, Line>,
    /// The namespace that had the last turn.
    last: String,
    /// The time of the last look for a message that may be tried.
    looked: Option<Instant>,
    waiting: usize,
    pace: Pace,
    /// The end of the rest that the receiver has asked for.
    rests_until: Option<Instant>,
    generation: u64,
    complained: Option<Instant>,
    /// The messages that were dropped since.
    dropped: usize,
}

/// The messages of a namespace.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<WaitingMessage>,
    pace: Pace,
}

impl ReceiverQueue {
    pub fn new(receiver: &str, metrics: Metrics) -> Self {
        let (lines, changed) = (Mutex::default(), Notify::default());
        Self { receiver: receiver.into(), lines, changed, metrics }
    }

    /// The name of the receiver.
    pub fn receiver(&self) -> &str {
        &self.receiver
    }

    /// Adds a message. If too many wait, the oldest of the namespace with the most is dropped.
    pub fn push(&self, message: Arc<Message>) {
        let now = Instant::now();
        let mut lines = self.lines.lock();
        let generation = lines.generation;
        let line = lines.by_namespace.entry(message.namespace().to_owned()).or_default();
        line.waiting.push_back(WaitingMessage { message, queued: now, since: None, generation });
        lines.waiting = lines.waiting.saturating_add(1);
        if lines.waiting > CAPACITY && lines.drop_one() {
            self.dropped(&mut lines, 1, "too many messages wait", now);
        }
        self.metrics.waiting_messages(&self.receiver, lines.waiting);
        drop(lines);
        self.changed.notify_one();
    }

    /// Drops all messages, including messages under way.
    pub fn drop_all(&self, why: &str) {
        let mut lines = self.lines.lock();
        let left = lines.waiting.saturating_add(lines.pace.in_flight);
        let generation = lines.generation.saturating_add(1);
        *lines = Lines { generation, ..Lines::default() };
        if left > 0 {
            self.dropped(&mut lines, left, why, Instant::now());
        }
        self.metrics.waiting_messages(&self.receiver, 0);
    }

    /// Tries at once: the receiver's settings have changed.
    pub fn reset(&self) {
        let mut lines = self.lines.lock();
        let Lines { by_namespace, pace, rests_until, .. } = &mut *lines;
        by_namespace.values_mut().map(|line| &mut line.pace).chain([pace]).for_each(Pace::reset);
        *rests_until = None;
        drop(lines);
        self.changed.notify_one();
    }

    /// True if no message waits or is under way.
    pub fn is_idle(&self) -> bool {
        let lines = self.lines.lock();
        lines.waiting == 0 && lines.pace.in_flight == 0
    }

    /// Takes the next message that may be tried.
    pub fn take(&self) -> Option<WaitingMessage> {
        let now = Instant::now();
        let mut lines = self.lines.lock();
        let (taken, too_old) = lines.take(now);
        if too_old > 0 {
            self.dropped(&mut lines, too_old, "they are older than a day", now);
        }
        self.metrics.waiting_messages(&self.receiver, lines.waiting);
        taken
    }

    /// Returns when [`take`](Self::take) may return another message.
    pub async fn changed(&self) {
        let next = self.lines.lock().next_try();
        let retry = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = retry => {}
        }
    }

    /// Takes back a message that was tried.
    pub fn settle(&self, waiting: WaitingMessage, result: &Result<(), PostError>) {
        let now = Instant::now();
        let mut lines = self.lines.lock();
        // it counts as dropped already
        if waiting.generation != lines.generation {
            return;
        }
        let (outcome, was_in_trouble) = (PostOutcome::of(result), lines.pace.is_in_trouble());
        let message = Arc::clone(&waiting.message);
        let is_left = lines.settle(waiting, outcome, now);
        self.metrics.waiting_messages(&self.receiver, lines.waiting);
        drop(lines);
        self.changed.notify_one();
        let receiver = &self.receiver;
        match result {
            Ok(()) => {
                self.metrics.message(receiver, MessageResult::Sent, 1);
                if was_in_trouble {
                    info!(%receiver, "Takes messages again");
                }
            }
            Err(error) if is_left && !was_in_trouble => {
                warn!(%receiver, error = error.described(), "Failed to send a message: will try again");
            }
            Err(_) if is_left => {}
            Err(error) => {
                let lost = if outcome == PostOutcome::Refused {
                    MessageResult::Refused
                } else {
                    MessageResult::Failed
                };
                self.metrics.message(receiver, lost, 1);
                let (namespace, reason) = (message.namespace(), message.reason);
                warn!(%receiver, %namespace, reason, error = error.described(), "Lost a message");
            }
        }
    }

    fn dropped(&self, lines: &mut Lines, count: usize, why: &str, now: Instant) {
        self.metrics.message(&self.receiver, MessageResult::Dropped, count);
        lines.dropped = lines.dropped.saturating_add(count);
        if lines.complained.is_none_or(|at| now.duration_since(at) >= BETWEEN_COMPLAINTS) {
            let (receiver, count) = (&self.receiver, std::mem::take(&mut lines.dropped));
            lines.complained = Some(now);
            warn!(%receiver, count, why, "Dropped messages");
        }
    }
}

impl Lines {
    /// Takes a message, and returns how many were too old.
    fn take(&mut self, now: Instant) -> (Option<WaitingMessage>, usize) {
        let mut too_old = 0_usize;
        self.looked = Some(now);
        if !self.pace.may_try(now) || self.rests_until.is_some_and(|until| until > now) {
            return (None, too_old);
        }
        while let Some(namespace) = self.next_namespace(now) {
            let Some(line) = self.by_namespace.get_mut(&namespace) else { break };
            let Some(mut waiting) = line.waiting.pop_front() else { break };
            self.waiting = self.waiting.saturating_sub(1);
            if now.duration_since(waiting.queued) >= LONGEST_AGE {
                too_old = too_old.saturating_add(1);
                self.forget_if_over(&namespace);
                continue;
            }
            waiting.since.get_or_insert(now);
            line.pace.begin();
            self.pace.begin();
            self.last = namespace;
            return (Some(waiting), too_old);
        }
        (None, too_old)
    }

    /// The namespace whose turn it is.
    fn next_namespace(&self, now: Instant) -> Option<String> {
        let Self { by_namespace, last, .. } = self;
        let after = by_namespace.range::<str, _>((Excluded(last.as_str()), Unbounded));
        let all = after.chain(by_namespace.range::<str, _>((Unbounded, Included(last.as_str()))));
        let mut may = all.filter(|(_, line)| !line.waiting.is_empty() && line.pace.may_try(now));
        may.next().map(|(namespace, _)| namespace.clone())
    }

    /// The end of the next interval. Where one ended before the last look, others are under way.
    fn next_try(&self) -> Option<Instant> {
        let waiting = self.by_namespace.values().filter(|line| !line.waiting.is_empty());
        let of_line = waiting.map(|line| line.pace.not_before()).min()?;
        let next = [of_line, self.pace.not_before(), self.rests_until].into_iter().flatten().max();
        next.filter(|at| Some(*at) > self.looked)
    }

    /// Takes back a message; returns true if it will be tried again.
    fn settle(&mut self, waiting: WaitingMessage, outcome: PostOutcome, now: Instant) -> bool {
        let namespace = waiting.message.namespace().to_owned();
        let is_good = outcome == PostOutcome::Sent;
        self.pace.end(is_good, now);
        let line = self.by_namespace.entry(namespace.clone()).or_default();
        line.pace.end(is_good, now);
        let mut is_left = false;
        if let PostOutcome::Failed { rest } = outcome {
            let rests_until = rest.map(|rest| now + rest.min(LONGEST_REST));
            self.rests_until = self.rests_until.max(rests_until);
            is_left = waiting.since.is_some_and(|since| now.duration_since(since) < PATIENCE);
        }
        if is_left {
            // another may be taken even if this one fails each time
            line.waiting.push_back(waiting);
            self.waiting = self.waiting.saturating_add(1);
        }
        self.forget_if_over(&namespace);
        is_left
    }

    fn forget_if_over(&mut self, namespace: &str) {
        let is_over = |line: &Line| line.waiting.is_empty() && line.pace.in_flight == 0;
        if self.by_namespace.get(namespace).is_some_and(is_over) {
            self.by_namespace.remove(namespace);
        }
    }

    /// Drops the oldest message of the namespace that has the most.
    fn drop_one(&mut self) -> bool {
        let longest = self.by_namespace.values_mut().max_by_key(|line| line.waiting.len());
        let is_dropped = longest.and_then(|line| line.waiting.pop_front()).is_some();
        if is_dropped {
            self.waiting = self.waiting.saturating_sub(1);
        }
        is_dropped
    }
}

#[cfg(test)]
mod tests;
