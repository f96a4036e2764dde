//! Extensions that may need something: a decision, an event, or an end.
//!
//! Any user may create many. So namespaces take turns, unchanged extensions of a namespace take a small share of the
//! time, and of each only what decisions need is kept.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tenure_index::Uid;
use tenure_service::watch::Store;
use tenure_types::extension::{Extension, ExtensionState, slim};
use tokio::time::Instant;

use crate::{
    cluster::ClusterState,
    slots::{FairSlots, TakenSlot},
};

/// The time after which an extension is looked at again that hasn't changed: its run may have ended.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

/// The longest time after a failure until an extension is looked at again.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// Looks at the unchanged extensions of a namespace take at most this part of the time.
const SHARE: u32 = 50;

/// The most requests for a workload that wait for a decision at the same time.
pub const MOST_PENDING: usize = 16;

/// The open extensions, as the watch has shown them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenExtensions(Arc<Mutex<Opened>>);

#[derive(Debug, Default)]
struct Opened {
    by_uid: HashMap<Uid, Open>,
    /// The times at which those are due that aren't handled at the moment, by namespace.
    due: BTreeMap<String, BTreeSet<(Instant, Uid)>>,
    /// The namespace that had the last turn.
    last: String,
    pending: usize,
    /// The workloads to which time is being granted, with their namespaces.
    granting: HashSet<(String, Uid)>,
}

/// The turn of a workload to be granted time, until it is dropped.
#[derive(Debug)]
pub struct GrantTurn {
    open: OpenExtensions,
    workload: (String, Uid),
}

impl Drop for GrantTurn {
    fn drop(&mut self) {
        self.open.0.lock().granting.remove(&self.workload);
    }
}

#[derive(Debug)]
struct Open {
    extension: Arc<Extension>,
    due: Instant,
    is_handled: bool,
    /// The workload that it names was found.
    is_verified: bool,
    /// The events that this keeper has told: the reason and the time of each.
    told: Vec<(&'static str, Timestamp)>,
    failures: u32,
}

impl Opened {
    fn insert(&mut self, open: Open) {
        let uid = uid(&open.extension);
        self.pending = self.pending.saturating_add(usize::from(is_pending(&open.extension)));
        if !open.is_handled {
            self.due.entry(namespace(&open.extension).to_owned()).or_default().insert((open.due, uid));
        }
        self.by_uid.insert(uid, open);
    }

    fn remove(&mut self, uid: Uid) -> Option<Open> {
        let open = self.by_uid.remove(&uid)?;
        self.pending = self.pending.saturating_sub(usize::from(is_pending(&open.extension)));
        let namespace = namespace(&open.extension);
        if let Some(due) = self.due.get_mut(namespace) {
            due.remove(&(open.due, uid));
            if due.is_empty() {
                self.due.remove(namespace);
            }
        }
        Some(open)
    }

    /// Returns what is due first in the next namespace that gets a slot.
    fn next(&self, now: Instant, slots: &FairSlots) -> Option<(Uid, TakenSlot)> {
        let after = self.due.range::<str, _>((Excluded(self.last.as_str()), Unbounded));
        let in_turn = after.chain(self.due.range::<str, _>((Unbounded, Included(self.last.as_str()))));
        let due = in_turn.filter_map(|(namespace, due)| {
            let (at, uid) = due.first()?;
            (*at <= now).then_some((namespace, *uid))
        });
        due.map(|(namespace, uid)| slots.take(namespace).map(|slot| (uid, slot))).find_map(|taken| taken)
    }
}

impl OpenExtensions {
    fn apply(&self, extension: Extension) {
        let mut open = self.0.lock();
        let known = open.remove(uid(&extension));
        if !is_open(&extension) {
            return;
        }
        let (is_handled, is_verified, told) =
            known.map_or_else(Default::default, |known| (known.is_handled, known.is_verified, known.told));
        let extension = Arc::new(extension);
        open.insert(Open { extension, due: Instant::now(), is_handled, is_verified, told, failures: 0 });
    }

    /// Takes an extension that is due, of a namespace that gets a slot. It is to be given back.
    pub fn take_due(&self, slots: &FairSlots) -> Option<(Arc<Extension>, TakenSlot)> {
        let mut open = self.0.lock();
        let (uid, slot) = open.next(Instant::now(), slots)?;
        let taken = open.remove(uid)?;
        let extension = Arc::clone(&taken.extension);
        namespace(&extension).clone_into(&mut open.last);
        open.insert(Open { is_handled: true, ..taken });
        Some((extension, slot))
    }

    /// Takes the turn of the workload of an extension; none while another extension of it has the turn.
    pub fn take_turn(&self, extension: &Extension) -> Option<GrantTurn> {
        let workload = (namespace(extension).to_owned(), target(extension));
        let is_free = self.0.lock().granting.insert(workload.clone());
        is_free.then(|| GrantTurn { open: self.clone(), workload })
    }

