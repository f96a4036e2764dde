//! Follows `PodGroup`s of all kinds. Those of the two families of queues are waited for, as they say in which queue their
//! pods are; of the others, those that the cluster has.

use std::collections::{BTreeSet, HashSet};

use futures::future::{BoxFuture, FutureExt, join_all};
use kube::{
    Api, Client,
    core::{ApiResource, ObjectMeta},
    runtime::watcher,
};
use tenure_service::{
    readiness::{Awaited, Readiness},
    watch::{Store, follow, follow_while_served},
};
use tenure_types::podgroup::{PodGroup, PodGroupKind};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::Cluster,
    served::{Kinds, Served, follow_served},
};

/// Those that are waited for.
const FAMILIES: [PodGroupKind; 2] = [PodGroupKind::Runai, PodGroupKind::Tensorstack];

/// `PodGroup`s of one kind.
#[derive(Debug)]
struct GroupStore {
    cluster: Cluster,
    kind: PodGroupKind,
}

impl Store<PodGroup> for GroupStore {
    type Key = (String, String);

    fn key(metadata: &ObjectMeta) -> (String, String) {
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }

    fn apply(&mut self, group: PodGroup) {
        self.cluster.change(|index| index.apply_group(self.kind, &group));
    }

    fn delete(&mut self, (namespace, name): &(String, String)) {
        self.cluster.change(|index| index.delete_group(self.kind, namespace, name));
    }

    fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.cluster.change(|index| index.retain_groups(self.kind, keys));
    }
}

/// Follows `PodGroup`s.
#[derive(Clone)]
pub struct Groups {
    pub client: Client,
    pub cluster: Cluster,
}

impl Groups {
    /// For ever. Ready when all are known that the cluster has at first.
    pub async fn follow_all(self, readiness: Readiness, looked: Awaited) {
        let families = FAMILIES.map(|kind| {
            let resource = kind.resource(kind.versions().first().copied().unwrap_or_default());
            let synced = readiness.awaiting(name(&resource));
            let api = Api::all_with(self.client.clone(), &resource);
            follow(api, watcher::Config::default(), synced, self.store(kind))
        });
        let others = follow_served(self.client.clone(), self, readiness, looked);
        tokio::join!(join_all(families), others);
    }

    fn store(&self, kind: PodGroupKind) -> GroupStore {
        GroupStore { cluster: self.cluster.clone(), kind }
    }
}

fn name(resource: &ApiResource) -> String {
    format!("{}.{}", resource.plural, resource.group)
}

fn others() -> impl Iterator<Item = PodGroupKind> {
    PodGroupKind::ALL.into_iter().filter(|kind| !FAMILIES.contains(kind))
}

impl Kinds for Groups {
    type Key = PodGroupKind;

    const WHAT: &str = "PodGroups";

    // without its group a workload may seem to have started earlier than it has
    const PATIENCE: u32 = 5;

    fn groups(&self) -> BTreeSet<String> {
        others().map(|kind| kind.group().to_owned()).collect()
    }

    fn served(&self, served: &Served) -> Vec<(PodGroupKind, ApiResource)> {
        let version = |kind: PodGroupKind| {
            let group = served.get(kind.group())?;
            let resources = kind.versions().iter().flat_map(|version| group.versioned_resources(version));
            let (resource, _) = resources.into_iter().find(|(resource, _)| resource.kind == "PodGroup")?;
            Some((kind, resource))
        };
        others().filter_map(version).collect()
    }

    fn have(&self, _: PodGroupKind) -> bool {
        true
    }

    async fn changed(&mut self) {
        std::future::pending::<()>().await;
    }

    fn follow(
        &self,
        kind: PodGroupKind,
        resource: ApiResource,
        readiness: &Readiness,
        end: CancellationToken,
    ) -> BoxFuture<'static, PodGroupKind> {
        let synced = readiness.awaiting(name(&resource));
        let api = Api::all_with(self.client.clone(), &resource);
        let follow = follow_while_served(api, watcher::Config::default(), synced, self.store(kind));
        async move {
            end.run_until_cancelled(follow).await;
            kind
        }
        .boxed()
    }
}
