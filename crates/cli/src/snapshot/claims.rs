//! The devices of claims of Dynamic Resource Allocation, as resources.
//!
//! Called by `forecast` and `ui`, which count them among the room that pods hold, and by `simulate`,
//! which counts those of ended pods by the templates of their claims.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Debug,
};

use anyhow::Result;
use futures::TryStreamExt;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_types::{
    devices::{ClaimReference, DeviceClass, DeviceResources, ResourceClaim, ResourceClaimTemplate},
    room::PodWithRoom,
};

use crate::{
    cluster::{ClusterReader, DEFAULT_NAMESPACE, explain, objects},
    input::Document,
    snapshot::decode,
};

/// The name of a claim, after its namespace.
pub type ClaimName = (String, String);

/// The devices of claims, by resource.
#[derive(Debug, Default)]
pub struct ClaimedDevices {
    claims: HashMap<ClaimName, BTreeMap<String, i64>>,
    templates: HashMap<ClaimName, BTreeMap<String, i64>>,
    resources: DeviceResources,
    /// The reason why no devices count, for the user. None: they count.
    pub warning: Option<String>,
}

impl ClaimedDevices {
    /// Reads the claims of a namespace, or of all. If the user may not list them, there is a warning.
    /// An API server before Kubernetes 1.34 has none.
    pub async fn of_cluster(cluster: &ClusterReader, namespace: Option<&str>) -> Result<Self> {
        let mut devices = Self::default();
        let classes: Vec<DeviceClass> = devices.list(Api::all(cluster.client.clone())).await?;
        for class in classes {
            devices.resources.put(class);
        }
        let claims: Vec<ResourceClaim> = devices.list(cluster.api(namespace)).await?;
        for claim in &claims {
            devices.put(claim);
        }
        Ok(devices)
    }

    /// Reads the templates of claims, too.
    pub async fn with_templates(mut self, cluster: &ClusterReader, namespace: Option<&str>) -> Result<Self> {
        let templates: Vec<ResourceClaimTemplate> = self.list(cluster.api(namespace)).await?;
        let amounts = |of: &ResourceClaimTemplate| (name_of(of), self.resources.amounts(&of.devices()));
        self.templates = templates.iter().map(amounts).collect();
        Ok(self)
    }

    /// Lists objects. Returns none if the API server doesn't have them, or, with a warning, without
    /// the right to list them.
    async fn list<K>(&mut self, api: Api<K>) -> Result<Vec<K>>
    where
        K: Clone + DeserializeOwned + Debug + Send + 'static,
    {
        match objects(api, None).try_concat().await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let reason = &status.message;
                let warning = format!("devices of Dynamic Resource Allocation don't count as GPUs: {reason}");
                self.warning.get_or_insert(warning);
                Ok(Vec::new())
            }
            listed => listed.map_err(explain),
        }
    }

    /// Reads the claims of files. An error: a claim or a class can't be read.
    pub fn of_files(documents: &[Document]) -> Result<Self> {
        let of_kind = |kind: &'static str| {
            let group = "resource.k8s.io";
            documents.iter().filter(move |of| (of.group(), of.kind.as_str()) == (group, kind))
        };
        let mut devices = Self::default();
        for class in of_kind("DeviceClass") {
            devices.resources.put(decode(class)?);
        }
        for claim in of_kind("ResourceClaim") {
            devices.put(&decode(claim)?);
        }
        Ok(devices)
    }

    fn put(&mut self, claim: &ResourceClaim) {
        let amounts = self.resources.amounts(&claim.devices());
        self.claims.insert(name_of(claim), amounts);
    }

    /// Returns the devices of claims, by resource. A claim that isn't known has none.
    pub fn of<'c>(&'c self, claims: &[ClaimName]) -> impl Iterator<Item = &'c BTreeMap<String, i64>> {
        claims.iter().filter_map(|claim| self.claims.get(claim))
    }

    /// Returns the amount of a resource that a pod has, or had, by its claims: by the template of a
    /// claim that is gone. A claim that the pod shares is left out if it is among `counted`, and
    /// added to them otherwise.
    pub fn amount(&self, pod: &PodWithRoom, resource: &str, counted: &mut HashSet<ClaimName>) -> i64 {
        let amounts = pod.claims().into_iter().filter_map(|ClaimReference { claim, template }| {
            let named = |name: String| (namespace(pod), name);
            let (claim, template) = (claim.map(named), template.map(named));
            let is_counted =
                template.is_none() && claim.as_ref().is_some_and(|claim| !counted.insert(claim.clone()));
            let held = claim.and_then(|claim| self.claims.get(&claim)).filter(|held| !held.is_empty());
            let of = held.or_else(|| self.templates.get(&template?)).filter(|_| !is_counted)?;
            of.get(resource).copied()
        });
        amounts.fold(0, i64::saturating_add)
    }
}

fn namespace(object: &impl ResourceExt) -> String {
    object.namespace().unwrap_or_else(|| DEFAULT_NAMESPACE.into())
}

fn name_of(object: &impl ResourceExt) -> ClaimName {
    (namespace(object), object.name_any())
}

/// Returns the names of the claims that a pod holds.
pub fn held_claims(pod: &PodWithRoom) -> Vec<ClaimName> {
    let names = pod.claims().into_iter().filter_map(|reference| reference.claim);
    names.map(|name| (namespace(pod), name)).collect()
}
