//! Reads from an API server what a scene is made of.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Result, ensure};
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Client, core::DynamicObject};
use serde_json::Value;
use tenure_types::{podgroup::PodGroupKind, projection::Pod};

use super::{Found, GroupKey, Key, Owners, Wanted, group_names};
use crate::{
    connect::{ConnectArgs, Connection},
    input::Document,
    kinds::{Kind, Kinds},
    pages::pages,
    server::{Clock, explain},
    target::is_segment,
    tell::{warn, with_causes},
};

/// The group of T9k's queues.
pub const TENSORSTACK: &str = "scheduler.tensorstack.dev";

/// Tenure's version of a queue has more to say than KAI's.
const RUNAI_VERSIONS: [&str; 2] = ["scheduling.run.ai/v3alpha1", "scheduling.run.ai/v2"];

/// All queues of the run.ai family.
pub async fn queue_documents(connect: ConnectArgs) -> Result<Vec<Document>> {
    let Connection { client, .. } = connect.connect().await?;
    let kinds = Kinds::discover(&client).await.map_err(explain)?;
    let Some(kind) = runai_queues(&kinds) else {
        warn("the cluster has no queues.scheduling.run.ai");
        return Ok(Vec::new());
    };
    Reader(&client).list(kind, None).await
}

/// What is wanted, who owns it, and what time it is there.
pub async fn read(connect: ConnectArgs, wanted: &Wanted<'_>) -> Result<(Found, Owners, Timestamp)> {
    let Connection { client, .. } = connect.connect().await?;
    let clock = Clock::of(&client).await;
    let kinds = Kinds::discover(&client).await.map_err(explain)?;
    let reader = Reader(&client);
    let mut found = Found { pods: reader.pods(wanted.pods).await?, ..Found::default() };
    let documents = &mut found.documents;
    // without these a verdict could be wrong, and not only incomplete
    for kind in [runai_queues(&kinds), kinds.find("scheduling.k8s.io", "PriorityClass")].into_iter().flatten()
    {
        documents.extend(reader.list(kind, None).await?);
    }
    let namespaces: BTreeSet<&str> = wanted.pods.iter().map(|(namespace, _)| namespace.as_str()).collect();
    for namespace in &namespaces {
        for (of, kind) in kinds.pod_groups() {
            if of == PodGroupKind::Runai {
                documents.extend(reader.list(kind, Some(namespace)).await?);
            } else if found.pods.iter().any(|pod| of.named_by(pod).is_some()) {
                reader.if_allowed(Some(kind), namespace, documents).await;
            }
        }
    }
    if let Some(place) = wanted.t9k_system_namespace {
        reader.if_allowed(kinds.find(TENSORSTACK, "Queue"), place, documents).await;
    }
    if wanted.nodes {
        found.nodes = reader.nodes(kinds.find("", "Node")).await;
    }
    Ok((found, Owners::Cluster(client, kinds), clock.now()))
}

fn runai_queues(kinds: &Kinds) -> Option<&Kind> {
    let of = |api_version: &str| {
        kinds.of(&OwnerReference {
            api_version: api_version.into(),
            kind: "Queue".into(),
            ..OwnerReference::default()
        })
    };
    RUNAI_VERSIONS.into_iter().find_map(of)
}

/// The groups that a pod of a namespace names.
fn group_keys(pod: &Pod, namespace: &str) -> impl Iterator<Item = GroupKey> {
    group_names(pod).map(move |(kind, name)| (kind, (namespace.to_owned(), name.to_owned())))
}

struct Reader<'c>(&'c Client);

impl Reader<'_> {
    /// The pods that were asked for, and the others of their groups.
    async fn pods(&self, wanted: &[Key]) -> Result<Vec<Pod>> {
        let mut pods: Vec<Pod> = Vec::new();
        let mut groups: HashSet<GroupKey> = HashSet::new();
        for (namespace, name) in wanted {
            ensure!(is_segment(name) && is_segment(namespace), "{namespace}/{name} can't be a pod");
            let pod = Api::<Pod>::namespaced(self.0.clone(), namespace).get(name).await.map_err(explain)?;
            groups.extend(group_keys(&pod, namespace));
            pods.push(pod);
        }
        let crowded: BTreeSet<&str> = groups.iter().map(|(_, (namespace, _))| namespace.as_str()).collect();
        for namespace in crowded {
            let api: Api<Pod> = Api::namespaced(self.0.clone(), namespace);
            let is_wanted = |pod: &Pod| group_keys(pod, namespace).any(|group| groups.contains(&group));
            let found = pages(None, |params| {
                let api = api.clone();
                async move { api.list(&params).await }
            });
            let found = found.try_fold(Vec::new(), |mut kept, page| {
                kept.extend(page.into_iter().filter(is_wanted));
                std::future::ready(Ok(kept))
            });
            pods.extend(found.await.map_err(explain)?);
        }
        Ok(pods)
    }

    /// Without them it isn't known in which pool a pod is.
    async fn nodes(&self, kind: Option<&Kind>) -> Vec<ObjectMeta> {
        let Some(kind) = kind else { return Vec::new() };
        let api = kind.api(self.0, None);
        let found = pages(None, |params| {
            let api = api.clone();
            async move { api.list_metadata(&params).await }
        });
        match found.try_concat().await {
            Ok(nodes) => nodes.into_iter().map(|node| node.metadata).collect(),
            Err(error) => {
                warn(&format!("no node pool is known: can't list nodes: {}", with_causes(&explain(error))));
                Vec::new()
            }
        }
    }

    /// What may not be listed is done without, with a warning.
    async fn if_allowed(&self, kind: Option<&Kind>, namespace: &str, documents: &mut Vec<Document>) {
        let Some(kind) = kind else { return };
        match self.list(kind, Some(namespace)).await {
            Ok(found) => documents.extend(found),
            Err(error) => warn(&with_causes(&error)),
        }
    }

    async fn list(&self, kind: &Kind, namespace: Option<&str>) -> Result<Vec<Document>> {
        let api = kind.api(self.0, namespace);
        let found = pages(None, |params| {
            let api = api.clone();
            async move { api.list(&params).await }
        });
        let found = found.try_fold(Vec::new(), |mut documents, page: Vec<DynamicObject>| {
            let read = page.iter().map(|object| document(kind, object).map_err(kube::Error::SerdeError));
            let read: kube::Result<Vec<Document>> = read.collect();
            std::future::ready(read.map(|read| {
                documents.extend(read);
                documents
            }))
        });
        found.await.map_err(|error| explain(error).context(format!("can't list {}", kind.plural())))
    }
}

/// Items of a list don't say what they are.
fn document(kind: &Kind, object: &DynamicObject) -> serde_json::Result<Document> {
    let value: Value = serde_json::to_value(object)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    Ok(Document {
        source: format!("{}/{name}", kind.singular()),
        api_version: kind.resource.api_version.clone(),
        kind: kind.resource.kind.clone(),
        value,
    })
}
