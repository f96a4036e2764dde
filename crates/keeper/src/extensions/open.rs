//! Extensions that may need something: a decision, an event, or an end.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tenure_index::Uid;
use tenure_service::watch::Store;
use tenure_types::extension::{Extension, ExtensionState};
use tokio::time::Instant;

use super::KEEPER;
use crate::{cluster::ClusterState, recent::EVENT_REPAIR};

/// The time after which an extension is looked at again that hasn't changed: its run may have ended.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

/// The open extensions, as the watch has shown them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenExtensions(Arc<Mutex<HashMap<Uid, Open>>>);

#[derive(Debug)]
struct Open {
    extension: Extension,
    due: Instant,
    /// The workload that it names was found.
    is_verified: bool,
    is_told: bool,
}

impl OpenExtensions {
    fn apply(&self, extension: Extension) {
        let mut open = self.0.lock();
        let uid = uid(&extension);
        if !is_open(&extension) {
            open.remove(&uid);
            return;
        }
        let known = open.remove(&uid);
        let is_verified = known.as_ref().is_some_and(|known| known.is_verified);
        let is_told = known.is_some_and(|known| known.is_told);
        open.insert(uid, Open { extension, due: Instant::now(), is_verified, is_told });
    }

    /// Takes an extension that is due. It is due again after a while.
    pub fn take_due(&self) -> Option<Extension> {
        let now = Instant::now();
        let mut open = self.0.lock();
        let due = open.values_mut().filter(|open| open.due <= now).min_by_key(|open| open.due)?;
        due.due = now + AGAIN_AFTER;
        Some(due.extension.clone())
    }

    /// The number of extensions that wait for a decision.
    pub fn pending(&self) -> usize {
        let is_pending = |open: &&Open| open.extension.state() == ExtensionState::Pending;
        self.0.lock().values().filter(is_pending).count()
    }

    /// Forgets an extension that needs nothing more.
    pub fn close(&self, extension: &Extension) {
        self.0.lock().remove(&uid(extension));
    }

    /// True if the workload of an extension hasn't been looked at.
    pub fn is_unverified(&self, extension: &Extension) -> bool {
        !self.0.lock().get(&uid(extension)).is_some_and(|open| open.is_verified)
    }

    /// Notes that the workload of an extension was found.
    pub fn verified(&self, extension: &Extension) {
        if let Some(open) = self.0.lock().get_mut(&uid(extension)) {
            open.is_verified = true;
        }
    }

    /// True if the event about a recent decision may be missing. Returns true only once for each decision.
    pub fn take_untold(&self, extension: &Extension, now: Timestamp) -> bool {
        let mut open = self.0.lock();
        let open = open.get_mut(&uid(extension));
        open.is_some_and(|open| !std::mem::replace(&mut open.is_told, true)) && is_of_late(extension, now)
    }
}

fn uid(extension: &Extension) -> Uid {
    Uid::of(extension.metadata.uid.as_deref().unwrap_or_default())
}

fn is_open(extension: &Extension) -> bool {
    match extension.state() {
        ExtensionState::Pending | ExtensionState::Granted => true,
        ExtensionState::Denied => is_by_a_person(extension),
        ExtensionState::Used | ExtensionState::Expired => false,
    }
}

/// True if a person has decided.
pub fn is_by_a_person(extension: &Extension) -> bool {
    let by = extension.status.as_ref().and_then(|status| status.by.as_deref());
    by.is_some_and(|by| by != KEEPER)
}

/// True if a decision is so young that its event may be missing.
pub fn is_of_late(extension: &Extension, now: Timestamp) -> bool {
    let at = extension.status.as_ref().and_then(|status| status.at);
    at.is_none_or(|at| now.duration_since(at) <= EVENT_REPAIR)
}

/// Takes extensions into the index, and keeps the open ones.
#[derive(Debug)]
pub struct ExtensionStore {
    pub cluster: ClusterState,
    pub open: OpenExtensions,
}

impl Store<Extension> for ExtensionStore {
    type Key = Uid;

    fn key(metadata: &ObjectMeta) -> Uid {
        Uid::of(metadata.uid.as_deref().unwrap_or_default())
    }

    fn apply(&mut self, extension: Extension) {
        self.cluster.change(|index| index.apply_extension(&extension));
        self.open.apply(extension);
    }

    fn delete(&mut self, uid: &Uid) {
        self.open.0.lock().remove(uid);
        self.cluster.change(|index| index.delete_extension(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.open.0.lock().retain(|uid, _| uids.contains(uid));
        self.cluster.change(|index| index.retain_extensions(uids));
    }
}
