//! The order of all checks, and how they find the objects of the chart.

use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tenure_policy::expiry::Family;

use super::Check;
use crate::snapshot::ClusterReader;

/// Labels that the chart gives its objects.
const OURS: &str = "app.kubernetes.io/part-of=tenure";

/// A cluster, and where Tenure is looked for.
pub struct Inspector {
    pub cluster: ClusterReader,
    pub tenure_namespace: Option<String>,
    pub t9k_system_namespace: String,
}

impl Inspector {
    /// Every check, one after the other.
    pub async fn checks(&self) -> Vec<Check> {
        let mut checks = self.definitions();
        checks.extend(self.keepers().await);
        checks.extend(self.webhooks().await);
        checks.extend(self.admission().await);
        checks.extend(self.queues_and_pods().await);
        checks.extend(self.refusals().await);
        checks
    }

    /// The definitions of queues, with the versions in which they are served.
    fn definitions(&self) -> Vec<Check> {
        let families = [Family::Runai, Family::Tensorstack];
        let served =
            families.map(|family| (family.group(), self.cluster.kinds.versions(family.group(), "Queue")));
        let shown = served.iter().filter(|(_, versions)| !versions.is_empty());
        let shown: Vec<String> =
            shown.map(|(group, versions)| format!("queues.{group} ({})", versions.join(", "))).collect();
        vec![if shown.is_empty() {
            let remedy =
                "install the chart with crds.install=true, or KAI-Scheduler, which has queues of its own";
            Check::problem("definitions", "the cluster has no queues of any family", remedy)
        } else {
            Check::ok("definitions", shown.join(", "))
        }]
    }

    /// Objects of the chart for a component, in the namespace of Tenure or in all.
    pub async fn ours<K>(&self, component: &str) -> kube::Result<Vec<K>>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let client = self.cluster.client.clone();
        let api: Api<K> = match &self.tenure_namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let labels = format!("{OURS},app.kubernetes.io/component={component}");
        Ok(api.list(&ListParams::default().labels(&labels)).await?.items)
    }

    /// The same of objects that are in no namespace.
    pub async fn ours_everywhere<K>(&self) -> kube::Result<Vec<K>>
    where
        K: Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = Api::all(self.cluster.client.clone());
        Ok(api.list(&ListParams::default().labels(OURS)).await?.items)
    }

    /// The place where objects of Tenure are looked for, as the end of a sentence.
    pub fn place(&self) -> String {
        match &self.tenure_namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in all namespaces (or name Tenure's with --tenure-namespace)".to_owned(),
        }
    }
}
