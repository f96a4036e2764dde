//! The contract between a controller and its queue: what a controller says about a piece of work,
//! and the limits that it sets. Each controller of the keeper that has a queue implements [`Work`]
//! for what it queues.

use std::{fmt::Debug, hash::Hash, time::Duration};

use tenure_types::wait::Wait;

/// The time after which a call is slow, unless a queue sets another.
pub const PROMPT: Duration = Duration::from_secs(1);

/// A piece of work: usually an object to write, or a message to send. The answers of these methods
/// may not change while the queue holds the work.
pub trait Work: Debug {
    /// Identifies the work in its queue. The queue holds one work per key.
    type Key: Clone + Debug + Eq + Hash + Ord;
    /// Orders work within a namespace or a line, the least first. Work of equal rank goes by
    /// arrival.
    type Rank: Clone + Debug + Ord;

    /// Returns the key.
    fn key(&self) -> Self::Key;

    /// Returns the namespace that takes a turn with this work, and whose slots and failures the
    /// work counts for.
    fn namespace(&self) -> &str;

    /// Returns the rank.
    fn rank(&self) -> Self::Rank;

    /// Returns the line whose work goes by rank, one call at a time over all its namespaces. None:
    /// the work goes by the turns of its namespace.
    fn line(&self) -> Option<String> {
        None
    }

    /// True if this work differs from the `known` work of the same key so much that it is due at
    /// once, with no failures.
    fn replaces(&self, _known: &Self) -> bool {
        false
    }

    /// True for work that was tried before it was added: it takes its place among the retries.
    fn is_retry(&self) -> bool {
        false
    }

    /// True for work that a full queue drops only if the fullest namespace or line has no other.
    fn is_precious(&self) -> bool {
        false
    }
}

/// The work that a failure delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Only the work that failed.
    Work,
    /// All work of its namespace. After the wait, one call at a time shows whether calls succeed
    /// again.
    Namespace,
    /// All work of the queue. After the wait, one call at a time shows whether calls succeed again,
    /// in the namespace and in the queue.
    Queue,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct WorkLimits {
    /// The most calls in flight for healthy namespaces, and the most for degraded namespaces.
    pub at_once: usize,
    /// The most calls in flight for one namespace.
    pub per_namespace: usize,
    /// The time after which a call is slow, and its namespace degraded.
    pub prompt: Duration,
    /// The growing waits after failures. Jitter shortens each by up to a half.
    pub retry: Wait,
    /// The work that waits after a failure.
    pub spread: Spread,
    /// The most works that wait, due or not. Only [`push`](super::WorkQueue::push) obeys it.
    pub capacity: usize,
}

/// 16 calls at once, 8 per namespace, waits from 5 seconds to 5 minutes, and no bound on the work
/// that waits.
impl Default for WorkLimits {
    fn default() -> Self {
        Self {
            at_once: 16,
            per_namespace: 8,
            prompt: PROMPT,
            retry: Wait { first: Duration::from_secs(5), last: Duration::from_mins(5) },
            spread: Spread::Work,
            capacity: usize::MAX,
        }
    }
}
