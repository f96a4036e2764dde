//! The index that all parts of the keeper share.
//!
//! The stores of the watches change it, and the controllers read it. Each access holds one lock,
//! and no call to the API server is made meanwhile: the closures aren't async.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::core::ApiResource;
use parking_lot::Mutex;
use tenure_index::{CeilingIndex, CeilingOptions};
use tokio::sync::watch;

use crate::outbox::EventOutbox;

/// The time that a reader waits after a change, so that it takes a burst of changes at once.
const CROWD: Duration = Duration::from_millis(50);

/// The cluster as the watches have shown it. Clones share it.
#[derive(Clone, Debug)]
pub struct ClusterState {
    index: Arc<Mutex<CeilingIndex>>,
    /// Wakes the readers of `changes`.
    changed: Arc<watch::Sender<()>>,
    /// The kinds of owners, by the numbers of their watches.
    kinds: Arc<Mutex<HashMap<u16, ApiResource>>>,
    /// The recent acts whose events may not have been written.
    pub outbox: EventOutbox,
}

impl ClusterState {
    /// Creates the state of a cluster without objects.
    pub fn new(settings: CeilingOptions) -> Self {
        Self {
            index: Arc::new(Mutex::new(CeilingIndex::new(settings))),
            changed: Arc::default(),
            kinds: Arc::default(),
            outbox: EventOutbox::default(),
        }
    }

    /// Reads the index, or changes it without waking its readers.
    pub fn with<T>(&self, f: impl FnOnce(&mut CeilingIndex) -> T) -> T {
        f(&mut self.index.lock())
    }

    /// Returns the kind of owners that a watch shows. None: no watch with this number has begun.
    pub fn kind(&self, source: u16) -> Option<ApiResource> {
        self.kinds.lock().get(&source).cloned()
    }

    /// Returns the number of the watch of Jobs. None: no such watch has begun.
    pub fn source_of_jobs(&self) -> Option<u16> {
        let kinds = self.kinds.lock();
        let is_job = |kind: &ApiResource| (kind.group.as_str(), kind.kind.as_str()) == ("batch", "Job");
        kinds.iter().find(|(_, kind)| is_job(kind)).map(|(source, _)| *source)
    }

    /// Notes the kind of owners that a watch shows.
    pub fn shows(&self, source: u16, kind: ApiResource) {
        self.kinds.lock().insert(source, kind);
    }

    /// Returns the changes from now on, for a reader that checks the index after each change.
    pub fn changes(&self) -> Changes {
        Changes(self.changed.subscribe())
    }

    /// Changes the index, and wakes its readers if `change` returns true.
    pub fn change_if(&self, change: impl FnOnce(&mut CeilingIndex) -> bool) {
        if self.with(change) {
            self.changed.send_replace(());
        }
    }

    /// Changes the index, and wakes its readers.
    pub fn change<T>(&self, change: impl FnOnce(&mut CeilingIndex) -> T) -> T {
        let result = self.with(change);
        self.changed.send_replace(());
        result
    }
}

/// Wakes one reader of the index after changes. Several changes may wake it once.
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Waits until the index has changed since the last call, and 50 milliseconds more: changes
    /// come in bursts, and each look may schedule all pods again.
    pub async fn next(&mut self) {
        // an error would mean that the sender is gone, but the `ClusterState` has it
        let _ = self.0.changed().await;
        tokio::time::sleep(CROWD).await;
    }
}
