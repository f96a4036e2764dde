//! The rights of the service accounts.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    rbac::v1::{ClusterRole, PolicyRule},
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tenure_policy::owner_table::{KINDS, PausableKinds};
use tenure_testbed::eventually;

use crate::{DEADLINE, NAMESPACE, find, installed, keeper::rollout, render};

pub const WATCHED: &[&str] = &["list", "watch"];
const STAMPED: &[&str] = &["list", "watch", "patch"];
const OWNER: &[&str] = &["get", "list", "watch", "patch"];
const BETWEEN: &[&str] = &["get", "list", "watch"];
const ABOVE: &[&str] = &["get"];

/// All that Tenure may do in the whole cluster besides pausing: component, API group, resources, verbs.
const RIGHTS: &[(&str, &str, &[&str], &[&str])] = &[
    ("webhook", "scheduling.run.ai", &["queues"], &["get", "list", "watch"]),
    ("webhook", "scheduling.run.ai", &["podgroups"], &["get"]),
    ("webhook", "scheduler.tensorstack.dev", &["podgroups", "queues"], &["get"]),
    ("keeper", "scheduling.run.ai", &["queues"], WATCHED),
    ("keeper", "scheduler.tensorstack.dev", &["queues"], WATCHED),
    ("keeper", "scheduler.tensorstack.dev", &["podgroups"], STAMPED),
    ("keeper", "scheduling.k8s.io", &["podgroups"], STAMPED),
    ("keeper", "scheduling.run.ai", &["podgroups"], STAMPED),
    ("keeper", "scheduling.volcano.sh", &["podgroups"], STAMPED),
    ("keeper", "scheduling.x-k8s.io", &["podgroups"], STAMPED),
    ("keeper", "scheduling.run.ai", &["queues/status"], &["patch"]),
    ("keeper", "scheduling.k8s.io", &["priorityclasses"], &["get"]),
    ("keeper", "tenure.dev", &["extensions"], WATCHED),
    ("keeper", "tenure.dev", &["extensions/status"], &["patch"]),
    ("keeper", "", &["pods"], &["get", "list", "watch", "delete", "patch"]),
    ("keeper", "events.k8s.io", &["events"], &["create", "get"]),
    ("keeper", "bus.volcano.sh", &["commands"], &["create"]),
    ("keeper", "serving.knative.dev", &["services", "configurations", "revisions"], BETWEEN),
    ("keeper", "apps", &["daemonsets"], ABOVE),
    ("keeper", "", &["nodes"], ABOVE),
    ("keeper", "batch", &["cronjobs"], ABOVE),
    ("keeper", "batch.tensorstack.dev", &["beamjobs", "cronworkflowruns", "workflowruns"], ABOVE),
    ("keeper", "tensorstack.dev", &["autotuneexperiments", "explorers"], ABOVE),
    ("keeper", "argoproj.io", &["rollouts"], ABOVE),
    ("keeper", "serving.kserve.io", &["inferenceservices"], ABOVE),
    ("keeper", "sparkoperator.k8s.io", &["scheduledsparkapplications"], ABOVE),
];

/// All of them, with default values.
pub fn rights() -> BTreeSet<String> {
    let paused = KINDS.iter().flat_map(|row| {
        let resources: Vec<_> = row.kinds.iter().map(|kind| PausableKinds::resource(kind)).collect();
        triples("keeper", &[row.group], &resources.iter().map(String::as_str).collect::<Vec<_>>(), OWNER)
    });
    let each = RIGHTS.iter();
    each.flat_map(|(component, group, resources, verbs)| triples(component, &[*group], resources, verbs))
        .chain(paused)
        .collect()
}

fn granted(objects: &[Value]) -> BTreeSet<String> {
    ["webhook", "keeper"].into_iter().flat_map(|component| granted_to(component, objects)).collect()
}

/// The rights that release `test` grants to a component.
pub fn granted_to(component: &str, objects: &[Value]) -> BTreeSet<String> {
    let role = find(objects, "ClusterRole", &format!("test-tenure-{component}")).clone();
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    let rules = role.rules.unwrap();
    rules
        .iter()
        .filter(|rule| rule.resource_names.is_none())
        .flat_map(|rule| by_rule(component, rule))
        .collect()
}

