//! The devices that pods have by Dynamic Resource Allocation, counted as resources.
//!
//! The keeper's ledger of usage and the forecasts of the command line count them. A device counts as
//! the extended resource that its `DeviceClass` names, so that a GPU is the same resource whether a
//! device plugin or a driver of Dynamic Resource Allocation offers it.

use std::collections::BTreeMap;

use k8s_openapi::{api::resource::v1, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::projection::slim;

/// The prefix of the resource that stands for a class without `spec.extendedResourceName`: the
/// implicit extended resource of Kubernetes.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// The most devices of a claim. The API server allows 32 results.
const MOST_DEVICES: usize = 32;

/// A `ResourceClaim`, reduced to the classes of its requests and to the devices that it has.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = v1::ResourceClaim)]
#[serde(default)]
pub struct ResourceClaim {
    /// The metadata, without the parts that no decision needs.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    spec: ClaimSpec,
    status: ClaimStatus,
}

/// A `ResourceClaimTemplate`, reduced to the classes and counts of its requests.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = v1::ResourceClaimTemplate)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// The metadata, without the parts that no decision needs.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    spec: TemplateSpec,
}

/// A `DeviceClass`, reduced to its selectors and the resource that it counts as.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = v1::DeviceClass)]
#[serde(default)]
pub struct DeviceClass {
    /// The metadata, without the parts that no decision needs.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    spec: ClassSpec,
}

/// A claim that a pod holds or asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimReference {
    /// The name of the claim. None: the claim wasn't made yet.
    pub claim: Option<String>,
    /// The name of the template that the claim is made from. None: the pod names the claim.
    pub template: Option<String>,
}

/// The driver, the pool and the name of a device.
pub type DeviceName = [String; 3];

/// Numbers of devices by class.
pub type DevicesByClass = BTreeMap<String, i64>;

/// The resources that classes of devices count as, by the names of the classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceResources(BTreeMap<String, String>);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClassSpec {
    extended_resource_name: Option<String>,
    #[serde(deserialize_with = "or_empty")]
    selectors: Vec<ClassSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClassSelector {
    cel: Option<CelSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct CelSelector {
    expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateSpec {
    spec: ClaimSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimSpec {
    devices: RequestedDevices,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RequestedDevices {
    #[serde(deserialize_with = "or_empty")]
    requests: Vec<DeviceRequest>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeviceRequest {
    name: String,
    exactly: Option<RequestOfClass>,
    #[serde(deserialize_with = "or_empty")]
    first_available: Vec<RequestOfClass>,
}

/// A request of devices of one class. Those of `firstAvailable` have names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequestOfClass {
    name: String,
    device_class_name: String,
    count: Option<i64>,
    admin_access: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    allocation: Option<Allocation>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: AllocatedDevices,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AllocatedDevices {
    #[serde(deserialize_with = "or_empty")]
    results: Vec<AllocatedDevice>,
}

/// A device of a claim. `request` is the name of the request, or `request/subrequest`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AllocatedDevice {
    request: String,
    driver: String,
    pool: String,
    device: String,
    admin_access: Option<bool>,
}

/// Reads null as the empty list: Go writes both as null.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl ResourceClaim {
    /// Counts the devices that are allocated to the claim. Devices with administrative access don't
    /// count: others use them at the same time. Empty: the claim isn't allocated.
    pub fn devices(&self) -> DevicesByClass {
        counted(self.own().filter_map(|device| Some((self.spec.class_of(&device.request)?, 1))))
    }

    /// Returns the devices that [`Self::devices`] counts, each with its class. An empty class: the
    /// claim has no request for the device, which doesn't count.
    pub fn allocated(&self) -> impl Iterator<Item = (DeviceName, &str)> {
        self.own().map(|device| {
            let name = [&device.driver, &device.pool, &device.device].map(String::clone);
            (name, self.spec.class_of(&device.request).unwrap_or_default())
        })
    }

    fn own(&self) -> impl Iterator<Item = &AllocatedDevice> {
        let results = self.status.allocation.iter().flat_map(|of| &of.devices.results);
        results.filter(|device| device.admin_access != Some(true)).take(MOST_DEVICES)
    }
}

impl DeviceClass {
    /// Returns the CEL expressions of the devices of the class, which must all be true. An empty
    /// one stands for a selector of another kind.
    pub fn selectors(&self) -> impl Iterator<Item = &str> {
        self.spec.selectors.iter().map(|of| of.cel.as_ref().map_or("", |cel| cel.expression.as_str()))
    }
}

impl ResourceClaimTemplate {
    /// Counts the devices that a claim of this template asks for, by the first choice of each
    /// request. A request for all devices of a class counts as one device.
    pub fn devices(&self) -> DevicesByClass {
        counted(self.spec.spec.devices.requests.iter().filter_map(|request| {
            let of = request.exactly.as_ref().or_else(|| request.first_available.first())?;
            let count = of.count.unwrap_or(1).max(0);
            (of.admin_access != Some(true)).then_some((of.device_class_name.as_str(), count))
        }))
    }
}

fn counted<'d>(devices: impl Iterator<Item = (&'d str, i64)>) -> DevicesByClass {
    let mut counts = DevicesByClass::new();
    for (class, count) in devices {
        let sum = counts.entry(class.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
    counts
}

impl ClaimSpec {
    /// Returns the class of a request, `request` or `request/subrequest`. None: the claim has no
    /// such request.
    fn class_of(&self, name: &str) -> Option<&str> {
        let (name, choice) = name.split_once('/').map_or((name, None), |(name, of)| (name, Some(of)));
        let request = self.devices.requests.iter().find(|request| request.name == name)?;
        let of = match choice {
            Some(choice) => request.first_available.iter().find(|of| of.name == choice)?,
            None => request.exactly.as_ref()?,
        };
        Some(&of.device_class_name)
    }
}

impl DeviceResources {
    /// Adds a class, or replaces it.
    pub fn put(&mut self, class: DeviceClass) {
        let DeviceClass { metadata, spec } = class;
        let (class, resource) = (metadata.name.unwrap_or_default(), spec.extended_resource_name);
        if let Some(resource) = resource.filter(|name| !name.is_empty()) {
            self.0.insert(class, resource);
        } else {
            self.0.remove(&class);
        }
    }

    /// Returns the resource that devices of a class count as: `spec.extendedResourceName` of the
    /// class, or `deviceclass.resource.kubernetes.io/<class>`.
    pub fn of_class(&self, class: &str) -> String {
        self.0.get(class).cloned().unwrap_or_else(|| format!("{IMPLICIT}{class}"))
    }

    /// Returns the amounts by resource of these devices.
    pub fn amounts(&self, devices: &DevicesByClass) -> BTreeMap<String, i64> {
        let mut amounts = BTreeMap::<String, i64>::new();
        for (class, count) in devices {
            let sum = amounts.entry(self.of_class(class)).or_default();
            *sum = sum.saturating_add(*count);
        }
        amounts
    }
}

#[cfg(test)]
mod tests;
