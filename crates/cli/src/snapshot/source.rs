//! Reads objects that a snapshot doesn't have yet, from the files or from the cluster.
//!
//! Called by the explanations, after the snapshot was read.

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::Value;
use tenure_policy::{
    climb::Action,
    kueue::{self, Lookup},
    pause,
};
use tenure_types::projection::{Pod, WholeObject};

use super::Snapshot;
use crate::{
    cluster::{DEFAULT_NAMESPACE, KindAndName},
    input::Document,
    list::{ended::missing, row::name_of},
};

/// An object that the user has named.
pub struct NamedObject {
    pub reference: OwnerReference,
    pub object: Value,
}

impl Snapshot {
    /// Returns Kueue's Workloads that a lookup asks for. For files, all Workloads of the namespace:
    /// the caller chooses.
    pub async fn workloads(&self, namespace: &str, lookup: Lookup<'_>) -> Result<Vec<Value>> {
        if let Some(cluster) = &self.cluster {
            return cluster.workloads(namespace, lookup).await;
        }
        let is_one = |document: &&Document| {
            (document.group(), document.kind.as_str()) == (kueue::GROUP, kueue::WORKLOAD)
                && document.namespace().unwrap_or(DEFAULT_NAMESPACE) == namespace
        };
        Ok(self.documents.iter().filter(is_one).map(|document| document.value.clone()).collect())
    }

    /// Reads the object with this kind and name. An error: there is no such object; if it existed
    /// within the last hour, with Tenure's last action on it.
    pub async fn named(&self, namespace: &str, (word, name): &KindAndName) -> Result<NamedObject> {
        if let Some(cluster) = &self.cluster {
            let kind = cluster.kinds.resolve(word, &self.table)?;
            let reference = kind.reference(name);
            let workload = name_of(&reference.api_version, &reference.kind, name);
            return match kind.api::<WholeObject>(&cluster.client, Some(namespace)).get(name).await {
                Ok(found) => Ok(NamedObject { reference, object: found.value }),
                Err(error) => Err(missing(cluster, namespace, &workload, error).await),
            };
        }
        let is_meant = |document: &&Document| {
            document.is_called(word)
                && document.name() == Some(name)
                && document.namespace().unwrap_or(DEFAULT_NAMESPACE) == namespace
        };
        let found = self.documents.iter().rev().find(is_meant);
        let not_read = || {
            format!(
                "{word}/{name} of namespace {namespace} is not among the objects that were read: name its namespace with -n, and its file with -f"
            )
        };
        let found = found.with_context(not_read)?;
        let reference = OwnerReference {
            api_version: found.api_version.clone(),
            kind: found.kind.clone(),
            name: name.clone(),
            ..OwnerReference::default()
        };
        Ok(NamedObject { reference, object: found.value.clone() })
    }

    /// Returns Kueue's Workload of the owner that the keeper would pause, or of the pod that it
    /// would delete. None: Kueue doesn't run it.
    pub async fn workload(&self, pod: &Pod, action: &Action) -> Result<Option<OwnerReference>> {
        let (lookup, uid) = match action {
            Action::Pause(owner) => (kueue::of_owner(owner, &self.table), Some(owner.uid.as_str())),
            Action::DeletePod => (kueue::of_pod(pod, &self.table), pod.metadata.uid.as_deref()),
            _ => (None, None),
        };
        let Some((lookup, uid)) = lookup.zip(uid) else { return Ok(None) };
        let found = self.workloads(&pod.namespace().unwrap_or_default(), lookup).await?;
        Ok(kueue::chosen(&found, uid).map(|found| kueue::refer_to(pause::OwnerObject(found))))
    }
}
