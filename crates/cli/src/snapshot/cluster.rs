//! Reads objects from an API server.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Client, core::DynamicObject};
use tenure_policy::expiry::Family;
use tenure_types::{podgroup::PodGroupKind, projection::Pod};

use super::{Key, Snapshot, Wanted, group_names};
use crate::{
    input::Document,
    kinds::{Kind, Kinds},
    pages::{Pages, objects, pages},
    server::{Clock, explain},
    target::is_segment,
    tell::{warn, with_causes},
};

/// A cluster, with what it has and what time it is there.
pub struct Cluster {
    pub client: Client,
    /// The one that is asked for.
    pub namespace: String,
    pub kinds: Kinds,
    pub clock: Clock,
}

impl Cluster {
    pub async fn discover(client: Client, namespace: String) -> Result<Self> {
        let clock = Clock::of(&client).await;
        let kinds = Kinds::discover(&client).await.map_err(explain)?;
        Ok(Self { client, namespace, kinds, clock })
    }

    /// The objects of a kind in a namespace, or all of them, page by page.
    pub fn documents(&self, kind: &Kind, namespace: Option<&str>) -> Pages<Document> {
        let pages = objects(kind.api(&self.client, namespace), None);
        let kind = kind.clone();
        let documents = move |page: Vec<DynamicObject>| {
            let documents = page.iter().map(|object| document(&kind, object));
            documents.collect::<serde_json::Result<_>>().map_err(kube::Error::SerdeError)
        };
        pages.map(move |page| page.and_then(&documents)).boxed()
    }

    /// The same without all but their metadata.
    pub fn metadata(&self, kind: &Kind, namespace: Option<&str>) -> Pages<ObjectMeta> {
        let api = kind.api(&self.client, namespace);
        let pages = pages(None, move |params| {
            let api = api.clone();
            async move { api.list_metadata(&params).await }
        });
        pages.map_ok(|page| page.into_iter().map(|object| object.metadata).collect()).boxed()
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
    pub fn look_up(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> impl Future<Output = kube::Result<Option<ObjectMeta>>> + use<> {
        let kind = self.kinds.of(owner).filter(|_| is_segment(&owner.name));
        let (api, name) = (kind.map(|kind| kind.api(&self.client, Some(namespace))), owner.name.clone());
        async move {
            let Some(api) = api else { return Ok(None) };
            Ok(api.get_metadata_opt(&name).await?.map(|found| found.metadata))
        }
    }

    pub(super) async fn list(&self, kind: &Kind, namespace: Option<&str>) -> Result<Vec<Document>> {
        let found = self.documents(kind, namespace).try_concat().await;
        found.map_err(|error| explain(error).context(format!("can't list {}", kind.plural())))
    }

    /// Reads what an explanation needs.
    pub(super) async fn explain(&self, wanted: &Wanted<'_>, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.take_pods(self.with_groups(wanted.pods).await?);
        let classes = self.kinds.find("scheduling.k8s.io", "PriorityClass");
        let mut lists = vec![(self.kinds.queues(Family::Runai), None, true), (classes, None, true)];
        let namespaces: BTreeSet<&str> =
            wanted.pods.iter().map(|(namespace, _)| namespace.as_str()).collect();
        for namespace in namespaces {
            let is_named = |of: PodGroupKind| snapshot.pods.values().any(|pod| of.named_by(pod).is_some());
            let groups = self.kinds.pod_groups().map(|(of, kind)| (of == PodGroupKind::Runai, of, kind));
            let groups = groups.filter(|(required, of, _)| *required || is_named(*of));
            lists.extend(groups.map(|(required, _, kind)| (Some(kind), Some(namespace), required)));
        }
        if let Some(place) = wanted.t9k_system_namespace {
            lists.push((self.kinds.queues(Family::Tensorstack), Some(place), false));
        }
        for (kind, namespace, required) in lists {
            let Some(kind) = kind else { continue };
            match self.list(kind, namespace).await {
                Ok(found) => snapshot.take(&found),
                // a verdict would be wrong, and not only incomplete
                Err(error) if required => return Err(error),
                Err(error) => warn(&with_causes(&error)),
            }
        }
        if let Some(kind) = self.kinds.find("", "Node").filter(|_| wanted.nodes) {
            match self.metadata(kind, None).try_concat().await {
                Ok(nodes) => snapshot.take_nodes(nodes),
                Err(error) => {
                    warn(&format!(
                        "no node pool is known: can't list nodes: {}",
                        with_causes(&explain(error))
                    ));
                }
            }
        }
        Ok(())
    }

    /// The pods that were asked for, and the others of their groups.
    async fn with_groups(&self, wanted: &[Key]) -> Result<Vec<Pod>> {
        let (mut pods, mut groups) = (Vec::new(), HashSet::new());
        let named = |pod: &Pod, namespace: &str| {
            let key = |(kind, name): (_, &str)| (kind, namespace.to_owned(), name.to_owned());
            group_names(pod).map(key).collect::<Vec<_>>()
        };
        for (namespace, name) in wanted {
            ensure!(is_segment(name) && is_segment(namespace), "{namespace}/{name} can't be a pod");
            let pod =
                Api::<Pod>::namespaced(self.client.clone(), namespace).get(name).await.map_err(explain)?;
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

/// Items of a list don't say what they are.
fn document(kind: &Kind, object: &DynamicObject) -> serde_json::Result<Document> {
    Ok(Document {
        source: format!("{}/{}", kind.singular(), object.metadata.name.as_deref().unwrap_or_default()),
        api_version: kind.resource.api_version.clone(),
        kind: kind.resource.kind.clone(),
        value: serde_json::to_value(object)?,
    })
}
