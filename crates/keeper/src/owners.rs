//! Follows the owners of pods, for the ceilings that people note on them. Which of their kinds a cluster has is looked
//! at again and again: most have few of them, and some come later. So is what the configuration adds to them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use futures::stream::{FuturesUnordered, StreamExt};
use kube::{
    Api, Client,
    core::{ApiResource, ObjectMeta},
    discovery::{self, ApiGroup},
    runtime::watcher,
};
use tenure_index::Uid;
use tenure_policy::owners::OwnerTable;
use tenure_service::{
    log::with_causes,
    readiness::{Awaited, Readiness},
    watch::{Store, follow_while_served},
};
use tenure_types::projection::{Owner, controller};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    api::{ApiError, call, of_kind},
    clock::ServerClock,
    cluster::Cluster,
    config::Current,
};

/// How long a kind that comes later goes unseen, at most.
const BETWEEN_LOOKS: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Owners of one kind.
#[derive(Debug)]
struct OwnerStore {
    cluster: Cluster,
    source: u16,
    resource: ApiResource,
    config: Current,
    clock: ServerClock,
}

impl Store<Owner> for OwnerStore {
    type Key = Uid;

    fn key(metadata: &ObjectMeta) -> Uid {
        Uid::of(metadata.uid.as_deref().unwrap_or_default())
    }

    fn apply(&mut self, owner: Owner) {
        // a Deployment's annotations are copied to its ReplicaSets
        if !controller(&owner.metadata).is_some_and(|above| self.config.get().table.knows(above)) {
            self.cluster.recent.apply(&self.resource, &owner.metadata, self.clock.now());
        }
        self.cluster.change(|index| index.apply_owner(self.source, &owner.metadata));
    }

