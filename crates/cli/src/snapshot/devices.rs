//! The devices that drivers of Dynamic Resource Allocation offer on nodes.
//!
//! Called by [`ClaimedDevices`](super::ClaimedDevices) for `forecast --for`. In doubt a device is
//! left out, so that the bound holds.

use std::collections::HashMap;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::ResourceExt;
use tenure_types::devices::{DeviceClass, DeviceName, DeviceResources};

use super::occupants::{Amounts, add};

/// The devices of drivers, and their classes.
#[derive(Debug, Default)]
pub struct OfferedDevices {
    slices: HashMap<String, ResourceSlice>,
    classes: HashMap<String, DeviceClass>,
}

impl OfferedDevices {
    /// Adds a class, or replaces it.
    pub fn put_class(&mut self, class: DeviceClass) {
        self.classes.insert(class.name_any(), class);
    }

    /// Adds a slice, or replaces it.
    pub fn put_slice(&mut self, slice: ResourceSlice) {
        self.slices.insert(slice.name_any(), slice);
    }

    /// True if no driver offers devices.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Counts the devices of each node by the resource that they count as. A device that is
    /// allocated counts as the resource that `taken` returns, and as no other. Devices of several
    /// nodes are left out.
    pub fn by_node<'t>(
        &self,
        resources: &DeviceResources,
        taken: impl Fn(&DeviceName) -> Option<&'t str>,
    ) -> HashMap<String, Amounts> {
        let mut nodes: HashMap<String, Amounts> = HashMap::new();
        for slice in self.pools().into_values().filter_map(newest).flatten() {
            let (spec, Some(node)) = (&slice.spec, &slice.spec.node_name) else { continue };
            let room = nodes.entry(node.clone()).or_default();
            for device in spec.devices.iter().flatten().filter(|device| is_allocatable(device)) {
                let classes = self.classes.iter().filter(|(_, class)| admits(class, &spec.driver, device));
                let now = taken(&[&spec.driver, &spec.pool.name, &device.name].map(String::clone));
                let counted = classes.map(|(class, _)| resources.of_class(class));
                let counted = counted.filter(|resource| now.is_none_or(|now| now == resource.as_str()));
                add(room, &counted.map(|resource| (resource, 1)).collect(), 1);
            }
        }
        nodes
    }

    /// Returns the slices by driver and pool.
    fn pools(&self) -> HashMap<(&str, &str), Vec<&ResourceSlice>> {
        let mut pools: HashMap<(&str, &str), Vec<&ResourceSlice>> = HashMap::new();
        for slice in self.slices.values() {
            let pool = (slice.spec.driver.as_str(), slice.spec.pool.name.as_str());
            pools.entry(pool).or_default().push(slice);
        }
        pools
    }
}

/// Returns the slices of a pool's last generation. None: the driver hasn't written all of them yet.
fn newest(mut slices: Vec<&ResourceSlice>) -> Option<Vec<&ResourceSlice>> {
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max()?;
    slices.retain(|slice| slice.spec.pool.generation == newest);
    let count = i64::try_from(slices.len()).ok()?;
    slices.iter().all(|slice| slice.spec.pool.resource_slice_count == count).then_some(slices)
}

/// True if any claim may have the device, as a whole and for itself.
fn is_allocatable(device: &Device) -> bool {
    device.allow_multiple_allocations != Some(true)
        && device.consumes_counters.iter().flatten().next().is_none()
        && device.binding_conditions.iter().flatten().next().is_none()
        && device.taints.iter().flatten().all(|taint| taint.effect == "None")
}

/// True if a class surely has a device.
fn admits(class: &DeviceClass, driver: &str, device: &Device) -> bool {
    let is_true = |comparison: &str| is_true(comparison, driver, device);
    class.selectors().all(|expression| expression.split("&&").all(is_true))
}

/// True if a comparison with a text surely holds. Other expressions aren't understood.
fn is_true(comparison: &str, driver: &str, device: &Device) -> bool {
    comparison.split_once("==").is_some_and(|(of, text)| {
        literal(text).is_some_and(|text| value(of.trim(), driver, device) == Some(text))
    })
}

/// Returns the value of `device.driver`, or of an attribute that is a text, such as
/// `device.attributes['gpu.example.com'].type`.
fn value<'d>(of: &str, driver: &'d str, device: &'d Device) -> Option<&'d str> {
    if of == "device.driver" {
        return Some(driver);
    }
    let (domain, name) = of.strip_prefix("device.attributes[")?.split_once("].")?;
    let (domain, attributes) = (literal(domain)?, device.attributes.as_ref()?);
    // a driver may leave out its own domain
    let own = attributes.get(name).filter(|_| domain == driver);
    attributes.get(&format!("{domain}/{name}")).or(own)?.string.as_deref()
}

/// Returns the text of a plain literal.
fn literal(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    (!inner.contains(['\'', '"', '\\'])).then_some(inner)
}

#[cfg(test)]
mod tests;
