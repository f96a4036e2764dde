//! The time that workloads were granted beyond their ceilings, and denials by people. The watch of
//! `Extension`s fills this store, and the standing of each pod includes the granted time. When the
//! keeper judges an end, a freshly read list replaces the store.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use tenure_types::extension::Extension;

use crate::Uid;

/// The uid of a workload, the time of the request, and the uid of the extension.
type DecisionKey = (Uid, Timestamp, Uid);

/// A decision about time for a workload. It counts only for a run that had begun when the time was
/// requested.
#[derive(Debug, PartialEq, Eq)]
struct TimeDecision {
    namespace: Box<str>,
    /// The granted time. None: a person has denied the time.
    granted: Option<SignedDuration>,
}

#[derive(Debug, Default)]
pub struct Grants {
    /// By workload, in the order of the requests.
    decisions: BTreeMap<DecisionKey, TimeDecision>,
    /// The keys of the decisions, by extension.
    keys: HashMap<Uid, DecisionKey>,
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
        self.decisions.is_empty()
    }

    /// Adds or updates an extension. One that is being deleted is forgotten. Returns the workloads
    /// about which decisions have changed.
    pub fn apply(&mut self, extension: &Extension) -> Vec<Uid> {
        let Some(uid) = extension.metadata.uid.as_deref().map(Uid::of) else { return Vec::new() };
        let decided = decided(uid, extension);
        if decided.as_ref().is_some_and(|(key, decision)| self.decisions.get(key) == Some(decision)) {
            return Vec::new();
        }
        let mut changed: Vec<Uid> = self.delete(uid).into_iter().collect();
        if let Some((key, decision)) = decided {
            changed.push(key.0);
            self.keys.insert(uid, key);
            self.decisions.insert(key, decision);
        }
        changed
    }

    /// Forgets an extension. Returns its workload. None: there was no decision.
    pub fn delete(&mut self, uid: Uid) -> Option<Uid> {
        let key = self.keys.remove(&uid)?;
        self.decisions.remove(&key);
        Some(key.0)
    }

    /// Returns the uids of the decided extensions that aren't among these.
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
        self.about(workload, namespace, since).filter_map(|decision| decision.granted)
    }

    /// True if a person has denied time for a run of a workload since `since`.
    pub fn is_denied(&self, workload: Uid, namespace: &str, since: Timestamp) -> bool {
        self.about(workload, namespace, since).any(|decision| decision.granted.is_none())
    }

    /// Returns the decisions about a run of a workload since `since`, in the order of the requests.
    fn about(&self, workload: Uid, namespace: &str, since: Timestamp) -> impl Iterator<Item = &TimeDecision> {
        let run = (workload, since, Uid::MIN)..=(workload, Timestamp::MAX, Uid::MAX);
        let decisions = self.decisions.range(run).map(|(_, decision)| decision);
        decisions.filter(move |decision| *decision.namespace == *namespace)
    }
}

/// Returns the decision about an extension. None: the extension is neither granted nor denied by a
/// person, or it is being deleted, which a tenant's finalizer may prolong.
fn decided(uid: Uid, extension: &Extension) -> Option<(DecisionKey, TimeDecision)> {
    if extension.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let asked = extension.metadata.creation_timestamp.as_ref()?.0;
    let namespace = extension.metadata.namespace.as_deref().unwrap_or_default().into();
    let granted = if extension.is_denied_by_person() { None } else { Some(extension.granted()?.to_signed()) };
    Some(((Uid::of(&extension.spec.target.uid), asked, uid), TimeDecision { namespace, granted }))
}
