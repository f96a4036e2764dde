//! Follows the owners of pods: all kinds of the owner table, with those that the configuration
//! adds.
//!
//! `Args::follow` runs [`Owners`] in every replica. The index reads the ceilings, pauses and
//! Workloads of Kueue on owners, and the outbox their journals.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures::future::{BoxFuture, FutureExt};
use kube::{Api, Client, core::ApiResource};
use tenure_index::Uid;
use tenure_policy::{config::Config, kueue, owner_table::OwnerTable};
use tenure_service::{
    clock::ServerClock,
    config::Current,
    readiness::ProcessReadiness,
    served::{Kinds, ServedApiGroups},
    watch::{Store, follow_while_served},
};
use tenure_types::projection::Owner;
use tokio_util::sync::CancellationToken;

use crate::{api::of_kind, cluster::ClusterState};

/// Takes the owners of one kind.
#[derive(Debug)]
struct OwnerStore {
    cluster: ClusterState,
    /// The number of the watch.
    source: u16,
    resource: ApiResource,
    clock: ServerClock,
}

impl Store<Owner> for OwnerStore {
    type Key = Uid;

    fn apply(&mut self, Owner { metadata }: Owner) {
        self.cluster.outbox.apply(&self.resource, &metadata, self.clock.now());
        if (self.resource.group.as_str(), self.resource.kind.as_str()) == (kueue::GROUP, kueue::WORKLOAD) {
            self.cluster.change_if(|index| index.apply_workload(self.source, &metadata));
        } else {
            self.cluster.change(|index| index.apply_owner(self.source, &metadata));
        }
    }

    fn delete(&mut self, uid: &Uid) {
        self.cluster.outbox.forget(*uid);
        self.cluster.change(|index| index.delete_owner(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.cluster.change(|index| index.retain_owners(self.source, uids));
    }
}

/// The kinds of owners to follow.
pub struct Owners {
    client: Client,
    cluster: ClusterState,
    clock: ServerClock,
    config: Current<Config>,
    kinds: NumberedKinds,
}

impl Owners {
    /// Begins with the kinds of the present configuration.
    pub fn new(client: Client, cluster: ClusterState, clock: ServerClock, config: Current<Config>) -> Self {
        let mut kinds = NumberedKinds::default();
        kinds.update(&config.get().table);
        Self { client, cluster, clock, config, kinds }
    }
}

impl Kinds for Owners {
    type Key = u16;

    const WHAT: &str = "owners";

    const MEANWHILE: &str =
        "their annotations tenure.dev/max-duration don't count, and paused ones don't come back";

    // readiness doesn't wait for a second look at the kinds
    const PATIENCE: u32 = 1;

    fn groups(&self) -> BTreeSet<String> {
        self.kinds.groups()
    }

    fn served(&self, served: &ServedApiGroups) -> Vec<(u16, ApiResource)> {
        let of = |(number, (group, kind)): (&u16, &GroupKind)| {
            let (resource, _) = of_kind(served.get(group)?, kind)?;
            Some((*number, resource))
        };
        self.kinds.now.iter().filter_map(of).collect()
    }

    fn have(&self, source: u16) -> bool {
        self.kinds.now.contains_key(&source)
    }

    async fn changed(&mut self) {
        self.config.changed().await;
        self.kinds.update(&self.config.get().table);
    }

    fn follow(
        &self,
        source: u16,
        resource: ApiResource,
        readiness: &ProcessReadiness,
        end: CancellationToken,
    ) -> BoxFuture<'static, u16> {
        let synced = readiness.awaiting(format!("{}.{}", resource.plural, resource.group));
        let api: Api<Owner> = Api::all_with(self.client.clone(), &resource);
        self.cluster.shows(source, resource.clone());
        let (cluster, clock) = (self.cluster.clone(), self.clock.clone());
        let store = OwnerStore { cluster: cluster.clone(), source, resource, clock };
        let follow = async move {
            let follow = follow_while_served(api, synced.clone(), store);
            if end.run_until_cancelled(follow).await.is_none() {
                synced.done();
                cluster.change(|index| index.retain_owners(source, &HashSet::new()));
            }
            source
        };
        follow.boxed()
    }
}

/// The watched kinds, and the kinds that were watched before. A kind keeps its number when it is no
/// longer watched, so that no other kind ever gets the number.
#[derive(Debug, Default)]
struct NumberedKinds {
    /// The numbers of all kinds so far.
    numbers: HashMap<GroupKind, u16>,
    /// The kinds that are watched now.
    now: BTreeMap<u16, GroupKind>,
}

/// The API group and the kind.
type GroupKind = (String, String);

impl NumberedKinds {
    /// Replaces the kinds by those of a table.
    fn update(&mut self, table: &OwnerTable) {
        let Self { numbers, now } = self;
        let number = |(group, kind, _): (&str, &str, bool)| {
            let kind = (group.to_owned(), kind.to_owned());
            let next = u16::try_from(numbers.len()).ok()?;
            Some((*numbers.entry(kind.clone()).or_insert(next), kind))
        };
        *now = table.ancestors().filter_map(number).collect();
    }

    /// Returns the API groups of the kinds that are watched now.
    fn groups(&self) -> BTreeSet<String> {
        self.now.values().map(|(group, _)| group.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updated(kinds: &mut NumberedKinds, rows: &[&str]) -> BTreeMap<String, u16> {
        let row = |kind: &&str| format!("- {{group: example.com, kind: {kind}, path: spec.x, value: 0}}\n");
        let text: String = std::iter::once("owners:\n".into()).chain(rows.iter().map(row)).collect();
        kinds.update(&Config::parse(&text).unwrap().table);
        let ours = kinds.now.iter().filter(|(_, (group, _))| group == "example.com");
        ours.map(|(number, (_, kind))| (kind.clone(), *number)).collect()
    }

    #[test]
    fn a_kind_keeps_its_number_and_no_other_ever_has_it() {
        let mut kinds = NumberedKinds::default();
        let first = updated(&mut kinds, &["A", "B"]);
        assert!(kinds.groups().contains("example.com") && kinds.now.contains_key(&first["A"]));
        let second = updated(&mut kinds, &["C", "B"]);
        assert_eq!(second["B"], first["B"]);
        assert!(!first.values().any(|number| *number == second["C"]), "{first:?} {second:?}");
        assert!(!kinds.now.contains_key(&first["A"]));
        let third = updated(&mut kinds, &["A", "C"]);
        assert_eq!((third["A"], third["C"]), (first["A"], second["C"]));
        assert!(updated(&mut kinds, &[]).is_empty() && !kinds.groups().contains("example.com"));
    }
}
