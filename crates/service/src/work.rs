//! A queue of work for calls that may hang or fail, the same for all controllers.
//!
//! - **Turns**: namespaces take turns, so that one with much work, or with calls that fail, holds up no other.
//! - **Order**: within its turn, work goes by rank and then by arrival. Work with a [line](Work::line) goes by rank over all
//!   namespaces of that line, one call at a time.
//! - **Retries**: work that was tried comes after work that wasn't, but for one turn in four.
//! - **Limits**: so many calls are in flight in all and in a namespace. A slow or hanging call moves its namespace to a second pool
//!   of the same size for a while: it takes no slot of the others, and nothing in its line waits for it.
//! - **Waits**: a failure delays the work, and with [`Spread`] its namespace or the whole queue, for a growing time.
//! - **Bounds**: beyond its capacity the queue drops due work of the namespace or line that has most, and returns it.

mod lease;
mod run;
mod share;
mod state;

use std::{fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tenure_types::wait::Wait;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

pub use lease::Lease;
pub use run::Run;
pub use share::jittered;

use state::State;

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

/// Work that waits or is in flight. Clones share it.
#[derive(Debug)]
pub struct WorkQueue<W: Work>(Arc<Shared<W>>);

impl<W: Work> Clone for WorkQueue<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Work> Default for WorkQueue<W> {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

#[derive(Debug)]
struct Shared<W: Work> {
    limits: Limits,
    state: Mutex<State<W>>,
    changed: Notify,
}

impl<W: Work> WorkQueue<W> {
    /// Creates an empty queue.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared { limits, state: Mutex::default(), changed: Notify::new() }))
    }

    /// Adds work that is due, and returns the work that was dropped for it. Work of the same key is replaced, and keeps its place
    /// and its wait; while that is in flight, the new work is due when the call has ended.
    pub fn push(&self, work: W) -> Option<Arc<W>> {
        let mut state = self.0.state.lock();
        state.push(work, Instant::now());
        let dropped = if state.waiting() > self.0.limits.capacity { state.drop_one() } else { None };
        drop(state);
        self.0.changed.notify_one();
        dropped
    }

    /// Replaces all work by this, in this order among equal ranks. Work of a known key keeps its wait and its place among retries;
    /// work in flight goes on.
    pub fn replace(&self, all: impl IntoIterator<Item = W>) {
        self.0.state.lock().replace(all, Instant::now());
        self.0.changed.notify_one();
    }

    /// Removes work, and returns it. Work in flight goes on, and isn't due again.
    pub fn remove(&self, key: &W::Key) -> Option<Arc<W>> {
        self.0.state.lock().remove(key)
    }

    /// Removes all work, forgets failures, and returns the work that waited. Calls in flight go on.
    pub fn clear(&self) -> Vec<Arc<W>> {
        self.0.state.lock().clear()
    }

    /// Forgets failures and waits, so that all work is due.
    pub fn reset(&self) {
        self.0.state.lock().reset();
        self.0.changed.notify_one();
    }

    /// Lets no call begin before a time.
    pub fn rest_until(&self, at: Instant) {
        self.0.state.lock().shares.rest_until(at);
    }

    /// Returns the work of a key, waiting or in flight.
    pub fn get(&self, key: &W::Key) -> Option<Arc<W>> {
        self.0.state.lock().get(key)
    }

    /// Returns how much work waits, due or not.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting()
    }

    /// Returns how much work waits or is in flight.
    pub fn total(&self) -> usize {
        self.0.state.lock().total()
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.0.state.lock().shares.in_flight()
    }

    /// True if calls of a namespace have failed since one succeeded, or were slow of late.
    pub fn is_in_trouble(&self, namespace: &str) -> bool {
        let state = self.0.state.lock();
        state.shares.is_troubled(namespace, Instant::now()) || state.shares.is_failing(namespace)
    }

    /// True if calls of a namespace have failed since one succeeded. With [`Spread::Work`] none counts.
    pub fn is_failing(&self, namespace: &str) -> bool {
        self.0.state.lock().shares.is_failing(namespace)
    }

    /// Takes the next work that may begin.
    pub fn take(&self) -> Option<Lease<W>> {
        let taken = self.0.state.lock().take(&self.0.limits, Instant::now())?;
        Some(Lease::new(self.clone(), taken))
    }

    /// Returns when [`take`](Self::take) may return more work: after a change, at the end of a call, or at the end of a wait.
    pub async fn changed(&self) {
        let next = self.0.state.lock().next_try();
        let retry = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.0.changed.notified() => {}
            () = retry => {}
        }
    }
}

#[cfg(test)]
mod tests;
