//! The admission policies that restrict tenants' writes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_policy::{climb::LINKS, owner_table::OwnerTable};

use crate::{
    accepted, find, kinds, name_of, render,
    rights::rights,
    values::{assert_refused, config},
};

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

fn tenancy(values: &Value) -> Value {
    json!({"tenancy": values})
}

#[tokio::test]
async fn trusted_writers_are_exempt_from_the_policies_and_known_to_the_webhook() {
    let odd = r#"O'Hara "x" \ <&>"#;
    let writers = json!(["system:serviceaccount:a:b", odd]);
    let values = tenancy(&json!({"trustedWriters": writers}));
    assert_eq!(config(&values).await["tenancy"], json!({"trustedWriters": writers}));
    let objects = accepted(&values).await;
    let expected = r#"!(request.userInfo.username in ["system:serviceaccount:a:b","O'Hara \"x\" \\ \u003c\u0026\u003e"])"#;
    for policy in ["bound-pods", "podgroup-queues", "owner-references"] {
        let policy = find(&objects, POLICY, &format!("test-tenure-{policy}"));
        let conditions = policy["spec"]["matchConditions"].as_array().unwrap();
        assert!(conditions.iter().any(|condition| condition["expression"] == expected), "{conditions:?}");
    }
}

#[tokio::test]
async fn policies_are_bound_everywhere_and_refuse_what_they_can_not_judge() {
    for values in [json!({}), tenancy(&json!({"requireQueue": null, "trustedWriters": null}))] {
        let objects = render("test", &values).await;
        assert_eq!((kinds(&objects).get(POLICY), kinds(&objects).get(BINDING)), (Some(&9), Some(&9)));
        for name in ["test-tenure-bound-pods", "test-tenure-podgroup-queues"] {
            let binding = find(&objects, BINDING, name);
            assert_eq!(binding["spec"], json!({"policyName": name, "validationActions": ["Deny"]}));
            assert_eq!(find(&objects, POLICY, name)["spec"]["failurePolicy"], "Fail");
        }
        assert_eq!(config(&values).await.get("tenancy"), None);
    }
}

#[tokio::test]
async fn queues_are_required_in_selected_namespaces_but_never_of_the_system_and_of_tenure() {
    let own = |namespaces: &[&str]| json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces});
    let team = json!({"key": "team", "operator": "In", "values": ["a", "b"]});
    let usual = own(&["kube-system", "tenure-system"]);
    for (selector, namespace, expected) in [
        (
            json!({"matchLabels": {"gpu": "true"}}),
            "",
            json!({"matchLabels": {"gpu": "true"}, "matchExpressions": [usual]}),
        ),
        (json!({"matchExpressions": [team]}), "", json!({"matchExpressions": [team, usual]})),
        (
            json!({"matchExpressions": [team]}),
            "kube-system",
            json!({"matchExpressions": [team, own(&["kube-system"])]}),
        ),
    ] {
        let mut values = tenancy(&json!({"requireQueue": selector}));
        values["namespaceOverride"] = json!(namespace);
        let objects = accepted(&values).await;
        let name = "test-tenure-require-queue";
        assert_eq!(find(&objects, POLICY, name)["spec"]["failurePolicy"], "Fail");
        assert_eq!(find(&objects, BINDING, name)["spec"]["matchResources"]["namespaceSelector"], expected);
    }
}

/// As `helm upgrade --set tenancy.requireQueue.matchLabels.gpu=null` leaves the value.
#[tokio::test]
async fn a_selector_without_a_requirement_selects_no_namespace() {
    let gpu = json!({"matchLabels": {"gpu": "true"}});
    for vacuous in [
        json!({"matchLabels": {}}),
        json!({"matchExpressions": []}),
        json!({"matchLabels": {}, "matchExpressions": []}),
    ] {
        for (values, like) in [
            (json!({"requireQueue": vacuous}), json!({})),
            (json!({"namespaces": vacuous}), json!({})),
            (json!({"requireQueue": vacuous, "namespaces": gpu}), json!({"namespaces": gpu})),
            (json!({"requireQueue": gpu, "namespaces": vacuous}), json!({"requireQueue": gpu})),
        ] {
            let rendered = render("test", &tenancy(&values)).await;
            assert!(rendered == render("test", &tenancy(&like)).await, "{values} should be as {like}");
        }
    }
}