/// The rights of release `test` that are for objects of one name.
fn granted_by_name(component: &str, objects: &[Value]) -> Vec<Value> {
    let rules =
        find(objects, "ClusterRole", &format!("test-tenure-{component}"))["rules"].as_array().unwrap();
    rules.iter().filter(|rule| rule.get("resourceNames").is_some()).cloned().collect()
}

fn by_rule(component: &str, rule: &PolicyRule) -> Vec<String> {
    assert_eq!(rule.non_resource_urls, None);
    let (groups, resources) = (rule.api_groups.as_deref(), rule.resources.as_deref());
    triples(component, groups.unwrap(), resources.unwrap(), &rule.verbs)
}

/// Each right by itself: `keeper get pods.`
pub fn triples<T: AsRef<str>>(component: &str, groups: &[T], resources: &[T], verbs: &[T]) -> Vec<String> {
    let mut triples = Vec::new();
    for group in groups {
        for resource in resources {
            for verb in verbs {
                let (group, resource, verb) = (group.as_ref(), resource.as_ref(), verb.as_ref());
                triples.push(format!("{component} {verb} {resource}.{group}"));
            }
        }
    }
    triples
}

#[tokio::test]
async fn roles_grant_what_is_needed_and_no_more() {
    let objects = render("test", &json!({})).await;
    assert_eq!(granted(&objects), rights());
    let named = |group: &str, resource: &str, names: &[&str]| json!({"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": ["get", "patch"]});
    let admission = "admissionregistration.k8s.io";
    let validating = ["test-tenure-webhook", "test-tenure-webhook-guard", "test-tenure-webhook-owners"];
    let expected = [
        named("apiextensions.k8s.io", "customresourcedefinitions", &["queues.scheduling.run.ai"]),
        named(admission, "validatingwebhookconfigurations", &validating),
        named(admission, "mutatingwebhookconfigurations", &["test-tenure-webhook"]),
    ];
    assert_eq!(granted_by_name("webhook", &objects), expected[1..]);
    let with_v2 = render("test", &json!({"crds": {"serveV2": true}})).await;
    assert_eq!(granted_by_name("webhook", &with_v2), expected);
    assert_eq!(granted_by_name("keeper", &objects), Vec::<Value>::new());
    let role = find(&objects, "Role", "test-tenure-keeper");
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["test-tenure-keeper"],
            "verbs": ["get", "update", "patch"],
        },
    ]);
    assert_eq!(
        (role.get("rules"), role.pointer("/metadata/namespace")),
        (Some(&rules), Some(&json!(NAMESPACE)))
    );
}

#[tokio::test]
async fn kinds_that_are_added_come_with_the_rights_of_the_others() {
    let notebook = json!({
        "group": "tensorstack.dev", "kind": "Notebook", "resource": "notebooks", "path": "spec.suspend", "value": true,
    });
    let controller = json!({
        "group": "", "kind": "ReplicationController", "resource": "replicationcontrollers",
        "path": "spec.replicas", "value": 0,
    });
    let objects = render("test", &json!({"keeper": {"owners": [rollout(), notebook, controller]}})).await;
    let added = [("argoproj.io", "rollouts"), ("", "replicationcontrollers")];
    let added = added.map(|(group, resource)| triples("keeper", &[group], &[resource], OWNER));
    let expected = rights().into_iter().chain(added.into_iter().flatten()).collect();
    assert_eq!(granted(&objects), expected);
}

