//! Work that was taken. A lease ends in one of the ways that its methods name, and its drop gives
//! the slot back, so an action that panics or is cancelled leaks no slot and loses no work.

use std::{pin::pin, sync::Arc, time::Duration};

use tenure_types::wait::Wait;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::{
    Work, WorkQueue,
    state::{End, TakenWork},
};
use crate::{call::ApiError, log::with_causes};

/// Work that was taken from a queue by [`WorkQueue::take`]. Dropping the lease without naming an
/// end makes the work due again at once, and counts neither as success nor as failure.
#[derive(Debug)]
pub struct Lease<W: Work> {
    /// The work.
    pub work: Arc<W>,
    /// The number of failures before this try, since the last success or replacement of the work.
    pub failures: u32,
    /// The time of the first try since then.
    pub since: Instant,
    queue: WorkQueue<W>,
    /// The line that waits for this call. None: the work has no line, or its line doesn't wait for
    /// it.
    line: parking_lot::Mutex<Option<String>>,
    /// The end that the drop reports to the queue.
    end: End,
}

impl<W: Work> Lease<W> {
    pub(super) fn new(queue: WorkQueue<W>, taken: TakenWork<W>) -> Self {
        let TakenWork { work, line, failures, since } = taken;
        Self { work, failures, since, queue, line: parking_lot::Mutex::new(line), end: End::default() }
    }

    /// Awaits a call of this work. A call that takes longer than
    /// [`WorkLimits::prompt`](super::WorkLimits::prompt) [degrades](Self::degrade) its namespace, and
    /// is awaited on.
    pub async fn watch<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            biased;
            result = &mut call => return result,
            () = sleep(self.queue.0.limits.prompt) => self.degrade(),
        }
        call.await
    }

    /// Counts the namespace as degraded for a minute: a call was slow, or failed in a way that makes
    /// other calls fail. The namespace moves to the second pool, and its line goes on.
    pub fn degrade(&self) {
        let mut state = self.queue.0.state.lock();
        state.shares.degrade(self.work.namespace(), Instant::now());
        state.leave(self.line.lock().take());
        drop(state);
        self.queue.0.changed.notify_one();
    }

    /// Judges the error of a call, the same for all controllers. Returns its text for the log. None:
    /// the error is no failure, because the call was [overtaken](ApiError::is_overtaken). If the API
    /// server hasn't decided, [degrades](Self::degrade) the namespace.
    pub fn failure(&self, error: &ApiError) -> Option<String> {
        let text = with_causes(error);
        if error.is_overtaken() {
            let (namespace, key) = (self.work.namespace(), self.work.key());
            debug!(namespace, ?key, error = text, "The object is gone or changed, or the lead is lost");
            return None;
        }
        if error.is_open() {
            self.degrade();
        }
        Some(text)
    }

    /// Returns the time of the first failure in the namespace since a call succeeded there. None:
    /// no failure since, or the queue spreads no failures.
    pub fn failing_since(&self) -> Option<Instant> {
        self.queue.0.state.lock().shares.failing_since(self.work.namespace())
    }

    /// Ends work that succeeded. The queue forgets its key, unless work of the same key was added
    /// during the call.
    pub fn done(self) {
        self.ended(End::Done);
    }

    /// Has the work tried again after a time. Counts as a success: failures are forgotten.
    pub fn again(self, after: Duration) {
        self.ended(End::Again(after));
    }

    /// Has the work tried again when it is pushed again, or after `at_most`. Counts as a success.
    pub fn until_added(self, at_most: Duration) {
        self.ended(End::UntilAdded(at_most));
    }

    /// Has the work tried again after the growing wait of its queue.
    pub fn failed(self) {
        let wait = self.queue.0.limits.retry;
        self.ended(End::Failed(wait));
    }

    /// Has the work tried again after the growing wait given here.
    pub fn failed_with(self, wait: Wait) {
        self.ended(End::Failed(wait));
    }

    /// Ends work that has failed, without another try. Counts as a failure of its namespace or
    /// queue.
    pub fn given_up(self) {
        self.ended(End::GivenUp);
    }

    /// Ends work without another try. Counts neither as success nor as failure of its namespace and
    /// queue.
    pub fn forget(self) {
        self.queue.remove(&self.work.key());
    }

    /// Drops the lease with an end.
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
