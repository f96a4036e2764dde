//! Reads objects from an API server.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Error, Result, anyhow, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Client, api::ListParams};
use serde_json::Value;
use tenure_policy::{
    expiry::Family,
    kueue::{self, Lookup},
};
use tenure_types::{
    extension, keys,
    podgroup::PodGroupKind,
    projection::{Owner, Pod, WholeObject},
};

use super::{NamespacedName, Snapshot, Wanted, group_names};
use crate::{
    age,
    input::Document,
    kinds::{ResourceKind, ResourceKinds},
    list::ended::ended,
    pages::{Pages, objects},
    server::{Clock, explain, is_forbidden},
    target::is_segment,
    tell::{warn, with_causes},
};

/// Requests under way at once.
pub const AT_ONCE: usize = 8;

/// Selects pods that have not ended: there is nothing to say of the others, and old clusters are full of them.
pub const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A kind that can't be listed.
pub struct NotListed {
    pub kind: ResourceKind,
    pub error: Error,
    /// For want of a right.
    pub is_forbidden: bool,
}

/// A part of a list.
enum Page {
    Whole(Vec<Document>),
    Metadata(Vec<ObjectMeta>),
}

/// A cluster, with its kinds and its clock.
pub struct ClusterReader {
    pub client: Client,
    /// The namespace that is asked for.
    pub namespace: String,
    pub kinds: ResourceKinds,
    pub clock: Clock,
}

impl ClusterReader {
    pub async fn discover(client: Client, namespace: String) -> kube::Result<Self> {
        let kinds = ResourceKinds::discover(&client).await?;
        let clock = Clock::of(&client).await;
        Ok(Self { client, namespace, kinds, clock })
    }

    /// The objects of a kind in a namespace, or all of them, page by page.
    fn documents(&self, kind: &ResourceKind, namespace: Option<&str>) -> Pages<Document> {
        let pages = objects(kind.api(&self.client, namespace), None);
        let kind = kind.clone();
        let documents =
            move |page: Vec<WholeObject>| page.into_iter().map(|object| document(&kind, object)).collect();
        pages.map_ok(documents).boxed()
    }

    /// The same without all but their metadata.
    fn metadata(&self, kind: &ResourceKind, namespace: Option<&str>) -> Pages<ObjectMeta> {
        let pages = objects(kind.metadata_api(&self.client, namespace), None);
        pages.map_ok(|page| page.into_iter().map(|object: Owner| object.metadata).collect()).boxed()
    }

    /// Pods of a namespace, or of all, page by page.
    pub fn pods(&self, namespace: Option<&str>, fields: Option<&'static str>) -> Pages<Pod> {
        let client = self.client.clone();
        let api = match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        objects(api, fields)
    }

    /// An owner of something in a namespace; none if there is no such object, or no such kind.
    pub async fn look_up(&self, namespace: &str, owner: &OwnerReference) -> kube::Result<Option<ObjectMeta>> {
        let kind = self.kinds.version(&owner.api_version, &owner.kind).filter(|_| is_segment(&owner.name));
        let Some(api) = kind.map(|kind| kind.metadata_api(&self.client, Some(namespace))) else {
            return Ok(None);
        };
        Ok(api.get_opt(&owner.name).await?.map(|found| found.metadata))
    }

    /// Kueue's Workloads that are looked for; none where there is no Kueue, or where they may not be read.
    pub async fn workloads(&self, namespace: &str, lookup: Lookup<'_>) -> Result<Vec<Value>> {
        let Some(kind) = self.kinds.find(kueue::GROUP, kueue::WORKLOAD) else { return Ok(Vec::new()) };
        let api = kind.api(&self.client, Some(namespace));
        let found = match lookup {
            Lookup::Named(name) if !is_segment(name) => return Ok(Vec::new()),
            Lookup::Named(name) => api.get_opt(name).await.map(Vec::from_iter),
            Lookup::Labelled(uid) => {
                let labels = format!("{}={uid}", keys::KUEUE_JOB_UID_LABEL);
                api.list(&ListParams::default().labels(&labels)).await.map(|list| list.items)
            }
        };
        match found {
            Ok(found) => Ok(found.into_iter().map(|object| object.value).collect()),
            Err(error) if is_forbidden(&error) => {
                warn(&format!("what Kueue runs isn't known: {}", with_causes(&cannot_list(kind, error))));
                Ok(Vec::new())
            }
            Err(error) => Err(cannot_list(kind, error)),
        }
    }