#[tokio::test]
async fn only_kinds_whose_row_says_so_may_be_deleted() {
    let row = |on_expiry: &str| {
        json!({
            "group": "batch", "kind": "Job", "resource": "jobs", "path": "spec.suspend", "value": true,
            "onExpiry": on_expiry,
        })
    };
    let of = async |on_expiry: &str, dry_run: bool| {
        let keeper = json!({"owners": [rollout(), row(on_expiry)], "dryRun": dry_run});
        granted(&render("test", &json!({"keeper": keeper})).await)
    };
    let (pause, delete) = (of("Pause", false).await, of("Delete", false).await);
    let added: Vec<_> = delete.difference(&pause).collect();
    assert_eq!(added, ["keeper delete jobs.batch"]);
    assert!(pause.is_subset(&delete));
    assert_eq!(of("Delete", true).await, of("Pause", true).await);
}

#[tokio::test]
async fn jobs_may_be_deleted_only_where_paused_ones_have_a_limit() {
    let of = async |limit: Value, dry_run: bool| {
        let keeper = json!({"pausedHistoryLimit": limit, "dryRun": dry_run});
        granted(&render("test", &json!({"keeper": keeper})).await)
    };
    let without = of(json!(""), false).await;
    assert_eq!(without, of(Value::Null, false).await);
    let with = of(json!(0), false).await;
    assert_eq!(with.difference(&without).collect::<Vec<_>>(), ["keeper delete jobs.batch"]);
    assert_eq!(of(json!(0), true).await, of(json!(""), true).await);
}

#[tokio::test]
async fn where_kai_owns_the_definition_the_status_of_a_queue_is_an_annotation() {
    let granted = granted(&render("test", &json!({"crds": {"runai": false}})).await);
    assert!(granted.contains("keeper patch queues.scheduling.run.ai"));
    assert!(!granted.contains("keeper patch queues/status.scheduling.run.ai"));
}

#[tokio::test]
async fn dry_run_has_no_right_to_change_anything() {
    let owners = json!({"owners": [rollout()], "dryRun": true});
    let granted = granted(&render("test", &json!({"keeper": owners})).await);
    let added = triples("keeper", &["argoproj.io"], &["rollouts"], BETWEEN);
    let reads = |right: &String| ["get", "list", "watch"].contains(&right.split(' ').nth(1).unwrap());
    let mut expected: BTreeSet<_> = rights().into_iter().filter(reads).chain(added).collect();
    expected.insert("keeper create events.events.k8s.io".into());
    assert_eq!(granted, expected);
}

