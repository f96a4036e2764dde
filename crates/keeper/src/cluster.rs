//! The index that all parts of the keeper share.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::core::ApiResource;
use parking_lot::Mutex;
use tenure_index::{CeilingIndex, Settings};
use tokio::sync::watch;

use crate::outbox::EventOutbox;

const CROWD: Duration = Duration::from_millis(50);

/// The cluster as the watches have seen it. Clones share it.
#[derive(Clone, Debug)]
pub struct ClusterState {
    index: Arc<Mutex<CeilingIndex>>,
    changed: Arc<watch::Sender<()>>,
    /// The kinds of owners, by the numbers of their watches.
    kinds: Arc<Mutex<HashMap<u16, ApiResource>>>,
    /// The recent acts whose events may not have been written.
    pub outbox: EventOutbox,
}

impl ClusterState {
    pub fn new(settings: Settings) -> Self {
        Self {
            index: Arc::new(Mutex::new(CeilingIndex::new(settings))),
            changed: Arc::default(),
            kinds: Arc::default(),
            outbox: EventOutbox::default(),
        }
    }

    /// Reads the index, or changes it without waking its readers.
    pub fn with<T>(&self, look: impl FnOnce(&mut CeilingIndex) -> T) -> T {
        look(&mut self.index.lock())
    }

    /// The kind of owners that a watch shows.
    pub fn kind(&self, source: u16) -> Option<ApiResource> {
        self.kinds.lock().get(&source).cloned()
    }

    /// The watch that shows Jobs.
    pub fn source_of_jobs(&self) -> Option<u16> {
        let kinds = self.kinds.lock();
        let is_job = |kind: &ApiResource| (kind.group.as_str(), kind.kind.as_str()) == ("batch", "Job");
        kinds.iter().find(|(_, kind)| is_job(kind)).map(|(source, _)| *source)
    }

    /// A watch shows owners of this kind.
    pub fn shows(&self, source: u16, kind: ApiResource) {
        self.kinds.lock().insert(source, kind);
    }

    /// The changes from now on, for a reader that looks at the index after each.
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

/// Changes that watches have made. Each reader sees all of them.
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Waits until there was a change since the last call, and a moment longer: changes come in crowds, and each look
    /// may schedule all pods again.
    pub async fn next(&mut self) {
        // an error would mean that the sender is gone, but the cluster has it
        let _ = self.0.changed().await;
        tokio::time::sleep(CROWD).await;
    }
}
