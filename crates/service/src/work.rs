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
mod limits;
mod run;
mod share;
mod state;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

pub use lease::Lease;
pub use limits::{Limits, PROMPT, Spread, Work};
pub use run::Run;

use state::State;

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
        state.add(work, Instant::now(), true);
        let dropped = if state.waiting() > self.0.limits.capacity { state.drop_one() } else { None };
        drop(state);
        self.0.changed.notify_one();
        dropped
    }

    /// Replaces all work, in this order among equal ranks. Known keys keep their waits and places; calls in flight go on.
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
    #[cfg(test)]
    pub fn is_in_trouble(&self, namespace: &str) -> bool {
        let state = self.0.state.lock();
        state.shares.is_troubled(namespace, Instant::now()) || state.shares.failing_since(namespace).is_some()
    }

    /// True if calls of a namespace have failed since one succeeded. With [`Spread::Work`] none counts.
    pub fn is_failing(&self, namespace: &str) -> bool {
        self.0.state.lock().shares.failing_since(namespace).is_some()
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