    /// Gives an extension back that was taken, and that it took so long to look at. It is due again after a while or, if it
    /// has changed meanwhile, at once.
    pub fn give_back(&self, extension: &Extension, cost: Duration, has_failed: bool) {
        let mut open = self.0.lock();
        let Some(taken) = open.remove(uid(extension)) else { return };
        let version = |of: &Extension| of.metadata.resource_version.clone();
        let of_namespace = open.due.get(namespace(extension)).map_or(0, BTreeSet::len);
        let others = u32::try_from(of_namespace).unwrap_or(u32::MAX).saturating_add(1);
        let failures = if has_failed { taken.failures.saturating_add(1) } else { 0 };
        let after = if has_failed {
            AGAIN_AFTER.saturating_mul(1 << failures.min(8)).min(LONGEST_RETRY)
        } else {
            cost.saturating_mul(SHARE).saturating_mul(others).clamp(AGAIN_AFTER, LONGEST_RETRY * 12)
        };
        let is_changed = version(&taken.extension) != version(extension);
        let due = if is_changed { taken.due } else { Instant::now() + after };
        open.insert(Open { due, is_handled: false, failures, ..taken });
    }

    /// Takes all back that was taken, and forgets what was told: the keeper has lost the lead, and its events with it.
    pub fn release(&self) {
        let mut open = self.0.lock();
        let uids: Vec<Uid> = open.by_uid.keys().copied().collect();
        for uid in uids {
            if let Some(taken) = open.remove(uid) {
                open.insert(Open { is_handled: false, told: Vec::new(), due: Instant::now(), ..taken });
            }
        }
    }

    /// The number of extensions that wait for a decision.
    pub fn pending(&self) -> usize {
        self.0.lock().pending
    }

    /// True if [`MOST_PENDING`] other requests for the workload of an extension wait for a decision.
    pub fn has_too_many(&self, extension: &Extension) -> bool {
        let open = self.0.lock();
        let of_namespace = open.due.get(namespace(extension)).into_iter().flatten();
        let others = of_namespace.filter_map(|(_, uid)| open.by_uid.get(uid)).filter(|other| {
            target(&other.extension) == target(extension)
                && other.extension.status.is_some()
                && is_pending(&other.extension)
        });
        others.take(MOST_PENDING).count() == MOST_PENDING
    }

    /// Forgets an extension that needs nothing more.
    pub fn close(&self, extension: &Extension) {
        self.0.lock().remove(uid(extension));
    }

    /// True if the workload of an extension hasn't been looked at.
    pub fn is_unverified(&self, extension: &Extension) -> bool {
        !self.0.lock().by_uid.get(&uid(extension)).is_some_and(|open| open.is_verified)
    }

    /// Notes that the workload of an extension was found.
    pub fn verified(&self, extension: &Extension) {
        if let Some(open) = self.0.lock().by_uid.get_mut(&uid(extension)) {
            open.is_verified = true;
        }
    }

    /// Returns true if this keeper has not told an event yet, and notes that it does.
    pub fn is_untold(&self, extension: &Extension, reason: &'static str, at: Timestamp) -> bool {
        let mut open = self.0.lock();
        let Some(open) = open.by_uid.get_mut(&uid(extension)) else { return true };
        let is_untold = !open.told.contains(&(reason, at));
        if is_untold {
            open.told.push((reason, at));
        }
        is_untold
    }
}

fn uid(extension: &Extension) -> Uid {
    Uid::of(extension.metadata.uid.as_deref().unwrap_or_default())
}

/// The workload that an extension names. Users write its uid: capitals make it no other one.
fn target(extension: &Extension) -> Uid {
    Uid::of(&extension.spec.target.uid)
}

fn namespace(extension: &Extension) -> &str {
    extension.metadata.namespace.as_deref().unwrap_or_default()
}

fn is_pending(extension: &Extension) -> bool {
    extension.state() == ExtensionState::Pending
}

/// True for an extension that is to be decided or to end, or whose event may be missing.
fn is_open(extension: &Extension) -> bool {
    match extension.state() {
        ExtensionState::Pending
        | ExtensionState::Granted
        | ExtensionState::Denied
        | ExtensionState::Expired => true,
        // it is told first
        ExtensionState::Used => false,
    }
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
        let extension = slim(extension);
        self.cluster.change(|index| index.apply_extension(&extension));
        self.open.apply(extension);
    }

    fn delete(&mut self, uid: &Uid) {
        self.open.0.lock().remove(*uid);
        self.cluster.change(|index| index.delete_extension(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        let mut open = self.open.0.lock();
        let gone: Vec<Uid> = open.by_uid.keys().filter(|uid| !uids.contains(uid)).copied().collect();
        for uid in gone {
            open.remove(uid);
        }
        drop(open);
        self.cluster.change(|index| index.retain_extensions(uids));
    }
}

#[cfg(test)]
mod tests;
