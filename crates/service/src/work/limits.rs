//! A piece of work, and the limits of a queue.

use std::{fmt::Debug, hash::Hash, time::Duration};

use tenure_types::wait::Wait;

/// The time after which a call is slow.
pub const PROMPT: Duration = Duration::from_secs(1);

/// A piece of work.
pub trait Work: Debug {
    /// Tells this work from other work of its queue.
    type Key: Clone + Debug + Eq + Hash + Ord;
    /// Orders work within a namespace or a line, the least first. Work of the same rank goes by arrival.
    type Rank: Clone + Debug + Ord;

    /// Returns the key.
    fn key(&self) -> Self::Key;

    /// Returns the namespace that the work takes a turn of.
    fn namespace(&self) -> &str;

    /// Returns the rank.
    fn rank(&self) -> Self::Rank;

    /// Returns the line in which the work is served in order. None: only the namespace has turns.
    fn line(&self) -> Option<String> {
        None
    }

    /// True if this is other work than the `known` one of the same key: it is due at once, and no failure of that one counts.
    fn replaces(&self, _known: &Self) -> bool {
        false
    }

    /// True for work that was tried before it was added: it begins among the retries.
    fn is_retry(&self) -> bool {
        false
    }

    /// True for work that a full queue drops last.
    fn is_precious(&self) -> bool {
        false
    }
}

/// The work that waits after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The work that failed.
    Work,
    /// All work of its namespace. After the wait one call at a time shows whether calls succeed again.
    Namespace,
    /// All work of the queue, and of the namespace.
    Queue,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most calls in flight for namespaces without trouble, and as many for the others.
    pub at_once: usize,
    /// The most calls in flight for one namespace.
    pub per_namespace: usize,
    /// The time after which a call is slow.
    pub prompt: Duration,
    /// The waits after failures. A random part of up to a half is left out.
    pub retry: Wait,
    /// The work that waits.
    pub spread: Spread,
    /// The most work that is kept.
    pub capacity: usize,
}

impl Default for Limits {
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
