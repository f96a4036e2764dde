use serde_json::{Value, json};

use super::*;

fn claim(requests: &Value, results: &Value) -> DevicesByClass {
    let claim = json!({
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": results}}},
    });
    serde_json::from_value::<ResourceClaim>(claim).unwrap().devices()
}

fn template(requests: &Value) -> DevicesByClass {
    let template = json!({"spec": {"spec": {"devices": {"requests": requests}}}});
    serde_json::from_value::<ResourceClaimTemplate>(template).unwrap().devices()
}

fn devices(of: &[(&str, i64)]) -> DevicesByClass {
    of.iter().map(|(class, count)| ((*class).to_owned(), *count)).collect()
}

#[test]
fn the_devices_of_a_claim_are_those_that_are_allocated_by_the_class_of_their_request() {
    let requests = json!([
        {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}},
        {"name": "nic", "firstAvailable": [
            {"name": "fast", "deviceClassName": "fast.example.com"},
            {"name": "slow", "deviceClassName": "slow.example.com"},
        ]},
    ]);
    let results = json!([
        {"request": "gpus", "device": "gpu-0"},
        {"request": "gpus", "device": "gpu-1"},
        {"request": "nic/slow", "device": "nic-0"},
        {"request": "unknown", "device": "other-0"},
        {"request": "nic/unknown", "device": "other-1"},
    ]);
    assert_eq!(claim(&requests, &results), devices(&[("gpu.example.com", 2), ("slow.example.com", 1)]));
}

#[test]
fn each_device_of_a_claim_is_known_by_driver_pool_and_name() {
    let claim: ResourceClaim = serde_json::from_value(json!({
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        "status": {"allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "example.com", "pool": "n1", "device": "gpu-0"},
            {"request": "unknown", "driver": "example.com", "pool": "n1", "device": "gpu-1"},
            {"request": "gpu", "driver": "example.com", "pool": "n1", "device": "gpu-2", "adminAccess": true},
        ]}}},
    }))
    .unwrap();
    let name = |device: &str| ["example.com", "n1", device].map(str::to_owned);
    let allocated: Vec<_> = claim.allocated().collect();
    assert_eq!(allocated, [(name("gpu-0"), "gpu.example.com"), (name("gpu-1"), "")]);
}

#[test]
fn a_class_has_an_expression_for_each_selector() {
    let class = |selectors: Value| -> DeviceClass {
        serde_json::from_value(json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}))
            .unwrap()
    };
    let selectors = json!([{"cel": {"expression": "device.driver == 'example.com'"}}, {"other": {}}]);
    assert!(class(selectors).selectors().eq(["device.driver == 'example.com'", ""]));
    assert!(class(Value::Null).selectors().next().is_none());
}

#[test]
fn a_claim_that_is_not_allocated_has_no_devices() {
    let requests = json!([{"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}]);
    assert_eq!(claim(&requests, &Value::Null), devices(&[]));
    let claim: ResourceClaim = serde_json::from_value(json!({"spec": {"devices": {}}})).unwrap();
    assert_eq!(claim.devices(), devices(&[]));
}

#[test]
fn administrative_access_takes_no_device() {
    let requests =
        json!([{"name": "watch", "exactly": {"deviceClassName": "gpu.example.com", "adminAccess": true}}]);
    let results = json!([{"request": "watch", "device": "gpu-0", "adminAccess": true}]);
    assert_eq!(claim(&requests, &results), devices(&[]));
    assert_eq!(template(&requests), devices(&[]));
}

#[test]
fn a_template_asks_for_the_first_choice_of_each_request() {
    let requests = json!([
        {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}},
        {"name": "more", "exactly": {"deviceClassName": "gpu.example.com"}},
        {"name": "nic", "firstAvailable": [
            {"name": "fast", "deviceClassName": "fast.example.com", "count": 3},
            {"name": "slow", "deviceClassName": "slow.example.com"},
        ]},
    ]);
    assert_eq!(template(&requests), devices(&[("fast.example.com", 3), ("gpu.example.com", 3)]));
}

#[test]
fn a_device_counts_as_the_extended_resource_of_its_class_or_as_the_implicit_one() {
    let class = |name: &str, resource: Value| -> DeviceClass {
        let spec = json!({"extendedResourceName": resource});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let mut resources = DeviceResources::default();
    for (name, resource) in [
        ("plain", json!("example.com/before")),
        ("plain", Value::Null),
        ("a100", json!("nvidia.com/gpu")),
        ("h100", json!("nvidia.com/gpu")),
    ] {
        resources.put(class(name, resource));
    }
    let amounts = resources.amounts(&devices(&[("a100", 1), ("h100", 2), ("plain", 4), ("unknown", 8)]));
    let expected = [
        ("deviceclass.resource.kubernetes.io/plain", 4),
        ("deviceclass.resource.kubernetes.io/unknown", 8),
        ("nvidia.com/gpu", 3),
    ];
    assert_eq!(amounts, expected.map(|(of, amount)| (of.to_owned(), amount)).into());
}