    /// All objects of a kind.
    pub async fn list(&self, kind: &ResourceKind) -> Result<Vec<Document>> {
        self.documents(kind, None).try_concat().await.map_err(|error| cannot_list(kind, error))
    }

    /// The names of the objects of a kind in a namespace, or of all of them.
    pub async fn names(&self, kind: &ResourceKind, namespace: Option<&str>) -> Result<Vec<String>> {
        let found =
            self.metadata(kind, namespace).try_concat().await.map_err(|error| cannot_list(kind, error))?;
        Ok(found.into_iter().filter_map(|metadata| metadata.name).collect())
    }

    /// Lists kinds in their namespaces, whole objects of some and the metadata of others, and adds the objects.
    /// Returns the kinds that can't be listed, with the errors, in the order of the request.
    pub async fn read<'k>(
        &self,
        whole: impl Iterator<Item = (&'k ResourceKind, Option<&str>)>,
        metadata: impl Iterator<Item = (&'k ResourceKind, Option<&str>)>,
        snapshot: &mut Snapshot,
    ) -> Vec<NotListed> {
        let whole = whole.map(|(kind, of)| (kind, self.documents(kind, of).map_ok(Page::Whole).boxed()));
        let metadata =
            metadata.map(|(kind, of)| (kind, self.metadata(kind, of).map_ok(Page::Metadata).boxed()));
        let lists = whole.chain(metadata).enumerate();
        let lists = lists.map(|(number, (kind, pages))| pages.map(move |page| (number, kind, page)));
        let mut lists = stream::iter(lists).flatten_unordered(AT_ONCE);
        let mut failed = BTreeMap::new();
        while let Some((number, kind, page)) = lists.next().await {
            match page {
                Ok(Page::Whole(found)) => snapshot.take(&found),
                Ok(Page::Metadata(found)) => snapshot.take_metadata(kind, found),
                Err(error) => {
                    snapshot.owners.not_listed(&kind.resource.group, &kind.resource.kind);
                    let is_forbidden = is_forbidden(&error);
                    let error = cannot_list(kind, error);
                    failed.insert(number, NotListed { kind: kind.clone(), error, is_forbidden });
                }
            }
        }
        failed.into_values().collect()
    }

    /// Reads the objects that an explanation needs.
    pub(super) async fn explain(&self, wanted: &Wanted<'_>, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.take_pods(self.with_groups(wanted.pods).await?);
        if let Some(namespace) = wanted.namespace {
            let pods = self.pods(Some(namespace), Some(LIVE)).try_concat().await.map_err(explain)?;
            snapshot.take_pods(pods);
        }
        let kinds = &self.kinds;
        let classes = kinds.find("scheduling.k8s.io", "PriorityClass");
        let lists = kinds.queues(Family::Runai).into_iter().chain(classes).map(|kind| (kind, None));
        let of_t9k = kinds.queues(Family::Tensorstack).zip(wanted.t9k_system_namespace);
        let is_named = |of: PodGroupKind| snapshot.pods.values().any(|pod| of.named_by(pod).is_some());
        let groups = kinds.pod_groups().filter(|(of, _)| *of == PodGroupKind::Runai || is_named(*of));
        let groups: Vec<&ResourceKind> = groups.map(|(_, kind)| kind).collect();
        let of_pods = wanted.pods.iter().map(|(namespace, _)| namespace.as_str());
        let namespaces: BTreeSet<&str> = of_pods.chain(wanted.namespace).collect();
        let extensions = kinds.find(extension::GROUP, "Extension");
        let groups = groups.into_iter().chain(extensions);
        let groups: Vec<&ResourceKind> = groups.collect();
        let groups = namespaces.iter().flat_map(|of| groups.iter().map(|kind| (*kind, Some(*of))));
        // it matters on which nodes pods are
        let needs_nodes = !snapshot.floors.node_pools.is_empty() && wanted.floors.node_pool.is_none();
        let nodes = kinds.find("", "Node").filter(|_| needs_nodes).map(|kind| (kind, None));
        let owners = self.list_owners(wanted.namespace, snapshot);
        let metadata = nodes.into_iter().chain(owners);
        let lists = lists.chain(groups).chain(of_t9k.map(|(kind, place)| (kind, Some(place))));
        for NotListed { kind, error, is_forbidden: _ } in self.read(lists, metadata, snapshot).await {
            match (kind.resource.group.as_str(), kind.resource.kind.as_str()) {
                // a verdict would be wrong, and not only incomplete
                ("scheduling.run.ai", _) | (_, "PriorityClass") => return Err(error),
                (_, "Node") => warn(&format!("no node pool is known: {}", with_causes(&error))),
                _ => warn(&with_causes(&error)),
            }
        }
        Ok(())
    }

    /// Returns an error about an object; if it no longer exists, with Tenure's last action on it.
    pub(super) async fn missing(&self, namespace: &str, workload: &str, error: kube::Error) -> Error {
        let is_gone = matches!(&error, kube::Error::Api(status) if status.code == 404);
        let error = explain(error);
        if !is_gone {
            return error;
        }
        // without the right to read events, the error says nothing more
        let ended = ended(self, Some(namespace)).await.unwrap_or_default();
        match ended.into_iter().rfind(|of| of.workload == workload) {
            Some(of) => anyhow!("{error}\n{} at {}: {}", of.action, age::moment(of.at), of.message),
            None => error,
        }
    }

    /// The kinds of owners that are listed in a namespace, which are then known.
    fn list_owners<'k, 'n>(
        &'k self,
        namespace: Option<&'n str>,
        snapshot: &mut Snapshot,
    ) -> Vec<(&'k ResourceKind, Option<&'n str>)> {
        let Some(namespace) = namespace else { return Vec::new() };
        let Snapshot { table, owners, .. } = snapshot;
        for (group, kind, _) in table.ancestors() {
            owners.listed(group, kind);
        }
        let kinds = table.ancestors().filter_map(|(group, kind, _)| self.kinds.find(group, kind));
        kinds.map(|kind| (kind, Some(namespace))).collect()
    }

    /// The pods that were asked for, and the others of their groups.
    async fn with_groups(&self, wanted: &[NamespacedName]) -> Result<Vec<Pod>> {
        let (mut pods, mut groups) = (Vec::new(), HashSet::new());
        let named = |pod: &Pod, namespace: &str| {
            let key = |(kind, name): (_, &str)| (kind, namespace.to_owned(), name.to_owned());
            group_names(pod).map(key).collect::<Vec<_>>()
        };
        for (namespace, name) in wanted {
            ensure!(is_segment(name) && is_segment(namespace), "{namespace}/{name} can't be a pod");
            let pod = match Api::<Pod>::namespaced(self.client.clone(), namespace).get(name).await {
                Ok(pod) => pod,
                Err(error) => return Err(self.missing(namespace, &format!("pod/{name}"), error).await),
            };
            groups.extend(named(&pod, namespace));
            pods.push(pod);
        }
        let crowded: BTreeSet<&str> = groups.iter().map(|(_, namespace, _)| namespace.as_str()).collect();
        for namespace in crowded {
            let is_wanted = |pod: &Pod| named(pod, namespace).iter().any(|group| groups.contains(group));
            let found = self.pods(Some(namespace), None).try_fold(Vec::new(), |mut kept, page| {
                kept.extend(page.into_iter().filter(is_wanted));
                std::future::ready(Ok(kept))
            });
            pods.extend(found.await.map_err(explain)?);
        }
        Ok(pods)
    }
}

fn cannot_list(kind: &ResourceKind, error: kube::Error) -> Error {
    explain(error).context(format!("can't list {}", kind.plural()))
}

/// Returns an item of a list as a document. Items don't name their own kind.
fn document(kind: &ResourceKind, object: WholeObject) -> Document {
    Document {
        source: format!("{}/{}", kind.singular(), object.metadata.name.as_deref().unwrap_or_default()),
        api_version: kind.resource.api_version.clone(),
        kind: kind.resource.kind.clone(),
        value: object.value,
    }
}
