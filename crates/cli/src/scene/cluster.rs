//! Reads from an API server what a scene is made of.

use std::collections::BTreeSet;

use anyhow::Result;
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Client, core::DynamicObject};
use serde_json::Value;
use tenure_types::keys;

use super::{Key, Owners, Wanted};
use crate::{
    args::{tell, with_causes},
    connect::{ConnectArgs, Connection},
    input::Document,
    kinds::{Kind, Kinds},
    pages::pages,
    server::{Clock, explain},
    target::is_segment,
};

const RUNAI: &str = "scheduling.run.ai";
const TENSORSTACK: &str = "scheduler.tensorstack.dev";

/// Tenure's version of a queue has more to say than KAI's.
const RUNAI_VERSIONS: [&str; 2] = ["scheduling.run.ai/v3alpha1", "scheduling.run.ai/v2"];

/// All queues of the run.ai family.
pub async fn queues(connect: ConnectArgs) -> Result<Vec<Document>> {
    let Connection { client, .. } = connect.connect().await?;
    let kinds = Kinds::discover(&client).await.map_err(explain)?;
    let Some(kind) = runai_queues(&kinds) else {
        tell("Warning: the cluster has no queues.scheduling.run.ai");
        return Ok(Vec::new());
    };
    list(&client, kind, None).await.map_err(explain)
}

/// What is wanted, who owns it, and what time it is there.
pub async fn read(connect: ConnectArgs, wanted: Wanted<'_>) -> Result<(Vec<Document>, Owners, Timestamp)> {
    let Connection { client, .. } = connect.connect().await?;
    let clock = Clock::of(&client).await;
    let kinds = Kinds::discover(&client).await.map_err(explain)?;
    let reader = Reader(&client);
    let mut documents = Vec::new();
    if let Some(pods) = kinds.find("", "Pod") {
        documents = reader.pods(pods, wanted.pods).await?;
    }
    let namespaces: BTreeSet<String> = wanted.pods.iter().map(|(namespace, _)| namespace.clone()).collect();
    reader.kind(runai_queues(&kinds), None, &mut documents).await;
    let t9k_queues = kinds.find(TENSORSTACK, "Queue");
    reader.kind(t9k_queues, Some(wanted.t9k_system_namespace), &mut documents).await;
    reader.kind(kinds.find("scheduling.k8s.io", "PriorityClass"), None, &mut documents).await;
    for namespace in &namespaces {
        for group in [RUNAI, TENSORSTACK] {
            reader.kind(kinds.find(group, "PodGroup"), Some(namespace), &mut documents).await;
        }
    }
    if wanted.nodes {
        reader.kind(kinds.find("", "Node"), None, &mut documents).await;
    }
    Ok((documents, Owners::Cluster(client, kinds), clock.now()))
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

struct Reader<'c>(&'c Client);

impl Reader<'_> {
    /// The pods that were asked for, and the others of namespaces where one of those is not by itself.
    async fn pods(&self, kind: &Kind, wanted: &[Key]) -> Result<Vec<Document>> {
        let mut documents = Vec::new();
        let mut crowded = BTreeSet::new();
        for (namespace, name) in wanted {
            anyhow::ensure!(is_segment(name) && is_segment(namespace), "{namespace}/{name} can't be a pod");
            let pod = kind.api(self.0, Some(namespace)).get(name).await.map_err(explain)?;
            let annotations = pod.metadata.annotations.as_ref();
            if annotations.is_some_and(|all| all.contains_key(keys::RUNAI_GROUP_ANNOTATION)) {
                crowded.insert(namespace.as_str());
            }
            documents.push(document(kind, &pod)?);
        }
        for namespace in crowded {
            documents.extend(list(self.0, kind, Some(namespace)).await.map_err(explain)?);
        }
        Ok(documents)
    }

    /// What may not be listed is done without, with a warning.
    async fn kind(&self, kind: Option<&Kind>, namespace: Option<&str>, documents: &mut Vec<Document>) {
        let Some(kind) = kind else { return };
        match list(self.0, kind, namespace).await {
            Ok(found) => documents.extend(found),
            Err(error) => {
                tell(&format!("Warning: can't list {}: {}", kind.plural(), with_causes(&explain(error))));
            }
        }
    }
}

async fn list(client: &Client, kind: &Kind, namespace: Option<&str>) -> kube::Result<Vec<Document>> {
    let api = kind.api(client, namespace);
    let pages = pages(None, |params| {
        let api = api.clone();
        async move { api.list(&params).await }
    });
    let found: Vec<Vec<DynamicObject>> = pages.try_collect().await?;
    found.iter().flatten().map(|object| document(kind, object).map_err(kube::Error::SerdeError)).collect()
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
