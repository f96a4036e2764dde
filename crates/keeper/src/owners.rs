//! Follows the owners of pods, for the ceilings that people note on them. Which of their kinds a cluster has is looked
//! at again and again: most have few of them, and some come later.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
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
use tracing::{debug, warn};

use crate::{
    api::{ApiError, call, of_kind},
    clock::ServerClock,
    cluster::Cluster,
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
    table: Arc<OwnerTable>,
    clock: ServerClock,
}

impl Store<Owner> for OwnerStore {
    type Key = Uid;

    fn key(metadata: &ObjectMeta) -> Uid {
        Uid::of(metadata.uid.as_deref().unwrap_or_default())
    }

    fn apply(&mut self, owner: Owner) {
        // a Deployment's annotations are copied to its ReplicaSets
        if !controller(&owner.metadata).is_some_and(|above| self.table.knows(above)) {
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
    pub table: Arc<OwnerTable>,
}

impl Owners {
    /// Follows all kinds of the table that the cluster has, for ever. Ready when those are known that it has at first.
    pub async fn follow(self, readiness: Readiness, looked: Awaited) {
        let kinds: Vec<(String, String)> =
            self.table.ancestors().map(|(group, kind, _)| (group.to_owned(), kind.to_owned())).collect();
        let groups: BTreeSet<&str> = kinds.iter().map(|(group, _)| group.as_str()).collect();
        let mut followed = HashSet::new();
        let mut follows = FuturesUnordered::new();
        let mut readiness = Some(readiness);
        let mut trouble = None;
        let mut next = Box::pin(look(&self.client, &groups, Duration::ZERO));
        loop {
            let Look { served, failed } = tokio::select! {
                looked = &mut next => looked,
                Some(source) = follows.next() => {
                    followed.remove(&source);
                    continue;
                }
            };
            // nobody waits for those that come later
            let readiness = readiness.take().unwrap_or_default();
            for (source, resource) in of_table(&served, &kinds) {
                if followed.insert(source) {
                    debug!(kind = resource.kind, api_version = resource.api_version, "Following owners");
                    follows.push(self.follow_kind(source, resource, &readiness));
                }
            }
            // of those that couldn't be asked for, only the ceilings that people have noted on them are late
            looked.done();
            let after = if failed.is_some() { AFTER_FAILURE } else { BETWEEN_LOOKS };
            if let Some(error) = failed.as_ref().filter(|_| trouble != failed) {
                warn!(error, "Failed to ask which kinds of owners the cluster has");
            }
            trouble = failed;
            next.set(look(&self.client, &groups, after));
        }
    }

    /// Until the kind is gone; then returns its place in the list.
    fn follow_kind(
        &self,
        source: u16,
        resource: ApiResource,
        readiness: &Readiness,
    ) -> impl Future<Output = u16> + use<> {
        let synced = readiness.awaiting(format!("{}.{}", resource.plural, resource.group));
        let api: Api<Owner> = Api::all_with(self.client.clone(), &resource);
        let (cluster, clock, table) = (self.cluster.clone(), self.clock.clone(), Arc::clone(&self.table));
        let store = OwnerStore { cluster, source, resource, table, clock };
        async move {
            follow_while_served(api, watcher::Config::default(), synced, store).await;
            source
        }
    }
}

/// What the API server has of some groups, and why it couldn't say it of all.
struct Look {
    served: HashMap<String, ApiGroup>,
    failed: Option<String>,
}

async fn look(client: &Client, groups: &BTreeSet<&str>, after: Duration) -> Look {
    tokio::time::sleep(after).await;
    let mut look = Look { served: HashMap::new(), failed: None };
    let all = match call(client.list_api_groups()).await {
        Ok(all) => all,
        Err(error) => return Look { failed: Some(with_causes(&error)), ..look },
    };
    let there = all.groups.iter().map(|group| group.name.as_str());
    for group in there.filter(|group| groups.contains(group)) {
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

/// The kinds that there are, by their place in the list.
fn of_table<'l>(
    served: &'l HashMap<String, ApiGroup>,
    kinds: &'l [(String, String)],
) -> impl Iterator<Item = (u16, ApiResource)> + 'l {
    (0u16..).zip(kinds).filter_map(|(source, (group, kind))| {
        let (resource, _) = of_kind(served.get(group)?, kind)?;
        Some((source, resource))
    })
}
