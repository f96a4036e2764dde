//! Follows the owners of pods, for the ceilings that people note on them. Which of their kinds a cluster has is looked
//! at again and again: most have few of them, and some come later.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::stream::{FuturesUnordered, StreamExt};
use kube::{
    Api, Client, Discovery,
    core::{ApiResource, ObjectMeta},
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

use crate::{api::call, cluster::Cluster};

/// How long a kind that comes later goes unseen, at most.
const BETWEEN_LOOKS: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Owners of one kind.
#[derive(Debug)]
struct OwnerStore {
    cluster: Cluster,
    source: u16,
    resource: ApiResource,
    table: Arc<OwnerTable>,
}

impl Store<Owner> for OwnerStore {
    type Key = Uid;

    fn key(metadata: &ObjectMeta) -> Uid {
        Uid::of(metadata.uid.as_deref().unwrap_or_default())
    }

    fn apply(&mut self, owner: Owner) {
        // a Deployment's annotations are copied to its ReplicaSets
        if !controller(&owner.metadata).is_some_and(|above| self.table.knows(above)) {
            self.cluster.recent.apply(&self.resource, &owner.metadata);
        }
        self.cluster.change(|index| index.apply_owner(self.source, &owner.metadata));
    }

    fn delete(&mut self, uid: &Uid) {
        self.cluster.change(|index| index.delete_owner(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.cluster.change(|index| index.retain_owners(self.source, uids));
    }
}

/// Follows all kinds of the table that the cluster has, for ever.
pub async fn follow_owners(
    client: Client,
    cluster: Cluster,
    table: OwnerTable,
    readiness: Readiness,
    looked: Awaited,
) {
    let kinds: Vec<(String, String)> =
        table.ancestors().map(|(group, kind, _)| (group.to_owned(), kind.to_owned())).collect();
    let table = Arc::new(table);
    let groups: BTreeSet<&str> = kinds.iter().map(|(group, _)| group.as_str()).collect();
    let groups: Vec<&str> = groups.into_iter().collect();
    let mut followed = HashSet::new();
    let mut follows = FuturesUnordered::new();
    let mut failed = false;
    loop {
        let wait = match call(Discovery::new(client.clone()).filter(&groups).run()).await {
            Ok(found) => {
                failed = false;
                for (source, resource) in served(&found, &kinds) {
                    if followed.insert(source) {
                        debug!(kind = resource.kind, api_version = resource.api_version, "Following owners");
                        follows.push(follow_kind(&client, &cluster, source, resource, &table, &readiness));
                    }
                }
                looked.done();
                BETWEEN_LOOKS
            }
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    warn!(error = with_causes(&error), "Failed to ask which kinds the cluster has");
                }
                AFTER_FAILURE
            }
        };
        let again = tokio::time::sleep(wait);
        tokio::pin!(again);
        loop {
            tokio::select! {
                Some(source) = follows.next() => {
                    followed.remove(&source);
                }
                () = &mut again => break,
            }
        }
    }
}

/// The kinds that there are, by their place in the list.
fn served<'d>(
    found: &'d Discovery,
    kinds: &'d [(String, String)],
) -> impl Iterator<Item = (u16, ApiResource)> + 'd {
    (0u16..).zip(kinds).filter_map(|(source, (group, kind))| {
        let (resource, _) = found.get(group)?.recommended_kind(kind)?;
        Some((source, resource))
    })
}

/// Until the kind is gone; then returns its place in the list.
fn follow_kind(
    client: &Client,
    cluster: &Cluster,
    source: u16,
    resource: ApiResource,
    table: &Arc<OwnerTable>,
    readiness: &Readiness,
) -> impl Future<Output = u16> + use<> {
    let synced = readiness.awaiting(format!("{}.{}", resource.plural, resource.group));
    let api: Api<Owner> = Api::all_with(client.clone(), &resource);
    let store = OwnerStore { cluster: cluster.clone(), source, resource, table: Arc::clone(table) };
    async move {
        follow_while_served(api, watcher::Config::default(), synced, store).await;
        source
    }
}
