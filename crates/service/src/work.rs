//! A queue of work for calls that may hang or fail, the same for all controllers of the keeper.
//!
//! - **Turns**: namespaces take turns, so a namespace with much work, or with calls that fail,
//!   doesn't delay the others.
//! - **Order**: within its turn, work goes by rank and then by arrival. Work with a
//!   [line](Work::line) goes by rank over all namespaces of that line, one call at a time.
//! - **Retries**: work that was tried comes after work that wasn't, except in one turn of four.
//! - **Limits**: the calls in flight are limited in total and per namespace. A slow or hanging call
//!   moves its namespace to a second pool of the same size for a while. There it takes no slots
//!   from other namespaces, and no work of its line waits for it.
//! - **Waits**: a failure delays the work, and with [`Spread`] its namespace or the whole queue,
//!   for a growing time.
//! - **Bounds**: beyond its capacity the queue drops due work of the namespace or line that has
//!   most, and returns it.
//!
//! A controller fills a [`WorkQueue`], and [`WorkLoop`] takes a [`Lease`] for each call. A key is in
//! flight at most once. The queue lives in memory alone.

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
pub use limits::{PROMPT, Spread, Work, WorkLimits};
pub use run::WorkLoop;

use state::WorkQueueState;

/// Work that waits or is in flight. Clones share the work. At most one loop may await
/// [`changed`](Self::changed): a change wakes a single waiter.
///
/// ```
/// use tenure_service::work::{Work, WorkQueue};
///
/// #[derive(Debug)]
/// struct Overdue(&'static str, u32);
///
/// impl Work for Overdue {
///     type Key = &'static str;
///     type Rank = u32;
///
///     fn key(&self) -> &'static str {
///         self.0
///     }
///
///     fn namespace(&self) -> &str {
///         "team"
///     }
///
///     fn rank(&self) -> u32 {
///         self.1
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = WorkQueue::default();
/// queue.push(Overdue("pod-b", 2));
/// queue.push(Overdue("pod-a", 1));
/// let lease = queue.take().expect("work that is due");
/// assert_eq!(lease.work.key(), "pod-a");
/// // a lease that is dropped gives the work back
/// lease.done();
/// assert_eq!(queue.total(), 1);
/// # }
/// ```
#[derive(Debug)]
pub struct WorkQueue<W: Work>(Arc<SharedQueue<W>>);

impl<W: Work> Clone for WorkQueue<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Work> Default for WorkQueue<W> {
    fn default() -> Self {
        Self::new(WorkLimits::default())
    }
}

/// The part of a queue that its clones and leases share.
#[derive(Debug)]
struct SharedQueue<W: Work> {
    limits: WorkLimits,
    state: Mutex<WorkQueueState<W>>,
    /// Notified after each change that may let a call begin.
    changed: Notify,
}

impl<W: Work> WorkQueue<W> {
    /// Creates an empty queue.
    pub fn new(limits: WorkLimits) -> Self {
        Self(Arc::new(SharedQueue { limits, state: Mutex::default(), changed: Notify::new() }))
    }

    /// Adds work that is due, and returns the work that was dropped for it. None: the work that
    /// waits is within the capacity, or none of it is due.
    ///
    /// Work of the same key is replaced, and keeps its place and its wait. While work of that key
    /// is in flight, the new work is due when the call has ended.
    pub fn push(&self, work: W) -> Option<Arc<W>> {
        let mut state = self.0.state.lock();
        state.add(work, Instant::now(), true);
        let dropped = if state.waiting() > self.0.limits.capacity { state.drop_one() } else { None };
        drop(state);
        self.0.changed.notify_one();
        dropped
    }

    /// Replaces all work, in this order among equal ranks. Known keys keep their waits and places.
    /// Calls in flight go on, and those whose key is missing here aren't tried again.
    pub fn replace(&self, all: impl IntoIterator<Item = W>) {
        self.0.state.lock().replace(all, Instant::now());
        self.0.changed.notify_one();
    }

    /// Removes work, and returns it. Work in flight goes on, and isn't tried again. None: the key
    /// is unknown.
    pub fn remove(&self, key: &W::Key) -> Option<Arc<W>> {
        self.0.state.lock().remove(key)
    }

    /// Removes all work, forgets failures, and returns the work that waited, due or not. Calls in
    /// flight go on, and aren't tried again.
    pub fn clear(&self) -> Vec<Arc<W>> {
        self.0.state.lock().clear()
    }

    /// Forgets the failures and waits of namespaces and of the queue, and makes all work due.
    /// Trouble after slow calls stays, as do the failures counted for each work.
    pub fn reset(&self) {
        self.0.state.lock().reset();
        self.0.changed.notify_one();
    }

    /// Lets no call begin before a time. An earlier time than the one that holds changes nothing.
    pub fn rest_until(&self, at: Instant) {
        self.0.state.lock().shares.rest_until(at);
    }

    /// Returns the work of a key, waiting or in flight. None: the key is unknown.
    pub fn get(&self, key: &W::Key) -> Option<Arc<W>> {
        self.0.state.lock().get(key)
    }

    /// Returns the number of works that wait, due or not.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting()
    }

    /// Returns the number of works of a namespace that are due. Work with a line doesn't count.
    pub fn due_in(&self, namespace: &str) -> usize {
        self.0.state.lock().due_in(namespace)
    }

    /// Returns the number of works that wait or are in flight.
    pub fn total(&self) -> usize {
        self.0.state.lock().total()
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.0.state.lock().shares.in_flight()
    }

    /// True if calls of a namespace have failed since one succeeded, or were slow of late.
    #[cfg(test)]
    pub fn is_degraded_or_failing(&self, namespace: &str) -> bool {
        let state = self.0.state.lock();
        state.shares.is_degraded(namespace, Instant::now()) || state.shares.failing_since(namespace).is_some()
    }

    /// True if calls of a namespace have failed since the last success there. With [`Spread::Work`]
    /// always false: such a queue counts no failures of namespaces.
    pub fn is_failing(&self, namespace: &str) -> bool {
        self.0.state.lock().shares.failing_since(namespace).is_some()
    }

    /// Takes the next work that may begin. None: no work is due, or no slot is free for it.
    /// [`changed`](Self::changed) returns when another try may help.
    pub fn take(&self) -> Option<Lease<W>> {
        let taken = self.0.state.lock().take(&self.0.limits, Instant::now())?;
        Some(Lease::new(self.clone(), taken))
    }

    /// Returns when [`take`](Self::take) may return more work: after a change, at the end of a
    /// call, or at the end of a wait. May be cancelled: a change in between is noticed by the next
    /// call.
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
