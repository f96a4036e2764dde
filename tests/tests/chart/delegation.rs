//! Parts of the tree with administrators of their own: a policy of the API server, and bounds of the webhook.

use serde_json::{Value, json};

use crate::{
    accepted, find, kinds, render,
    values::{assert_refused, config},
};

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// The policy that looks at the queues below a queue.
const CHILDREN: &str = "test-tenure-delegation-children";

fn delegation(values: &Value) -> Value {
    json!({"delegation": values})
}

#[tokio::test]
async fn delegation_is_off_by_default() {
    for values in [json!({}), delegation(&json!({"enabled": false, "bounds": null}))] {
        let objects = render("test", &values).await;
        assert_eq!((kinds(&objects).get(POLICY), kinds(&objects).get(BINDING)), (Some(&9), Some(&9)));
        assert_eq!(config(&values).await.get("delegation"), None);
    }
}

#[tokio::test]
async fn policies_of_the_delegation_refuse_what_they_can_not_judge_and_the_api_server_accepts_them() {
    let values = delegation(&json!({"enabled": true}));
    let objects = accepted(&values).await;
    let queues = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    for (name, params) in [("test-tenure-delegation", None), (CHILDREN, Some(queues))] {
        assert_eq!(find(&objects, POLICY, name)["spec"]["failurePolicy"], "Fail");
        let spec = &find(&objects, BINDING, name)["spec"];
        assert_eq!((&spec["policyName"], &spec["validationActions"]), (&json!(name), &json!(["Deny"])));
        assert_eq!(spec.get("paramRef"), params.as_ref());
    }
}

/// Otherwise the API server would refuse the creation of queues while no webhook converts the others.
#[tokio::test]
async fn policy_of_the_delegation_reads_queues_in_the_version_that_is_stored() {
    for (mut values, version) in [
        (json!({}), "v3alpha1"),
        (json!({"queueVersion": "v2"}), "v3alpha1"),
        // that of KAI-Scheduler's definition
        (json!({"crds": {"runai": false}}), "v2"),
    ] {
        values["delegation"] = json!({"enabled": true});
        let objects = render("test", &values).await;
        let kind = &find(&objects, POLICY, CHILDREN)["spec"]["paramKind"];
        let expected = json!({"apiVersion": format!("scheduling.run.ai/{version}"), "kind": "Queue"});
        assert_eq!(kind, &expected, "{values}");
    }
}

#[tokio::test]
async fn policy_of_the_delegation_names_each_queue_of_the_values_once() {
    let named = async |mut values: Value| {
        values["delegation"]["enabled"] = json!(true);
        let objects = render("test", &values).await;
        let spec = &find(&objects, POLICY, "test-tenure-delegation")["spec"];
        spec["validations"].to_string()
    };
    let values = json!({
        "tenancy": {
            "defaultQueue": {"runai": "shared", "tensorstack": "flat"},
            "queueAccess": {"grants": [{"queue": "granted", "namespaces": ["a"]}]},
        },
        "kueue": {"queues": [{"localQueue": "main", "queue": "granted"}, {"clusterQueue": "gpu", "queue": "two-days"}]},
        "delegation": {"bounds": [{"queue": "bounded", "preemptMinRuntime": "2h"}]},
    });
    let expected =
        json!("object.metadata.name in [\"bounded\",\"granted\",\"shared\",\"two-days\"]").to_string();
    let validations = named(values).await;
    assert!(validations.contains(expected.trim_matches('"')), "{validations}");
    let validations = named(json!({})).await;
    assert!(!validations.contains("values of the chart"), "{validations}");
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
        (bound(json!({"preemptMinRuntime": "2h"})), "'/delegation/bounds/0': missing property 'queue'"),
        (bound(json!({"queue": "a"})), "'/delegation/bounds/0'"),
        (bound(json!({"queue": "A", "preemptMinRuntime": "2h"})), "'/delegation/bounds/0/queue'"),
        (bound(json!({"queue": "a", "preemptMinRuntime": "-2h"})), "'/delegation/bounds/0/preemptMinRuntime'"),
        (bound(json!({"queue": "a", "reclaimMinRuntime": ""})), "'/delegation/bounds/0/reclaimMinRuntime'"),
        (bound(json!({"queue": "a", "maxDuration": "2h"})), "'/delegation/bounds/0'"),
        (
            delegation(&json!({"bounds": [{"queue": "a", "preemptMinRuntime": "2h"}, {"queue": "a", "reclaimMinRuntime": "2h"}]})),
            "delegation.bounds has two rows for queue \"a\": remove one",
        ),
    ])
    .await;
}