    fn delete(&mut self, uid: &Uid) {
        self.cluster.recent.forget(*uid);
        self.cluster.change(|index| index.delete_owner(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.cluster.change(|index| index.retain_owners(self.source, uids));
    }
}

/// Follows owners.
pub struct Owners {
    pub client: Client,
    pub cluster: Cluster,
    pub clock: ServerClock,
    pub config: Current,
}

impl Owners {
    /// Follows all kinds of the table that the cluster has, for ever. Ready when those are known that it has at first.
    pub async fn follow(self, readiness: Readiness, looked: Awaited) {
        let mut config = self.config.clone();
        let mut kinds = Kinds::default();
        kinds.update(&config.get().table);
        let mut followed: HashMap<u16, CancellationToken> = HashMap::new();
        let mut follows = FuturesUnordered::new();
        let mut readiness = Some(readiness);
        let mut trouble = None;
        let mut next = Box::pin(look(&self.client, kinds.groups(), Duration::ZERO));
        loop {
            let Look { served, failed } = tokio::select! {
                looked = &mut next => looked,
                Some(source) = follows.next() => {
                    followed.remove(&source);
                    continue;
                }
                () = config.changed() => {
                    kinds.update(&config.get().table);
                    followed.iter().filter(|(source, _)| !kinds.have(**source)).for_each(|(_, end)| end.cancel());
                    next.set(look(&self.client, kinds.groups(), Duration::ZERO));
                    continue;
                }
            };
            // nobody waits for those that come later
            let readiness = readiness.take().unwrap_or_default();
            for (source, resource) in kinds.of(&served) {
                followed.entry(source).or_insert_with(|| {
                    debug!(kind = resource.kind, api_version = resource.api_version, "Following owners");
                    let end = CancellationToken::new();
                    follows.push(self.follow_kind(source, resource, &readiness, end.clone()));
                    end
                });
            }
            // of those that couldn't be asked for, only the ceilings that people have noted on them are late
            looked.done();
            let after = if failed.is_some() { AFTER_FAILURE } else { BETWEEN_LOOKS };
            if let Some(error) = failed.as_ref().filter(|_| trouble != failed) {
                warn!(error, "Failed to ask which kinds of owners the cluster has");
            }
            trouble = failed;
            next.set(look(&self.client, kinds.groups(), after));
        }
    }

    /// Until the kind is gone, or nobody is interested in it any more; then returns its number.
    fn follow_kind(
        &self,
        source: u16,
        resource: ApiResource,
        readiness: &Readiness,
        end: CancellationToken,
    ) -> impl Future<Output = u16> + use<> {
        let synced = readiness.awaiting(format!("{}.{}", resource.plural, resource.group));
        let api: Api<Owner> = Api::all_with(self.client.clone(), &resource);
        let (cluster, clock, config) = (self.cluster.clone(), self.clock.clone(), self.config.clone());
        let store = OwnerStore { cluster: cluster.clone(), source, resource, config, clock };
        async move {
            let follow = follow_while_served(api, watcher::Config::default(), synced.clone(), store);
            if end.run_until_cancelled(follow).await.is_none() {
                synced.done();
                cluster.change(|index| index.retain_owners(source, &HashSet::new()));
            }
            source
        }
    }
}

/// What the API server has of some groups, and why it couldn't say it of all.
struct Look {
    served: HashMap<String, ApiGroup>,
    failed: Option<String>,
}

async fn look(client: &Client, groups: BTreeSet<String>, after: Duration) -> Look {
    tokio::time::sleep(after).await;
    let mut look = Look { served: HashMap::new(), failed: None };
    let all = match call(client.list_api_groups()).await {
        Ok(all) => all,
        Err(error) => return Look { failed: Some(with_causes(&error)), ..look },
    };
    let there = all.groups.iter().map(|group| group.name.as_str());
    for group in there.filter(|group| groups.contains(*group)) {
        match call(discovery::group(client, group)).await {
            Ok(found) => {
                look.served.insert(group.to_owned(), found);
            }
            // it has just gone
            Err(ApiError::NotFound) => {}
            Err(error) => look.failed = Some(format!("{group}: {}", with_causes(&error))),
        }
    }
    look
}

/// Kinds that are looked for. Each has a number, which it keeps when it is looked for no longer, so that another never
/// takes its place.
#[derive(Debug, Default)]
struct Kinds {
    numbers: HashMap<GroupKind, u16>,
    now: BTreeMap<u16, GroupKind>,
}

type GroupKind = (String, String);

impl Kinds {
    /// From now on those of this table are looked for.
    fn update(&mut self, table: &OwnerTable) {
        let Self { numbers, now } = self;
        let number = |(group, kind, _): (&str, &str, bool)| {
            let kind = (group.to_owned(), kind.to_owned());
            let next = u16::try_from(numbers.len()).ok()?;
            Some((*numbers.entry(kind.clone()).or_insert(next), kind))
        };
        *now = table.ancestors().filter_map(number).collect();
    }

    fn have(&self, number: u16) -> bool {
        self.now.contains_key(&number)
    }

    fn groups(&self) -> BTreeSet<String> {
        self.now.values().map(|(group, _)| group.clone()).collect()
    }

    /// Those that there are, by their numbers.
    fn of(&self, served: &HashMap<String, ApiGroup>) -> impl Iterator<Item = (u16, ApiResource)> {
        self.now.iter().filter_map(|(number, (group, kind))| {
            let (resource, _) = of_kind(served.get(group)?, kind)?;
            Some((*number, resource))
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_policy::config::Config;

    use super::*;

    fn updated(kinds: &mut Kinds, rows: &[&str]) -> BTreeMap<String, u16> {
        let row = |kind: &&str| format!("- {{group: example.com, kind: {kind}, path: spec.x, value: 0}}\n");
        let text: String = std::iter::once("owners:\n".into()).chain(rows.iter().map(row)).collect();
        kinds.update(&Config::parse(&text).unwrap().table);
        let ours = kinds.now.iter().filter(|(_, (group, _))| group == "example.com");
        ours.map(|(number, (_, kind))| (kind.clone(), *number)).collect()
    }

    #[test]
    fn a_kind_keeps_its_number_and_no_other_ever_has_it() {
        let mut kinds = Kinds::default();
        let first = updated(&mut kinds, &["A", "B"]);
        assert!(kinds.groups().contains("example.com") && kinds.have(first["A"]));
        let second = updated(&mut kinds, &["C", "B"]);
        assert_eq!(second["B"], first["B"]);
        assert!(!first.values().any(|number| *number == second["C"]), "{first:?} {second:?}");
        assert!(!kinds.have(first["A"]));
        let third = updated(&mut kinds, &["A", "C"]);
        assert_eq!((third["A"], third["C"]), (first["A"], second["C"]));
        assert!(updated(&mut kinds, &[]).is_empty() && !kinds.groups().contains("example.com"));
    }
}
