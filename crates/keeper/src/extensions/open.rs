//! Extensions that may need something: a decision, an event, or an end.
//!
//! The watch adds them by the [`ExtensionStore`], and the `ExtensionController` takes them from
//! [`OpenExtensions`]. Any user may create many. So namespaces take turns, unchanged extensions of
//! a namespace take a small share of the time, and only the fields that decisions need are kept.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tenure_index::Uid;
use tenure_service::{
    watch::Store,
    work::{Lease, Work, WorkQueue},
};
use tenure_types::extension::{Extension, ExtensionState, slim};

use crate::cluster::ClusterState;

/// The shortest time between two checks of an unchanged extension: its run may have ended.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

/// The longest time between two checks of an unchanged extension.
const AGAIN_AT_LATEST: Duration = Duration::from_hours(1);

/// Checks of the unchanged extensions of a namespace take at most one part in this number of the
/// time.
const SHARE: u32 = 50;

/// The most requests for a workload that wait for a decision at the same time.
pub const MOST_PENDING: usize = 16;

/// An extension, as the watch has shown it. An extension that has changed is due at once.
#[derive(Debug)]
pub struct OpenExtension(pub Extension);

impl Work for OpenExtension {
    type Key = Uid;
    type Rank = ();

    fn key(&self) -> Uid {
        uid(&self.0)
    }

    fn namespace(&self) -> &str {
        namespace(&self.0)
    }

    fn rank(&self) {}

    fn replaces(&self, known: &Self) -> bool {
        self.0.metadata.resource_version != known.0.metadata.resource_version
    }
}

/// The open extensions, as the watch has shown them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenExtensions {
    /// The extensions that wait for a check.
    pub queue: WorkQueue<OpenExtension>,
    /// The open extensions by namespace, and the turns of their workloads.
    opened: Arc<Mutex<OpenState>>,
}

/// The open extensions, apart from their objects, which are in the queue.
#[derive(Debug, Default)]
struct OpenState {
    /// The uids of open extensions. The value is true once the workload was found.
    by_namespace: HashMap<String, HashMap<Uid, bool>>,
    /// The workloads to which time is being granted: namespace and uid.
    granting: HashSet<(String, Uid)>,
}

/// The turn of a workload to get a grant. The drop ends the turn.
#[derive(Debug)]
pub struct GrantTurn {
    open: OpenExtensions,
    workload: (String, Uid),
}

impl Drop for GrantTurn {
    fn drop(&mut self) {
        self.open.opened.lock().granting.remove(&self.workload);
    }
}

impl OpenState {
    /// Returns whether the workload of an extension was found. None: the extension isn't open.
    fn is_verified(&mut self, extension: &Extension) -> Option<&mut bool> {
        self.by_namespace.get_mut(namespace(extension))?.get_mut(&uid(extension))
    }
}

impl OpenExtensions {
    /// Adds or replaces an extension. An extension whose time is used, or that is being deleted, is
    /// forgotten.
    fn apply(&self, extension: Extension) {
        // the event about its use was written before this status
        let is_used = extension.state() == ExtensionState::Used;
        if is_used || extension.metadata.deletion_timestamp.is_some() {
            self.forget(uid(&extension));
            return;
        }
        let mut opened = self.opened.lock();
        let of_namespace = opened.by_namespace.entry(namespace(&extension).to_owned()).or_default();
        of_namespace.entry(uid(&extension)).or_default();
        drop(opened);
        self.queue.push(OpenExtension(extension));
    }

    /// Forgets an extension, and the work that waits for it.
    fn forget(&self, uid: Uid) {
        if let Some(gone) = self.queue.remove(&uid) {
            self.close(&gone.0);
        }
    }

    /// Forgets all extensions but these.
    fn retain(&self, uids: &HashSet<Uid>) {
        let all =
            self.opened.lock().by_namespace.values().flat_map(HashMap::keys).copied().collect::<Vec<_>>();
        all.into_iter().filter(|uid| !uids.contains(uid)).for_each(|uid| self.forget(uid));
    }

    /// Takes the turn of the workload of an extension. None: another extension of the workload has
    /// the turn.
    pub fn take_turn(&self, extension: &Extension) -> Option<GrantTurn> {
        let workload = (namespace(extension).to_owned(), target(extension));
        let is_free = self.opened.lock().granting.insert(workload.clone());
        is_free.then(|| GrantTurn { open: self.clone(), workload })
    }

