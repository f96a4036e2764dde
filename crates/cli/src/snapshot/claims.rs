//! The devices of claims of Dynamic Resource Allocation, as resources.
//!
//! Called by `forecast` and `ui`, which count them among the room that pods hold, and by `simulate`,
//! which counts those of ended pods by the templates of their claims. `forecast --for` also counts the
//! devices that nodes offer, and the devices that its workload claims.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Debug,
};

use anyhow::Result;
use futures::TryStreamExt;
use k8s_openapi::{
    api::{core::v1::Node, resource::v1::ResourceSlice},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_types::{
    devices::{
        ClaimReference, DeviceClass, DeviceName, DeviceResources, ResourceClaim, ResourceClaimTemplate,
    },
    room::PodWithRoom,
};

use super::devices::OfferedDevices;
use crate::{
    cluster::{ClusterReader, explain, objects},
    input::Document,
    snapshot::{NamespacedName, decode_all, key},
};

/// The group of claims and devices.
const GROUP: &str = "resource.k8s.io";

/// The devices of claims, by resource.
#[derive(Debug, Default)]
pub struct ClaimedDevices {
    claims: HashMap<NamespacedName, BTreeMap<String, i64>>,
    templates: HashMap<NamespacedName, BTreeMap<String, i64>>,
    resources: DeviceResources,
    offered: OfferedDevices,
    allocated: HashMap<DeviceName, AllocatedDevice>,
    /// The reason why no devices count, for the user. None: they count.
    pub warning: Option<String>,
}

/// The use of a device.
#[derive(Debug)]
struct AllocatedDevice {
    /// The resource that the device counts as.
    resource: String,
    /// The claim that has the device.
    claim: NamespacedName,
}

impl ClaimedDevices {
    /// Reads the claims of a namespace, or of all. If the user may not list them, there is a warning.
    /// An API server before Kubernetes 1.34 has none.
    pub async fn of_cluster(cluster: &ClusterReader, namespace: Option<&str>) -> Result<Self> {
        let mut devices = Self::default();
        let classes: Vec<DeviceClass> = devices.list(Api::all(cluster.client.clone())).await?;
        let claims: Vec<ResourceClaim> = devices.list(cluster.api(namespace)).await?;
        devices.put(classes, claims);
        Ok(devices)
    }

    /// Reads the templates of claims, too.
    pub async fn with_templates(mut self, cluster: &ClusterReader, namespace: Option<&str>) -> Result<Self> {
        let templates: Vec<ResourceClaimTemplate> = self.list(cluster.api(namespace)).await?;
        self.put_templates(templates);
        Ok(self)
    }

    /// Reads the devices that drivers offer and, if there are some, the templates of all namespaces.
    /// The claims must be those of all namespaces.
    pub async fn with_offers(mut self, cluster: &ClusterReader) -> Result<Self> {
        // without the claims, all devices would look free
        if self.warning.is_none() {
            let slices: Vec<ResourceSlice> = self.list(Api::all(cluster.client.clone())).await?;
            for slice in slices {
                self.offered.put_slice(slice);
            }
        }
        if self.offered.is_empty() { Ok(self) } else { self.with_templates(cluster, None).await }
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

    /// Reads the claims of files. An error: a claim, a class, a slice or a template can't be read.
    pub fn of_files(documents: &[Document]) -> Result<Self> {
        let mut devices = Self::default();
        let classes: Vec<DeviceClass> = decode_all(documents, GROUP, "DeviceClass")?;
        devices.put(classes, decode_all(documents, GROUP, "ResourceClaim")?);
        for slice in decode_all::<ResourceSlice>(documents, GROUP, "ResourceSlice")? {
            devices.offered.put_slice(slice);
        }
        if !devices.offered.is_empty() {
            devices.put_templates(decode_all(documents, GROUP, "ResourceClaimTemplate")?);
        }
        Ok(devices)
    }

    fn put(&mut self, classes: Vec<DeviceClass>, claims: Vec<ResourceClaim>) {
        for class in classes {
            self.resources.put(class.clone());
            self.offered.put_class(class);
        }
        for claim in claims {
            let name = key(&claim.metadata);
            for (device, class) in claim.allocated() {
                let resource = self.resources.of_class(class);
                self.allocated.insert(device, AllocatedDevice { resource, claim: name.clone() });
            }
            self.claims.insert(name, self.resources.amounts(&claim.devices()));
        }
    }

    fn put_templates(&mut self, templates: Vec<ResourceClaimTemplate>) {
        let amounts = |of: ResourceClaimTemplate| (key(&of.metadata), self.resources.amounts(&of.devices()));
        self.templates = templates.into_iter().map(amounts).collect();
    }

    /// Adds the devices of nodes to the nodes' allocatable resources, except where a device plugin
    /// offers the same resource: kube-scheduler then takes requests to be for the plugin. `held` are
    /// the claims of the pods on nodes, also those for their requests. A device of another claim is left
    /// out.
    pub fn offer(&self, nodes: &mut [Node], held: &HashSet<&NamespacedName>) {
        let taken = |device: &DeviceName| {
            let AllocatedDevice { resource, claim } = self.allocated.get(device)?;
            Some(if held.contains(claim) { resource.as_str() } else { "" })
        };
        let mut by_node = self.offered.by_node(&self.resources, taken);
        for node in nodes {
            let devices = by_node.remove(&node.name_any()).unwrap_or_default();
            let allocatable = node.status.get_or_insert_default().allocatable.get_or_insert_default();
            for (resource, number) in devices {
                let amount = allocatable.entry(resource).or_default();
                if matches!(amount.0.as_str(), "" | "0") {
                    *amount = Quantity(number.to_string());
                }
            }
        }
    }

    /// Returns the devices that a claim of a template would have. None: the template or the devices of
    /// nodes aren't known, or the pod names a claim that others may share.
    pub fn of_template(&self, namespace: &str, claim: &ClaimReference) -> Option<&BTreeMap<String, i64>> {
        self.templates.get(&(namespace.to_owned(), claim.template.clone()?))
    }

    /// Returns the devices of claims, by resource. A claim that isn't known has none.
    pub fn of<'c>(&'c self, claims: &[NamespacedName]) -> impl Iterator<Item = &'c BTreeMap<String, i64>> {
        claims.iter().filter_map(|claim| self.claims.get(claim))
    }

    /// Returns the amount of a resource that a pod has, or had, by its claims: by the template of a
    /// claim that is gone. A claim that the pod shares is left out if it is among `counted`, and
    /// added to them otherwise.
    pub fn amount(&self, pod: &PodWithRoom, resource: &str, counted: &mut HashSet<NamespacedName>) -> i64 {
        let amounts = pod.claims().into_iter().filter_map(|ClaimReference { claim, template }| {
            let named = |name: String| (key(&pod.metadata).0, name);
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

/// Returns the names of the claims that a pod holds.
pub fn held_claims(pod: &PodWithRoom) -> Vec<NamespacedName> {
    let names = pod.claims().into_iter().filter_map(|reference| reference.claim);
    names.map(|name| (key(&pod.metadata).0, name)).collect()
}

/// Returns the name of the claim that kube-scheduler has made for the requests of a pod.
pub fn claim_of_requests(pod: &PodWithRoom) -> Option<NamespacedName> {
    Some((key(&pod.metadata).0, pod.claim_of_requests()?.to_owned()))
}