#[tokio::test]
async fn owners_may_be_named_by_all_or_with_a_warning() {
    let of = |value: &str| tenancy(&json!({"ownerReferences": value}));
    let name = "test-tenure-owner-references";
    let elsewhere = json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "tenure-system"]}]);
    for (value, actions) in [("Deny", json!(["Deny"])), ("Audit", json!(["Warn", "Audit"]))] {
        let objects = render("test", &of(value)).await;
        let spec = &find(&objects, BINDING, name)["spec"];
        assert_eq!(spec["validationActions"], actions);
        assert_eq!(spec["matchResources"]["namespaceSelector"]["matchExpressions"], elsewhere);
        assert_eq!(find(&objects, POLICY, name)["spec"]["failurePolicy"], "Fail");
    }
    let off = render("test", &of("Off")).await;
    assert!(!off.iter().any(|object| name_of(object) == name));
}

/// The resource of each kind in the policy on references to owners, by `GROUP/KIND`.
async fn resources_of_owners(values: &Value) -> BTreeMap<String, String> {
    let objects = render("test", values).await;
    let policy = find(&objects, POLICY, "test-tenure-owner-references");
    let variables = policy.pointer("/spec/variables").and_then(Value::as_array).unwrap();
    let resource = variables.iter().find(|variable| variable["name"] == "resource").unwrap();
    let (map, _) = resource["expression"].as_str().unwrap().split_once("[?").unwrap();
    serde_json::from_str(map).unwrap()
}

#[tokio::test]
async fn the_policy_on_owners_knows_each_kind_that_the_keeper_pauses_or_climbs_over() {
    let own = json!({"keeper": {"owners": [
        {"group": "example.com", "kind": "Gateway", "resource": "gatewaies", "path": "spec.suspend", "value": true},
    ]}});
    let known = resources_of_owners(&own).await;
    assert_eq!(known["example.com/Gateway"], "gatewaies");
    for (group, kind, _) in OwnerTable::default().ancestors() {
        assert_eq!(known[&format!("{group}/{kind}")], format!("{}s", kind.to_lowercase()));
    }
    let table = OwnerTable::default();
    let is_link = |group: &str, kind: &str| LINKS.contains(&(group, kind));
    for kind in known.keys().filter(|kind| *kind != "example.com/Gateway") {
        let (group, kind) = kind.rsplit_once('/').unwrap();
        assert!(table.knows_kind(group, kind) || is_link(group, kind), "{group} {kind} ends a climb");
    }
    // no owner above these counts: a node has no namespace, and the keeper doesn't read the other
    let are_ends = ["Node", "ReplicationController"];
    for (group, kind) in LINKS.into_iter().filter(|(_, kind)| !are_ends.contains(kind)) {
        let resource = &known[&format!("{group}/{kind}")];
        assert!(rights().contains(&format!("keeper get {resource}.{group}")), "{resource}.{group}");
    }
}

#[tokio::test]
async fn value_of_the_tenancy_that_cannot_be_meant_is_refused_by_its_name() {
    let selector = |selector: Value| tenancy(&json!({"requireQueue": selector}));
    assert_refused(&[
        (
            tenancy(&json!({"requireQueues": {}})),
            "'/tenancy': additional properties 'requireQueues' not allowed",
        ),
        (tenancy(&json!({"trustedWriters": "a"})), "'/tenancy/trustedWriters': got string, want array"),
        (tenancy(&json!({"trustedWriters": [" a"]})), "'/tenancy/trustedWriters/0'"),
        (
            tenancy(&json!({"trustedWriters": ["a", "a"]})),
            "'/tenancy/trustedWriters': items at 0 and 1 are equal",
        ),
        (tenancy(&json!({"ownerReferences": "Warn"})), "'/tenancy/ownerReferences': value must be one of"),
        (selector(json!({"team": "a"})), "'/tenancy/requireQueue': additional properties 'team' not allowed"),
        (selector(json!({"matchLabels": {"team": true}})), "'/tenancy/requireQueue/matchLabels/team'"),
        (
            selector(json!({"matchExpressions": [{"key": "team", "operator": "Is"}]})),
            "'/tenancy/requireQueue/matchExpressions/0/operator': value must be one of",
        ),
        (
            selector(json!({"matchExpressions": [{"operator": "Exists"}]})),
            "'/tenancy/requireQueue/matchExpressions/0': missing property 'key'",
        ),
    ])
    .await;
}