    /// Returns an extension after a check. If the extension is still open, it is due again after a
    /// time that grows with `cost`, the time spent on it, and with the number of open extensions in
    /// its namespace.
    pub fn give_back(&self, lease: Lease<OpenExtension>, cost: Duration) {
        let opened = self.opened.lock();
        let of_namespace = opened.by_namespace.get(lease.work.namespace());
        let all = of_namespace.filter(|all| all.contains_key(&lease.work.key())).map(HashMap::len);
        drop(opened);
        let Some(all) = all else { return lease.done() };
        let after = cost.saturating_mul(SHARE).saturating_mul(u32::try_from(all).unwrap_or(u32::MAX));
        lease.again(after.clamp(AGAIN_AFTER, AGAIN_AT_LATEST));
    }

    /// Returns the number of extensions that wait for a decision.
    pub fn pending(&self) -> usize {
        let opened = self.opened.lock();
        let all = opened.by_namespace.values().flat_map(HashMap::keys);
        all.filter_map(|uid| self.queue.get(uid)).filter(|open| is_pending(&open.0)).count()
    }

    /// True if [`MOST_PENDING`] other requests for the workload of an extension wait for a
    /// decision. Requests whose status isn't written yet don't count.
    pub fn has_too_many(&self, extension: &Extension) -> bool {
        let opened = self.opened.lock();
        let of_namespace = opened.by_namespace.get(namespace(extension)).into_iter().flat_map(HashMap::keys);
        let others = of_namespace.filter(|of| **of != uid(extension)).filter_map(|uid| self.queue.get(uid));
        let waits = |other: &Extension| other.status.is_some() && is_pending(other);
        let of_workload = others.filter(|other| target(&other.0) == target(extension) && waits(&other.0));
        of_workload.take(MOST_PENDING).count() == MOST_PENDING
    }

    /// Forgets an extension that needs nothing more.
    pub fn close(&self, extension: &Extension) {
        let mut opened = self.opened.lock();
        let Some(of_namespace) = opened.by_namespace.get_mut(namespace(extension)) else { return };
        of_namespace.remove(&uid(extension));
        if of_namespace.is_empty() {
            opened.by_namespace.remove(namespace(extension));
        }
    }

    /// True if an extension is open, and the watch has shown no other version than this one. Call it
    /// under the lock of the index: if false, the index has the newer version.
    pub fn is_latest(&self, extension: &Extension) -> bool {
        let is_open = self.opened.lock().is_verified(extension).is_some();
        let (known, version) = (self.queue.get(&uid(extension)), &extension.metadata.resource_version);
        is_open && known.is_some_and(|known| known.0.metadata.resource_version == *version)
    }

    /// True if the workload of an extension hasn't been found yet.
    pub fn is_unverified(&self, extension: &Extension) -> bool {
        !self.opened.lock().is_verified(extension).is_some_and(|is_verified| *is_verified)
    }

    /// Notes that the workload of an extension was found.
    pub fn verified(&self, extension: &Extension) {
        if let Some(is_verified) = self.opened.lock().is_verified(extension) {
            *is_verified = true;
        }
    }
}

fn uid(extension: &Extension) -> Uid {
    Uid::of(extension.metadata.uid.as_deref().unwrap_or_default())
}

/// Returns the uid of the workload that an extension names. Users write it: capitals make no
/// difference.
fn target(extension: &Extension) -> Uid {
    Uid::of(&extension.spec.target.uid)
}

fn namespace(extension: &Extension) -> &str {
    extension.metadata.namespace.as_deref().unwrap_or_default()
}

fn is_pending(extension: &Extension) -> bool {
    extension.state() == ExtensionState::Pending
}

/// Takes extensions into the index, and keeps the open ones. Both change under the lock of the index,
/// so a reader that holds the lock sees the same version in both.
#[derive(Debug)]
pub struct ExtensionStore {
    pub cluster: ClusterState,
    pub open: OpenExtensions,
}

impl Store<Extension> for ExtensionStore {
    type Key = Uid;

    fn apply(&mut self, extension: Extension) {
        let extension = slim(extension);
        self.cluster.change(|index| {
            index.apply_extension(&extension);
            self.open.apply(extension);
        });
    }

    fn delete(&mut self, uid: &Uid) {
        self.cluster.change(|index| {
            index.delete_extension(*uid);
            self.open.forget(*uid);
        });
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.cluster.change(|index| {
            index.retain_extensions(uids);
            self.open.retain(uids);
        });
    }
}

#[cfg(test)]
mod tests;
