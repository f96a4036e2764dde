//! The ledger of the resources that runs have used, while this keeper leads.
//!
//! The [`UsageCounter`] opens and feeds the [`UsageBook`], the `Pauser` notes which pods it ends,
//! and the metrics show the totals.

mod count;
mod devices;
mod record;
mod session;

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tenure_index::{Task, Uid, UsageLedger};
use tenure_policy::usage::EndNote;
use tenure_types::usage_record::UsageEnd;

use crate::cluster::ClusterState;

pub use count::UsageCounter;
pub use record::RecordStore;

/// The ledger. Empty while this keeper doesn't count. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct UsageBook(Arc<Mutex<Option<UsageLedger>>>);

impl UsageBook {
    /// Begins to count with a ledger.
    pub fn open(&self, ledger: UsageLedger) {
        *self.0.lock() = Some(ledger);
    }

    /// Ends the counting. The record contains the counts, or the next session counts again.
    pub fn close(&self) {
        *self.0.lock() = None;
    }

    /// Reads or changes the ledger. None: this keeper doesn't count.
    pub fn with<T>(&self, f: impl FnOnce(&mut UsageLedger) -> T) -> Option<T> {
        self.0.lock().as_mut().map(f)
    }

    /// Adds the rows of queues that don't exist to the empty name, if there is little room for
    /// others. The metrics don't show rows of such queues.
    pub fn make_room(&self, cluster: &ClusterState) {
        let exists = |queue: &str| cluster.with(|index| index.has_queue(queue));
        self.with(|ledger| ledger.make_room(exists));
    }

    /// Notes that the keeper is about to end these pods, so that the ledger knows why they are
    /// gone: the API server may show that before it answers.
    pub fn ending(&self, task: Task, pods: impl IntoIterator<Item = Uid>, now: Timestamp) -> EndingPods {
        let end = match task {
            Task::Evict => UsageEnd::EvictedUnready,
            Task::Expire | Task::Announce | Task::Withdraw | Task::Note => UsageEnd::Cut,
        };
        let pods = self.with(|ledger| ledger.end(pods, EndNote { at: now, end })).unwrap_or_default();
        EndingPods { book: self.clone(), pods }
    }

    /// Notes the same of all pods that an owner, by namespace and uid, controls, directly or not.
    pub fn ending_below(
        &self,
        task: Task,
        owner: Option<(&str, &str)>,
        cluster: &ClusterState,
        now: Timestamp,
    ) -> EndingPods {
        // the pods are searched only if this keeper counts
        let counts = self.with(|_| ()).is_some();
        let owner = owner.filter(|_| counts);
        let below = |(namespace, uid)| cluster.with(|index| index.controlled_pods(namespace, Uid::of(uid)));
        let pods = owner.map(below);
        self.ending(task, pods.unwrap_or_default(), now)
    }
}

/// Pods that the keeper is about to end. The drop takes the note back.
#[derive(Debug)]
pub struct EndingPods {
    book: UsageBook,
    pods: Vec<Uid>,
}

impl EndingPods {
    /// Leaves the note: the write has succeeded.
    pub fn succeeded(mut self) {
        self.pods.clear();
    }
}

impl Drop for EndingPods {
    fn drop(&mut self) {
        if !self.pods.is_empty() {
            self.book.with(|ledger| ledger.spare(&self.pods));
        }
    }
}

#[cfg(test)]
mod tests;
