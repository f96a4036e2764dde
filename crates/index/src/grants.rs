//! The time that workloads were granted beyond their ceilings.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use tenure_types::extension::Extension;

use crate::Uid;

/// A grant of time to a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The time at which it was asked for. Only runs count that had begun then.
    pub asked: Timestamp,
    pub extension: Uid,
    pub namespace: Box<str>,
    pub time: SignedDuration,
}

/// The grants of workloads, by their uids.
#[derive(Debug, Default)]
pub struct Grants {
    /// In the order in which they were asked for.
    by_workload: HashMap<Uid, Vec<Grant>>,
    workloads: HashMap<Uid, Uid>,
}

impl Grants {
    /// The grants of a list of extensions.
    pub fn listed<'e>(extensions: impl IntoIterator<Item = &'e Extension>) -> Self {
        let mut grants = Self::default();
        for extension in extensions {
            if let Some(uid) = extension.metadata.uid.as_deref() {
                grants.apply(Uid::of(uid), extension);
            }
        }
        grants
    }

    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty()
    }

    /// Adds or updates an extension; returns the workloads whose grants have changed.
    pub fn apply(&mut self, uid: Uid, extension: &Extension) -> Vec<Uid> {
        let grant = grant(uid, extension).map(|grant| (Uid::of(&extension.spec.target.uid), grant));
        let is_known = |(workload, grant): &(Uid, Grant)| {
            self.by_workload.get(workload).is_some_and(|grants| grants.contains(grant))
        };
        if grant.as_ref().is_some_and(is_known) {
            return Vec::new();
        }
        let mut changed: Vec<Uid> = self.delete(uid).into_iter().collect();
        if let Some((workload, grant)) = grant {
            let grants = self.by_workload.entry(workload).or_default();
            let place = grants.partition_point(|other| *other < grant);
            grants.insert(place, grant);
            self.workloads.insert(uid, workload);
            changed.push(workload);
        }
        changed
    }

    /// Forgets an extension; returns the workload whose grant it was.
    pub fn delete(&mut self, uid: Uid) -> Option<Uid> {
        let workload = self.workloads.remove(&uid)?;
        if let Some(grants) = self.by_workload.get_mut(&workload) {
            grants.retain(|grant| grant.extension != uid);
            if grants.is_empty() {
                self.by_workload.remove(&workload);
            }
        }
        Some(workload)
    }

    /// The extensions that aren't among these.
    pub fn others(&self, uids: &HashSet<Uid>) -> Vec<Uid> {
        self.workloads.keys().copied().filter(|uid| !uids.contains(uid)).collect()
    }

    /// The grants that count for a run of a workload, in the order in which they were asked for.
    pub fn of<'g>(
        &'g self,
        workload: Uid,
        namespace: &'g str,
        since: Timestamp,
    ) -> impl Iterator<Item = &'g Grant> {
        let grants = self.by_workload.get(&workload).into_iter().flatten();
        grants.filter(move |grant| grant.asked >= since && &*grant.namespace == namespace)
    }
}

/// The grant of an extension, if it was granted.
fn grant(uid: Uid, extension: &Extension) -> Option<Grant> {
    Some(Grant {
        asked: extension.metadata.creation_timestamp.as_ref()?.0,
        extension: uid,
        namespace: extension.metadata.namespace.as_deref().unwrap_or_default().into(),
        time: extension.granted()?.to_signed(),
    })
}
