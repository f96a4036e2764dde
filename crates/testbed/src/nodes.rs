//! The nodes that kwok plays, and the labels that change how it plays pods.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// The stages of nodes and pods that kwok simulates.
pub(crate) const STAGES: &str = include_str!("stages.yaml");

/// A pod with this label stays Pending after it is bound, until the label is removed.
pub const UNREADY: &str = "testbed.tenure.dev/unready";

/// A pod with this label stays Terminating after it is deleted, until the label is removed.
pub const UNDYING: &str = "testbed.tenure.dev/undying";

/// Creates `count` nodes of 64 CPUs, 256 Gi and room for 250 pods: `node-1`, `node-2` and so on.
pub(crate) async fn create(client: Client, count: usize) -> Result<()> {
    let nodes = Api::<Node>::all(client);
    for number in 1..=count {
        let node = node(&format!("node-{number}"))?;
        let created = nodes.create(&PostParams::default(), &node).await;
        created.with_context(|| format!("cannot create node {number}"))?;
    }
    Ok(())
}

/// Returns a node of this name, which is its hostname label as well.
fn node(name: &str) -> Result<Node> {
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "250"});
    let node = json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
            },
        },
        "status": {"allocatable": resources, "capacity": resources},
    });
    Ok(serde_json::from_value(node)?)
}

/// Returns a value when a pod could run: every node is Ready and untainted, and the service account
/// that a pod needs is there. Until then an error says what is missing.
pub(crate) async fn can_run_pods(client: Client) -> Result<Option<()>> {
    for node in Api::<Node>::all(client.clone()).list(&ListParams::default()).await? {
        if !is_ready(&node) {
            bail!("node {} is not ready", node.metadata.name.unwrap_or_default());
        }
    }
    Api::<ServiceAccount>::namespaced(client, "default").get("default").await?;
    Ok(Some(()))
}

/// True if a node is Ready and has no taints.
fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let tainted = node.spec.as_ref().is_some_and(|spec| spec.taints.iter().flatten().next().is_some());
    ready && !tainted
}
