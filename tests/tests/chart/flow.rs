//! The place of Tenure's requests in the queues of the API server.

use serde_json::{Value, json};

use crate::{NAMESPACE, find, kinds, render, values::assert_refused};

const NAME: &str = "test-tenure";

fn subject(name: &str, namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": namespace}})
}

#[tokio::test]
async fn requests_of_keeper_and_webhook_and_their_leases_have_levels_of_their_own() {
    let objects = render("test", &json!({})).await;
    let both = json!([subject("test-tenure-keeper", NAMESPACE), subject("test-tenure-webhook", NAMESPACE)]);
    for (name, level) in [(NAME, "workload-high"), ("test-tenure-leases", "leader-election")] {
        let spec = &find(&objects, "FlowSchema", name)["spec"];
        assert_eq!(spec["priorityLevelConfiguration"]["name"], json!(level));
        assert_eq!(spec["rules"][0]["subjects"], both);
    }
    let precedence = |name| find(&objects, "FlowSchema", name)["spec"]["matchingPrecedence"].as_u64();
    assert!(precedence("test-tenure-leases") < precedence(NAME));
    let leases = &find(&objects, "FlowSchema", "test-tenure-leases")["spec"]["rules"][0];
    assert_eq!(leases["resourceRules"][0]["resources"], json!(["leases"]));
    assert_eq!(leases.get("nonResourceRules"), None);
}

#[tokio::test]
async fn the_level_of_all_but_leases_is_a_value_and_all_of_it_can_be_turned_off() {
    let values = json!({
        "flowControl": {"priorityLevel": "mine"},
        "keeper": {"enabled": false},
        "webhook": {"serviceAccount": {"create": false, "name": "theirs"}},
        "namespaceOverride": "other",
    });
    let objects = render("test", &values).await;
    for (name, level) in [(NAME, "mine"), ("test-tenure-leases", "leader-election")] {
        let spec = &find(&objects, "FlowSchema", name)["spec"];
        assert_eq!(spec["priorityLevelConfiguration"]["name"], json!(level));
        assert_eq!(spec["rules"][0]["subjects"], json!([subject("theirs", "other")]));
    }
    let objects = render("test", &json!({"flowControl": {"enabled": false}})).await;
    assert_eq!(kinds(&objects).get("FlowSchema"), None);
    assert_refused(&[
        (json!({"flowControl": {"priorityLevel": ""}}), "'/flowControl/priorityLevel'"),
        (json!({"flowControl": {"level": "x"}}), "'/flowControl': additional properties 'level' not allowed"),
    ])
    .await;
}
