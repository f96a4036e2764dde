//! Parts of the tree with administrators of their own: a policy of the API server, and bounds of the webhook.

use serde_json::{Value, json};

use crate::{
    assert_accepted, find, helm, kinds, parse, render, shared,
    values::{assert_refused, config},
};

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

fn delegation(values: &Value) -> Value {
    json!({"delegation": values})
}

#[tokio::test]
async fn delegation_is_off_by_default_and_where_values_of_an_older_chart_are_reused() {
    for values in
        [json!({}), json!({"delegation": null}), delegation(&json!({"enabled": false, "bounds": null}))]
    {
        let objects = render("test", &values).await;
        assert_eq!((kinds(&objects).get(POLICY), kinds(&objects).get(BINDING)), (Some(&8), Some(&8)));
        assert_eq!(config(&values).await.get("delegation"), None);
    }
}

#[tokio::test]
async fn policy_of_the_delegation_refuses_what_it_can_not_judge_and_the_api_server_accepts_it() {
    let values = delegation(&json!({"enabled": true}));
    let rendered = helm(shared().await, "template", "test", &values, &[]).await.success().unwrap();
    let objects = parse(&rendered);
    let name = "test-tenure-delegation";
    assert_eq!(find(&objects, POLICY, name)["spec"]["failurePolicy"], "Fail");
    let binding = find(&objects, BINDING, name);
    assert_eq!(binding["spec"], json!({"policyName": name, "validationActions": ["Deny"]}));
    assert_accepted(&rendered, objects.len()).await;
}

#[tokio::test]
async fn bounds_become_configuration_with_and_without_the_policy() {
    let bounds = json!([{"queue": "a", "preemptMinRuntime": "2h", "reclaimMinRuntime": "30m"}, {"queue": "b.c", "reclaimMinRuntime": "0s"}]);
    for enabled in [true, false] {
        let values = delegation(&json!({"enabled": enabled, "bounds": bounds}));
        assert_eq!(config(&values).await["delegation"], json!({"bounds": bounds}));
    }
}

#[tokio::test]
async fn value_of_the_delegation_that_cannot_be_meant_is_refused_by_its_name() {
    let bound = |bound: Value| delegation(&json!({"bounds": [bound]}));
    assert_refused(&[
        (delegation(&json!({"bound": []})), "'/delegation': additional properties 'bound' not allowed"),
        (delegation(&json!({"enabled": "yes"})), "'/delegation/enabled': got string, want boolean"),
        (bound(json!({"preemptMinRuntime": "2h"})), "missing property 'queue'"),
        (bound(json!({"queue": "a"})), "'/delegation/bounds/0'"),
        (bound(json!({"queue": "A", "preemptMinRuntime": "2h"})), "'/delegation/bounds/0/queue'"),
        (bound(json!({"queue": "a", "preemptMinRuntime": "-2h"})), "'/delegation/bounds/0/preemptMinRuntime'"),
        (bound(json!({"queue": "a", "reclaimMinRuntime": ""})), "'/delegation/bounds/0/reclaimMinRuntime'"),
        (bound(json!({"queue": "a", "maxDuration": "2h"})), "'/delegation/bounds/0'"),
        (
            delegation(&json!({"bounds": [{"queue": "a", "preemptMinRuntime": "2h"}, {"queue": "a", "reclaimMinRuntime": "2h"}]})),
            "delegation.bounds has two rows for queue \"a\"",
        ),
    ])
    .await;
}
