//! Answers to the creation of owners, which are on by default.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_policy::owner_table::{OwnerTable, PausableKinds};

use crate::{
    NOWHERE, accepted, arguments, find,
    keeper::rollout,
    kinds, render,
    rights::{granted_to, triples},
    shared,
    values::assert_refused,
};

const CONFIGURATION: &str = "ValidatingWebhookConfiguration";

/// The webhooks, by these values.
async fn webhooks(values: &Value) -> Vec<Value> {
    let objects = render("test", values).await;
    let webhooks = &find(&objects, CONFIGURATION, "test-tenure-webhook-owners")["webhooks"];
    serde_json::from_value(webhooks.clone()).unwrap()
}

/// Group, version and resource of each rule.
fn reviewed(webhooks: &[Value]) -> Vec<(String, String, String)> {
    let rules = webhooks.iter().flat_map(|webhook| webhook["rules"].as_array().unwrap());
    let texts = |of: &Value| serde_json::from_value::<Vec<String>>(of.clone()).unwrap();
    let mut reviewed = Vec::new();
    for rule in rules {
        assert_eq!(
            (&rule["scope"], &rule["operations"]),
            (&json!("Namespaced"), &json!(["CREATE", "UPDATE"]))
        );
        for group in texts(&rule["apiGroups"]) {
            for version in texts(&rule["apiVersions"]) {
                for resource in texts(&rule["resources"]) {
                    reviewed.push((group.clone(), version.clone(), resource));
                }
            }
        }
    }
    reviewed
}

#[tokio::test]
async fn owners_are_reviewed_by_default_and_not_where_that_is_turned_off() {
    let off = json!({"webhook": {"owners": {"enabled": false}}});
    for (values, is_on) in [(json!({}), true), (off, false)] {
        let objects = render("test", &values).await;
        assert_eq!(kinds(&objects).get(CONFIGURATION), Some(&(1 + usize::from(is_on))));
        let arguments = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
        assert_eq!(arguments.contains(&"--answer-owners".to_owned()), is_on, "{arguments:?}");
    }
}

#[tokio::test]
async fn every_kind_that_is_paused_is_reviewed_in_exact_versions_and_no_other_but_cron_jobs() {
    let reviewed = reviewed(&webhooks(&json!({})).await);
    let mut expected: BTreeSet<_> = OwnerTable::default()
        .ancestors()
        .filter(|(group, _, is_paused)| *is_paused && *group != "kueue.x-k8s.io")
        .map(|(group, kind, _)| (group.to_owned(), PausableKinds::resource(kind)))
        .collect();
    expected.insert(("batch".into(), "cronjobs".into()));
    let found: Vec<_> =
        reviewed.iter().map(|(group, _, resource)| (group.clone(), resource.clone())).collect();
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert!(reviewed.iter().all(|(_, version, resource)| version != "*" && !resource.contains(['*', '/'])));
}

#[tokio::test]
async fn rows_of_an_administrator_are_reviewed_once_and_those_of_kueue_never() {
    let row = |group: &str, kind: &str, resource: &str, path: &str| json!({"group": group, "kind": kind, "resource": resource, "path": path, "value": true});
    let rows = json!([
        rollout(),
        row("batch", "Job", "jobs", "spec.suspend"),
        row("example.com", "Thing", "things", "spec.a"),
        row("example.com", "Thing", "things", "spec.b"),
        row("kueue.x-k8s.io", "Workload", "workloads", "spec.active"),
    ]);
    let reviewed = reviewed(&webhooks(&json!({"keeper": {"owners": rows}})).await);
    let count = |group: &str, resource: &str| {
        reviewed.iter().filter(|(of, _, name)| of == group && name == resource).count()
    };
    assert_eq!(
        ["argoproj.io/rollouts", "batch/jobs", "example.com/things", "kueue.x-k8s.io/workloads"].map(|of| {
            let (group, resource) = of.split_once('/').unwrap();
            count(group, resource)
        }),
        [1, 1, 1, 0]
    );
}

