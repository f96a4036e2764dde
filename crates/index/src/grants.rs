//! The time that workloads were granted beyond their ceilings. The watch of `Extension`s fills this
//! store, and the standing of each pod includes the granted time. When the keeper judges an end, a
//! freshly read list replaces the store.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use tenure_types::extension::Extension;

use crate::Uid;

/// The uid of a workload, the time at which the grant was requested, and the uid of the extension.
type GrantKey = (Uid, Timestamp, Uid);

/// A grant of time to a workload. It counts only for a run that had begun when the grant was
/// requested.
#[derive(Debug, PartialEq, Eq)]
struct TimeGrant {
    namespace: Box<str>,
    time: SignedDuration,
}

#[derive(Debug, Default)]
pub struct Grants {
    /// By workload, in the order in which the grants were requested.
    grants: BTreeMap<GrantKey, TimeGrant>,
    /// The keys of the grants, by extension.
    keys: HashMap<Uid, GrantKey>,
}

impl Grants {
    pub fn listed<'e>(extensions: impl IntoIterator<Item = &'e Extension>) -> Self {
        let mut grants = Self::default();
        for extension in extensions {
            grants.apply(extension);
        }
        grants
    }

    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Adds or updates an extension. Returns the workloads whose grants have changed.
    pub fn apply(&mut self, extension: &Extension) -> Vec<Uid> {
        let Some(uid) = extension.metadata.uid.as_deref().map(Uid::of) else { return Vec::new() };
        let granted = granted(uid, extension);
        if granted.as_ref().is_some_and(|(key, grant)| self.grants.get(key) == Some(grant)) {
            return Vec::new();
        }
        let mut changed: Vec<Uid> = self.delete(uid).into_iter().collect();
        if let Some((key, grant)) = granted {
            changed.push(key.0);
            self.keys.insert(uid, key);
            self.grants.insert(key, grant);
        }
        changed
    }

    /// Forgets an extension. Returns the workload whose grant it was. None: the extension wasn't
    /// granted.
    pub fn delete(&mut self, uid: Uid) -> Option<Uid> {
        let key = self.keys.remove(&uid)?;
        self.grants.remove(&key);
        Some(key.0)
    }

    /// Returns the uids of the granted extensions that aren't among these.
    pub fn others(&self, uids: &HashSet<Uid>) -> Vec<Uid> {
        self.keys.keys().copied().filter(|uid| !uids.contains(uid)).collect()
    }

    /// Returns the granted times that count for a run of a workload since `since`, in the order of
    /// their requests. Only extensions of the workload's namespace count: a user may name any uid.
    pub fn of(
        &self,
        workload: Uid,
        namespace: &str,
        since: Timestamp,
    ) -> impl Iterator<Item = SignedDuration> {
        let grants = self.grants.range((workload, since, Uid::MIN)..=(workload, Timestamp::MAX, Uid::MAX));
        grants.filter(move |(_, grant)| *grant.namespace == *namespace).map(|(_, grant)| grant.time)
    }
}

/// Returns the grant of an extension. None: the extension isn't granted.
fn granted(uid: Uid, extension: &Extension) -> Option<(GrantKey, TimeGrant)> {
    let asked = extension.metadata.creation_timestamp.as_ref()?.0;
    let namespace = extension.metadata.namespace.as_deref().unwrap_or_default().into();
    let time = extension.granted()?.to_signed();
    Some(((Uid::of(&extension.spec.target.uid), asked, uid), TimeGrant { namespace, time }))
}
