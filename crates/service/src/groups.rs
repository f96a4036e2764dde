//! Follows `PodGroup`s of all kinds. The kinds of the two families of queues are always awaited.
//! Other kinds are followed if the cluster has them. Called by the keeper, and by a webhook with a
//! scheduler extender or a guard, each with stores of its own.

use std::collections::BTreeSet;

use futures::future::{BoxFuture, FutureExt};
use kube::{Api, Client, core::ApiResource, runtime::watcher};
use tenure_types::podgroup::{PodGroup, PodGroupKind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    readiness::{AwaitedCondition, ProcessReadiness},
    served::{Kinds, ServedApiGroups, follow_served},
    watch::{Store, follow, follow_while_served},
};

/// The kinds that are followed from the start. A kind that the API server lacks counts as a kind
/// without objects.
const FAMILIES: [PodGroupKind; 2] = [PodGroupKind::Runai, PodGroupKind::Tensorstack];

/// Follows `PodGroup`s, with a store for each kind. Never returns. `listed` is done once the API
/// server was asked about the other kinds. The process is ready when all first groups are known.
pub async fn follow_groups<S>(
    client: Client,
    store: impl Fn(PodGroupKind) -> S + Send + Sync + 'static,
    readiness: ProcessReadiness,
    listed: AwaitedCondition,
) where
    S: Store<PodGroup> + Send + 'static,
    S::Key: Send,
{
    let family = |kind: PodGroupKind| {
        let resource = kind.resource(kind.versions().first().copied().unwrap_or_default());
        let synced = readiness.awaiting(name(&resource));
        let api = Api::all_with(client.clone(), &resource);
        follow(api, watcher::Config::default(), synced, store(kind))
    };
    let families: JoinSet<()> = FAMILIES.into_iter().map(family).collect();
    let groups = PodGroupKinds { client: client.clone(), store };
    tokio::join!(families.join_all(), follow_served(client, groups, readiness, listed));
}

/// The kinds that aren't of the two families.
struct PodGroupKinds<F> {
    client: Client,
    store: F,
}

/// Returns the name of a kind as `kubectl` takes it: plural and group.
fn name(resource: &ApiResource) -> String {
    format!("{}.{}", resource.plural, resource.group)
}

/// Returns the kinds that are followed if the cluster has them.
fn others() -> impl Iterator<Item = PodGroupKind> {
    PodGroupKind::ALL.into_iter().filter(|kind| !FAMILIES.contains(kind))
}

impl<F, S> Kinds for PodGroupKinds<F>
where
    F: Fn(PodGroupKind) -> S,
    S: Store<PodGroup> + Send + 'static,
    S::Key: Send,
{
    type Key = PodGroupKind;

    const WHAT: &str = "PodGroups";

    const MEANWHILE: &str = "their workloads may seem to have started earlier than they have";

    const PATIENCE: u32 = 5;

    fn groups(&self) -> BTreeSet<String> {
        others().map(|kind| kind.group().to_owned()).collect()
    }

    fn served(&self, served: &ServedApiGroups) -> Vec<(PodGroupKind, ApiResource)> {
        let version = |kind: PodGroupKind| {
            let group = served.get(kind.group())?;
            let resources = kind.versions().iter().flat_map(|version| group.versioned_resources(version));
            let (resource, _) = resources.into_iter().find(|(resource, _)| resource.kind == "PodGroup")?;
            Some((kind, resource))
        };
        others().filter_map(version).collect()
    }

    fn follow(
        &self,
        kind: PodGroupKind,
        resource: ApiResource,
        readiness: &ProcessReadiness,
        end: CancellationToken,
    ) -> BoxFuture<'static, PodGroupKind> {
        let synced = readiness.awaiting(name(&resource));
        let api = Api::all_with(self.client.clone(), &resource);
        let follow = follow_while_served(api, synced, (self.store)(kind));
        async move {
            end.run_until_cancelled(follow).await;
            kind
        }
        .boxed()
    }
}