#[tokio::test]
async fn no_workload_waits_for_a_webhook_that_is_down() {
    for webhook in webhooks(&json!({"webhook": {"failurePolicy": "Fail"}})).await {
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(webhook["timeoutSeconds"], 2);
        assert_eq!(webhook["sideEffects"], "None");
        let exempt = json!([{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "tenure-system"],
        }]);
        assert_eq!(webhook["namespaceSelector"]["matchExpressions"], exempt);
    }
}

#[tokio::test]
async fn guard_and_answers_are_trusted_as_the_other_webhooks_are_and_the_api_server_takes_their_conditions() {
    let cluster = shared().await;
    let ca = cluster.authority().certificate_pem();
    for mode in ["selfManaged", "certManager", "existingSecret"] {
        let existing = json!({"name": "mine", "caBundle": ca});
        let queues = json!([{"localQueue": "main", "queue": "research"}]);
        let certificate = json!({"mode": mode, "existingSecret": existing});
        let values = json!({
            "kueue": {"queues": queues}, "keeper": {"owners": [rollout()]}, "webhook": {"certificate": certificate},
            "guard": {"enabled": true},
        });
        let objects = accepted(&values).await;
        let admission = find(&objects, CONFIGURATION, "test-tenure-webhook");
        for which in ["guard", "owners"] {
            let configuration = find(&objects, CONFIGURATION, &format!("test-tenure-webhook-{which}"));
            for webhook in configuration["webhooks"].as_array().unwrap() {
                let bundle = webhook.pointer("/clientConfig/caBundle");
                assert_eq!(bundle, admission.pointer("/webhooks/0/clientConfig/caBundle"), "{mode}");
                assert_eq!(bundle.is_none(), mode != "existingSecret");
                assert_eq!(webhook.pointer("/clientConfig/service/path"), Some(&json!(format!("/{which}"))));
            }
            let annotations = "/metadata/annotations";
            assert_eq!(configuration.pointer(annotations), admission.pointer(annotations), "{mode}");
        }
        let arguments = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
        let of_owners = ",test-tenure-webhook-owners";
        let is_set = |flag: &String| flag.starts_with("--validating-") && flag.ends_with(of_owners);
        assert_eq!(arguments.iter().any(is_set), mode == "selfManaged", "{arguments:?}");
    }
}

#[tokio::test]
async fn webhook_may_look_up_the_queues_of_pods_where_it_answers() {
    let objects = render("test", &json!({})).await;
    let arguments = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
    assert!(arguments.contains(&"--answer-owners".into()), "{arguments:?}");
    let lookups: BTreeSet<_> = [
        triples("webhook", &["scheduling.run.ai"], &["podgroups"], &["get"]),
        triples("webhook", &["scheduler.tensorstack.dev"], &["podgroups", "queues"], &["get"]),
    ]
    .concat()
    .into_iter()
    .collect();
    assert!(granted_to("webhook", &objects).is_superset(&lookups));
    let off = render("test", &json!({"webhook": {"owners": {"enabled": false}}})).await;
    assert!(granted_to("webhook", &off).is_disjoint(&lookups));
    let outside = webhooks(&json!({"webhook": {"url": NOWHERE}})).await;
    assert_eq!(outside[0]["clientConfig"]["url"], format!("{NOWHERE}/owners"));
}

#[tokio::test]
async fn value_of_owners_that_cannot_be_meant_is_refused_by_its_name() {
    let owners = |values: Value| json!({"webhook": {"owners": values}});
    assert_refused(&[
        (owners(json!({"enable": true})), "'/webhook/owners': additional properties 'enable' not allowed"),
        (owners(json!({"enabled": "true"})), "'/webhook/owners/enabled': got string, want boolean"),
    ])
    .await;
}
