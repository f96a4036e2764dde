//! Work that was taken.

use std::{pin::pin, sync::Arc, time::Duration};

use tenure_types::wait::Wait;
use tokio::time::{Instant, sleep};

use super::{
    Work, WorkQueue,
    state::{End, Taken},
};

/// Work that was taken from a queue. Dropping the lease gives the work back.
#[derive(Debug)]
pub struct Lease<W: Work> {
    /// The work.
    pub work: Arc<W>,
    /// The number of failures before this try.
    pub failures: u32,
    /// The time of the first try.
    pub since: Instant,
    queue: WorkQueue<W>,
    line: parking_lot::Mutex<Option<String>>,
    end: End,
}

impl<W: Work> Lease<W> {
    pub(super) fn new(queue: WorkQueue<W>, taken: Taken<W>) -> Self {
        let Taken { work, line, failures, since } = taken;
        Self { work, failures, since, queue, line: parking_lot::Mutex::new(line), end: End::default() }
    }

    /// Waits for a call. If the call is slow, its namespace is in trouble from then on, and its line goes on without it.
    pub async fn watch<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            biased;
            result = &mut call => return result,
            () = sleep(self.queue.0.limits.prompt) => self.trouble(),
        }
        call.await
    }

    /// Notes that the namespace is in trouble: a call was slow, or failed in a way that makes other calls fail.
    pub fn trouble(&self) {
        let mut state = self.queue.0.state.lock();
        state.shares.trouble(self.work.namespace(), Instant::now());
        state.leave(self.line.lock().take());
        drop(state);
        self.queue.0.changed.notify_one();
    }

    /// Returns the time of the first failure in the namespace since a call succeeded there.
    pub fn failing_since(&self) -> Option<Instant> {
        self.queue.0.state.lock().shares.failing_since(self.work.namespace())
    }

    /// Ends the work. Its key is forgotten, unless the same work was added again.
    pub fn done(self) {
        self.ended(End::Done);
    }

    /// Has the work tried again after a time, as one that didn't fail.
    pub fn again(self, after: Duration) {
        self.ended(End::Again(after));
    }

    /// Has the work tried again when it is added again, at the latest after a time.
    pub fn until_added(self, at_most: Duration) {
        self.ended(End::UntilAdded(at_most));
    }

    /// Has the work tried again after a growing wait.
    pub fn failed(self) {
        let wait = self.queue.0.limits.retry;
        self.ended(End::Failed(wait));
    }

    /// Has the work tried again after a growing wait that isn't that of its queue.
    pub fn failed_with(self, wait: Wait) {
        self.ended(End::Failed(wait));
    }

    /// Ends work that has failed for good.
    pub fn given_up(self) {
        self.ended(End::GivenUp);
    }

    /// Ends work that isn't tried again. The call says nothing about others, neither that they fail nor that they succeed.
    pub fn forget(self) {
        self.queue.remove(&self.work.key());
    }

    fn ended(mut self, end: End) {
        self.end = end;
    }
}

impl<W: Work> Drop for Lease<W> {
    fn drop(&mut self) {
        let line = self.line.lock().take();
        let mut state = self.queue.0.state.lock();
        state.leave(line);
        state.give_back(&self.work, self.end, &self.queue.0.limits, Instant::now());
        drop(state);
        self.queue.0.changed.notify_one();
    }
}
