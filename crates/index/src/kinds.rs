//! Kinds of owners in four bytes each, for millions of records. `Controller` records have such
//! kinds, and `OwnerRecords` climbs by them. The set of kinds that can be paused may change with
//! the configuration.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    num::NonZeroU32,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_policy::{
    climb::{DEPLOYMENT, POD_CONTROLLERS, REPLICA_SET},
    naming::group_of,
    owner_table::OwnerTable,
};

/// A hash of group and kind, the same for all versions of the group. It is never zero, so that an
/// `Option` of it has the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindHash(NonZeroU32);

/// Hashes kinds with a random key, so that no user can invent a kind that collides with another.
/// Only hashes of one hasher can be compared.
#[derive(Debug, Default)]
pub struct KindHasher(RandomState);

impl KindHasher {
    pub fn of(&self, owner: &OwnerReference) -> KindHash {
        self.named(group_of(&owner.api_version), &owner.kind)
    }

    /// Returns the kinds of a table that can be paused themselves, not those that are only passed
    /// through.
    pub fn pausable(&self, table: &OwnerTable) -> HashSet<KindHash> {
        let pausable = table.ancestors().filter(|(_, _, pausable)| *pausable);
        pausable.map(|(group, kind, _)| self.named(group, kind)).collect()
    }

    /// Returns the kind of a `CronJob`.
    pub fn cron_job(&self) -> KindHash {
        self.named("batch", "CronJob")
    }

    /// Returns the kinds of the policy's climb.
    pub fn climb(&self) -> ClimbKinds {
        let kind = |(group, kind): (&str, &str)| self.named(group, kind);
        let own_pods = POD_CONTROLLERS.into_iter().map(|of| (kind(of), None));
        let only_own = own_pods.chain([(kind(DEPLOYMENT), Some(kind(REPLICA_SET)))]).collect();
        ClimbKinds { only_own, pod: Some(self.named("", "Pod")) }
    }

    #[allow(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    fn named(&self, group: &str, kind: &str) -> KindHash {
        let hash = self.0.hash_one((group, kind)) as u32;
        KindHash(NonZeroU32::new(hash).unwrap_or(NonZeroU32::MIN))
    }
}

/// The kinds of the policy's climb from a pod to its owners, hashed. By default, every kind may own
/// every other.
#[derive(Debug, Default)]
pub struct ClimbKinds {
    /// The kinds whose controllers own objects of one kind alone, with that kind. None: pods.
    only_own: HashMap<KindHash, Option<KindHash>>,
    pod: Option<KindHash>,
}

impl ClimbKinds {
    /// True if the controller of a kind could own objects of the kind `below`. None for `below`:
    /// pods.
    pub fn may_own(&self, kind: KindHash, below: Option<KindHash>) -> bool {
        self.only_own.get(&kind).is_none_or(|only| *only == below)
    }

    /// Returns the kind that is below the next owner, after an owner of `kind`. None: `kind` is a
    /// pod, and so the next owner owns a pod.
    pub fn below(&self, kind: KindHash) -> Option<KindHash> {
        Some(kind).filter(|_| self.pod != Some(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(api_version: &str, kind: &str) -> OwnerReference {
        OwnerReference { api_version: api_version.into(), kind: kind.into(), ..OwnerReference::default() }
    }

    #[test]
    fn a_kind_is_its_group_and_kind_in_every_version() {
        let kinds = KindHasher::default();
        let job = kinds.of(&owner("batch/v1", "Job"));
        assert_eq!(kinds.of(&owner("batch/v1beta1", "Job")), job);
        assert_ne!(kinds.of(&owner("batch.volcano.sh/v1", "Job")), job);
        assert_ne!(kinds.of(&owner("batch/v1", "CronJob")), job);
    }

    #[test]
    fn kinds_that_are_only_passed_through_are_not_pausable() {
        let kinds = KindHasher::default();
        let pausable = kinds.pausable(&OwnerTable::default());
        assert!(pausable.contains(&kinds.of(&owner("batch/v1", "Job"))));
        assert!(!pausable.contains(&kinds.of(&owner("serving.knative.dev/v1", "Service"))));
        assert!(!pausable.contains(&kinds.of(&owner("example.com/v1", "Thing"))));
    }
}
