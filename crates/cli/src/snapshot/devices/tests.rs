use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "gpu.example.com";

/// A slice of the driver's pool `n1` on node `n1`.
fn slice(name: &str, generation: i64, count: i64, devices: &Value) -> ResourceSlice {
    let pool = json!({"name": "n1", "generation": generation, "resourceSliceCount": count});
    serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices},
    }))
    .unwrap()
}

fn class(name: &str, resource: &str, expressions: &[&str]) -> DeviceClass {
    let selectors: Vec<Value> = expressions.iter().map(|of| json!({"cel": {"expression": of}})).collect();
    let spec = json!({"extendedResourceName": resource, "selectors": selectors});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

/// The resources of node `n1` with these slices and classes. `taken` has devices with the resources
/// that they count as.
fn counted(slices: Vec<ResourceSlice>, classes: Vec<DeviceClass>, taken: &[(&str, &'static str)]) -> Amounts {
    let (mut offered, mut resources) = (OfferedDevices::default(), DeviceResources::default());
    for slice in slices {
        offered.put_slice(slice);
    }
    for class in classes {
        resources.put(class.clone());
        offered.put_class(class);
    }
    let taken = |device: &DeviceName| {
        let [driver, pool, name] = device.each_ref().map(String::as_str);
        assert_eq!((driver, pool), (DRIVER, "n1"));
        taken.iter().find(|(of, _)| *of == name).map(|(_, resource)| *resource)
    };
    offered.by_node(&resources, taken).remove("n1").unwrap_or_default()
}

fn amounts(of: &[(&str, i64)]) -> Amounts {
    of.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect()
}

fn gpus() -> DeviceClass {
    class("gpu", "nvidia.com/gpu", &["device.driver == 'gpu.example.com'"])
}

#[test]
fn a_device_counts_for_a_class_whose_selectors_surely_hold() {
    let devices = json!([
        {"name": "whole", "attributes": {"type": {"string": "gpu"}, "example.com/rack": {"string": "r1"}}},
        {"name": "part", "attributes": {"gpu.example.com/type": {"string": "mig"}}},
        {"name": "plain"},
    ]);
    let cases: &[(&[&str], i64)] = &[
        (&[], 3),
        (&["device.driver == 'gpu.example.com'"], 3),
        (&["device.driver == \"gpu.example.com\""], 3),
        (&["device.driver == 'nic.example.com'"], 0),
        (&["device.driver == 'gpu.example.com' &&\n  device.attributes['gpu.example.com'].type == 'gpu'"], 1),
        (&["device.driver=='gpu.example.com'", "device.attributes[\"gpu.example.com\"].type=='mig'"], 1),
        (&["device.attributes['example.com'].rack == 'r1'"], 1),
        (&["device.attributes['example.com'].type == 'gpu'"], 0),
        // these may hold, but aren't understood
        (&["device.driver == 'gpu.example.com' || true"], 0),
        (&["device.driver == 'a' || device.driver == 'gpu.example.com'"], 0),
        (&["(device.driver == 'gpu.example.com')"], 0),
        (&["device.driver != 'nic.example.com'"], 0),
        (&["device.driver == 'gpu.example.com'", ""], 0),
    ];
    for (expressions, number) in cases.iter().copied() {
        let class = class("gpu", "nvidia.com/gpu", expressions);
        let found = counted(vec![slice("a", 1, 1, &devices)], vec![class], &[]);
        let expected = amounts(&[("nvidia.com/gpu", number)][..usize::from(number > 0)]);
        assert_eq!(found, expected, "{expressions:?}");
    }
}

#[test]
fn only_a_device_that_any_claim_may_have_for_itself_counts() {
    let devices = json!([
        {"name": "plain"},
        {"name": "suspected", "taints": [{"key": "a", "effect": "None"}]},
        {"name": "broken", "taints": [{"key": "a", "effect": "NoSchedule"}]},
        {"name": "shared", "allowMultipleAllocations": true},
        {"name": "part", "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "1Gi"}}}]},
        {"name": "remote", "bindingConditions": ["attached"]},
    ]);
    let found = counted(vec![slice("a", 1, 1, &devices)], vec![gpus()], &[]);
    assert_eq!(found, amounts(&[("nvidia.com/gpu", 2)]));
}

#[test]
fn a_pool_counts_once_the_last_generation_of_it_is_complete() {
    let of = |name: &str, generation: i64| slice(name, generation, 2, &json!([{"name": name}]));
    let count = |slices: Vec<ResourceSlice>| counted(slices, vec![gpus()], &[]);
    let both = amounts(&[("nvidia.com/gpu", 2)]);
    assert_eq!(count(vec![of("a", 1)]), amounts(&[]));
    assert_eq!(count(vec![of("a", 1), of("b", 1)]), both);
    assert_eq!(count(vec![of("a", 1), of("b", 1), of("c", 2)]), amounts(&[]));
    assert_eq!(count(vec![of("a", 1), of("c", 2), of("d", 2)]), both);
    assert_eq!(count(vec![of("a", 1), of("a", 1), of("b", 1)]), both, "the same slice twice");
}

#[test]
fn a_device_that_is_allocated_counts_as_that_resource_alone() {
    let devices = json!([{"name": "free"}, {"name": "a"}, {"name": "b"}, {"name": "gone"}]);
    let classes = || vec![gpus(), class("any", "example.com/any", &[])];
    let taken = [("a", "nvidia.com/gpu"), ("b", "example.com/any"), ("gone", "")];
    let found = counted(vec![slice("a", 1, 1, &devices)], classes(), &taken);
    assert_eq!(found, amounts(&[("example.com/any", 2), ("nvidia.com/gpu", 2)]));
}

#[test]
fn devices_of_several_nodes_count_on_none() {
    let mut anywhere = slice("a", 1, 1, &json!([{"name": "nic"}]));
    (anywhere.spec.node_name, anywhere.spec.all_nodes) = (None, Some(true));
    assert_eq!(counted(vec![anywhere], vec![gpus()], &[]), amounts(&[]));
}