#[tokio::test]
async fn service_accounts_have_the_rights_of_their_roles_alone() {
    let (cluster, _) = installed().await;
    let reviews = &Api::<SubjectAccessReview>::all(cluster.client().unwrap());
    let table = [
        ("webhook", "list", "queues.scheduling.run.ai", "yes"),
        ("webhook", "update", "queues.scheduling.run.ai", "no"),
        ("webhook", "list", "queues.scheduler.tensorstack.dev", "no"),
        ("webhook", "list", "pods", "no"),
        ("webhook", "get", "secrets", "no"),
        ("keeper", "patch", "deployments.apps", "yes"),
        ("keeper", "delete", "pods", "yes"),
        ("keeper", "create", "events.events.k8s.io", "yes"),
        ("keeper", "create", "pods", "no"),
        ("keeper", "patch", "pods", "yes"),
        ("keeper", "update", "pods", "no"),
        ("keeper", "create", "pods --subresource=eviction", "no"),
        ("keeper", "patch", "pods --subresource=status", "no"),
        ("keeper", "get", "priorityclasses.scheduling.k8s.io", "yes"),
        ("keeper", "list", "priorityclasses.scheduling.k8s.io", "no"),
        ("keeper", "patch", "jobs.batch", "yes"),
        ("keeper", "patch", "cronjobs.batch", "no"),
        ("keeper", "delete", "deployments.apps", "no"),
        ("keeper", "update", "deployments.apps", "no"),
        ("keeper", "patch", "daemonsets.apps", "no"),
        ("keeper", "update", "queues.scheduling.run.ai", "no"),
        ("keeper", "patch", "queues.scheduling.run.ai", "no"),
        ("keeper", "patch", "queues.scheduling.run.ai --subresource=status", "yes"),
        ("keeper", "update", "queues.scheduling.run.ai --subresource=status", "no"),
        ("keeper", "patch", "queues.scheduler.tensorstack.dev --subresource=status", "no"),
        ("keeper", "patch", "queues.scheduler.tensorstack.dev", "no"),
        ("keeper", "patch", "extensions.tenure.dev --subresource=status", "yes"),
        ("keeper", "patch", "extensions.tenure.dev", "no"),
        ("keeper", "create", "extensions.tenure.dev", "no"),
        ("keeper", "get", "secrets", "no"),
        ("keeper", "create", "events", "no"),
        ("keeper", "create", "leases.coordination.k8s.io", "no"),
        ("keeper", "update", "leases.coordination.k8s.io/tenure-keeper", "no"),
        ("keeper", "patch", "clusterroles.rbac.authorization.k8s.io", "no"),
    ];
    for (component, verb, resource, expected) in table {
        assert_right(reviews, component, [verb, resource, ""], expected).await;
    }
    for (verb, name, expected) in [
        ("patch", "tenure-webhook", "yes"),
        ("patch", "tenure-webhook-guard", "yes"),
        ("patch", "another", "no"),
        ("delete", "tenure-webhook", "no"),
    ] {
        let named = format!("validatingwebhookconfigurations.admissionregistration.k8s.io/{name}");
        assert_right(reviews, "webhook", [verb, &named, ""], expected).await;
    }
    for (verb, resource, namespace, expected) in [
        ("create", "leases.coordination.k8s.io", NAMESPACE, "yes"),
        ("get", "leases.coordination.k8s.io/tenure-keeper", NAMESPACE, "yes"),
        ("update", "leases.coordination.k8s.io/tenure-keeper", NAMESPACE, "yes"),
        ("update", "leases.coordination.k8s.io/another", NAMESPACE, "no"),
        ("delete", "leases.coordination.k8s.io/tenure-keeper", NAMESPACE, "no"),
        ("list", "leases.coordination.k8s.io", NAMESPACE, "no"),
        ("create", "leases.coordination.k8s.io", "default", "no"),
        ("update", "leases.coordination.k8s.io/tenure-keeper", "default", "no"),
    ] {
        assert_right(reviews, "keeper", [verb, resource, namespace], expected).await;
    }
    for (verb, resource, expected) in [
        ("patch", "secrets/tenure-webhook-certificates", "yes"),
        ("patch", "secrets/another", "no"),
        ("create", "secrets", "no"),
        ("list", "secrets", "no"),
        ("patch", "configmaps/tenure-webhook-ca", "yes"),
        ("update", "leases.coordination.k8s.io/tenure-webhook", "yes"),
        ("update", "leases.coordination.k8s.io/tenure-keeper", "no"),
        ("create", "leases.coordination.k8s.io", "yes"),
        ("delete", "leases.coordination.k8s.io/tenure-webhook", "no"),
        ("list", "leases.coordination.k8s.io", "no"),
    ] {
        assert_right(reviews, "webhook", [verb, resource, NAMESPACE], expected).await;
    }
}

/// Asks as `kubectl auth can-i` does, with a verb, a resource, and a namespace. Empty: all namespaces.
async fn assert_right(
    reviews: &Api<SubjectAccessReview>,
    component: &str,
    [verb, what, namespace]: [&str; 3],
    expected: &str,
) {
    let (resource, subresource) = what.split_once(" --subresource=").unwrap_or((what, ""));
    let (resource, name) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let attributes = json!({
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
        "namespace": namespace,
    });
    let user = format!("system:serviceaccount:{NAMESPACE}:tenure-{component}");
    let of_namespace = format!("system:serviceaccounts:{NAMESPACE}");
    // as the API server adds them for an account
    let groups = ["system:serviceaccounts", &of_namespace, "system:authenticated"];
    let spec = json!({"user": user, "groups": groups, "resourceAttributes": attributes});
    let review = json!({"metadata": {}, "spec": spec});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    // the authorizer sees a new role a little later
    eventually(&format!("{expected} to {component} {attributes}"), DEADLINE, async || {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed);
        Ok((is_allowed == (expected == "yes")).then_some(()))
    })
    .await
    .unwrap();
}
