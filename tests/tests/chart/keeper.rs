//! The effects of the keeper's values.

use serde_json::{Value, json};

use crate::{NAMESPACE, accepted, arguments, find, kinds, render};

/// The path at which keeper and webhook find their configuration in a pod.
pub const CONFIG_FILE: &str = "/config/tenure.yaml";

const NAME: &str = "test-tenure-keeper";

/// A good row of `keeper.owners`.
pub fn rollout() -> Value {
    json!({
        "group": "argoproj.io", "kind": "Rollout", "resource": "rollouts", "path": "spec.replicas", "value": 0,
    })
}

/// The keeper's values, each with another value than the default.
pub fn everything_set() -> Value {
    json!({
        "replicas": 3,
        "threadiness": 4,
        "writesPerSecond": 20,
        "burst": 40,
        "priorityClassThreshold": "important",
        "schedulers": ["t9k-scheduler", "kai-scheduler"],
        "exemptNamespaces": ["monitoring"],
        "maxTerminationGrace": "1h",
        "retryAfter": "1s",
        "maxWatchStaleness": "2m",
        "expiryNotice": "1h30m,10m",
        "noticeOnPods": true,
        "floorOnPods": true,
        "graceOnChange": "5m",
        "pausedHistoryLimit": 2_000_000_000,
        "owners": [rollout()],
        "leaderElection": {"leaseDuration": "1m", "renewDeadline": "40s", "retryPeriod": "500ms"},
    })
}

async fn keeper(values: Value) -> Vec<Value> {
    render("test", &json!({"keeper": values})).await
}

/// The configuration file of release `test`.
pub fn config(objects: &[Value]) -> &str {
    let map = find(objects, "ConfigMap", "test-tenure-config");
    map.pointer("/data/tenure.yaml").unwrap().as_str().unwrap()
}

/// Floors of which none is the default.
pub fn floors() -> Value {
    json!({
        "defaultPreemptMinRuntime": "10m",
        "defaultReclaimMinRuntime": "1.5h",
        "reclaimResolveMethod": "queue",
        "nodePoolLabelKey": "example.com/pool",
        "nodePools": [{"name": "a100", "defaultPreemptMinRuntime": "0s"}, {"name": "H100.x"}],
    })
}

fn replicas(objects: &[Value]) -> Option<u64> {
    find(objects, "Deployment", NAME).pointer("/spec/replicas").unwrap().as_u64()
}

#[tokio::test]
async fn each_set_of_values_makes_what_it_needs_and_the_api_server_accepts_it() {
    let rights = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"];
    let elects = ["Role", "RoleBinding"];
    for (name, values, more) in [
        ("several", json!({}), [&["Deployment", "PodDisruptionBudget"][..], &elects].concat()),
        ("one", json!({"replicas": 1}), [&["Deployment"][..], &elects].concat()),
        ("none", json!({"replicas": 0}), [&["Deployment"][..], &elects].concat()),
        ("dry-run", json!({"dryRun": true}), vec!["Deployment"]),
        ("everything", everything_set(), [&["Deployment", "PodDisruptionBudget"][..], &elects].concat()),
    ] {
        let all = accepted(&json!({"keeper": values})).await;
        let keepers = component(&all, "keeper");
        let expected = [&rights[..], &more].concat().into_iter().map(|kind| (kind, 1)).collect();
        assert_eq!(kinds(&keepers), expected, "{name}");
    }
}

fn component(objects: &[Value], name: &str) -> Vec<Value> {
    let label = "/metadata/labels/app.kubernetes.io~1component";
    objects.iter().filter(|object| object.pointer(label) == Some(&json!(name))).cloned().collect()
}

#[tokio::test]
async fn nothing_of_the_keeper_is_there_when_it_is_off() {
    let objects = render("test", &json!({"options": {"durationKeeper": {"enabled": false}}})).await;
    assert_eq!(component(&objects, "keeper"), Vec::<Value>::new());
    assert!(!component(&objects, "webhook").is_empty());
}

#[tokio::test]
async fn values_become_flags() {
    let passed = async |values: Value| arguments(find(&keeper(values).await, "Deployment", NAME));
    let lease = [
        "--leader-elect=true",
        "--leader-elect-lease-duration=15s",
        "--leader-elect-renew-deadline=10s",
        "--leader-elect-retry-period=2s",
        "--leader-elect-resource-name=test-tenure-keeper",
        "--leader-elect-resource-namespace=tenure-system",
        "--leader-elect-identity=$(POD_NAME)",
    ];
    let before = [
        "--admin-listen=:8080",
        "--t9k-system-namespace=t9k-system",
        "--runai-queue-version=v3alpha1",
        "--exempt-namespaces=kube-system,tenure-system",
        "--max-termination-grace=10m",
        "--retry-after=5s",
        "--max-watch-staleness=90s",
        "--threadiness=8",
        "--writes-per-second=50",
    ];
    let log = ["--log-level=info", "--log-format=logfmt"];
    assert_eq!(
        passed(json!({})).await,
        [&before[..], &["--burst=100", "--config=/config/tenure.yaml"], &lease, &log].concat()
    );

    let dry_run = ["--burst=100", "--dry-run", "--config=/config/tenure.yaml", "--leader-elect=false"];
    assert_eq!(passed(json!({"dryRun": true})).await, [&before[..], &dry_run, &log].concat());

    let all = [
        "--admin-listen=:8080",
        "--t9k-system-namespace=t9k-system",
        "--runai-queue-version=v3alpha1",
        "--priority-class-threshold=important",
        "--schedulers=t9k-scheduler,kai-scheduler",
        "--exempt-namespaces=monitoring,kube-system,tenure-system",
        "--max-termination-grace=1h",
        "--retry-after=1s",
        "--max-watch-staleness=2m",
        "--threadiness=4",
        "--writes-per-second=20",
        "--burst=40",
        "--config=/config/tenure.yaml",
        "--leader-elect=true",
        "--leader-elect-lease-duration=1m",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=500ms",
        "--leader-elect-resource-name=test-tenure-keeper",
        "--leader-elect-resource-namespace=tenure-system",
        "--leader-elect-identity=$(POD_NAME)",
        "--log-level=info",
        "--log-format=logfmt",
    ];
    assert_eq!(passed(everything_set()).await, all);
}

#[tokio::test]
async fn identity_is_the_pods_own_name() {
    let objects = keeper(json!({})).await;
    let container = find(&objects, "Deployment", NAME).pointer("/spec/template/spec/containers/0").unwrap();
    let name = json!([{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    assert_eq!(container.get("env"), Some(&name));
}

#[tokio::test]
async fn dry_run_has_one_pod_because_it_has_no_leader() {
    assert_eq!(replicas(&keeper(json!({})).await), Some(2));
    for (wanted, expected) in [(0, 0), (1, 1), (5, 1)] {
        let objects = keeper(json!({"replicas": wanted, "dryRun": true})).await;
        assert_eq!(replicas(&objects), Some(expected));
    }
}

#[tokio::test]
async fn configuration_file_has_what_the_programs_read_and_no_more() {
    let words =
        json!({"group": "", "kind": "Thing", "resource": "things", "path": "spec.mode", "value": "true"});
    let large = json!({
        "group": "example.com", "kind": "Thing", "resource": "things", "path": "spec.a.b", "value": 12_000_000,
    });
    let switch = json!({
        "group": "example.com", "kind": "Lamp", "resource": "lamps", "path": "spec.lit", "value": false,
        "onReversal": "DeletePods", "onExpiry": "Delete",
    });
    let values = json!({
        "expiryNotice": ["1h", "10m"], "noticeOnPods": true, "floorOnPods": true, "graceOnChange": "5m",
        "pausedHistoryLimit": 0,
        "owners": [rollout(), words, large, switch],
    });
    let start_time = json!({"trustedWriters": ["writer"], "longestFormation": "1h"});
    let values = json!({"keeper": values, "floors": floors(), "startTime": start_time});
    let objects = render("test", &values).await;
    let own = "system:serviceaccount:tenure-system:test-tenure-keeper";
    let mut expected = json!({
        "trustedWriters": ["writer", own],
        "longestFormation": "1h",
        "expiryNotice": "1h,10m",
        "noticeOnPods": true,
        "floorOnPods": true,
        "graceOnChange": "5m",
        "pausedHistoryLimit": 0,
        "owners": [
            {"group": "argoproj.io", "kind": "Rollout", "path": "spec.replicas", "value": 0},
            {"group": "", "kind": "Thing", "path": "spec.mode", "value": "true"},
            {"group": "example.com", "kind": "Thing", "path": "spec.a.b", "value": 12_000_000},
            {
                "group": "example.com", "kind": "Lamp", "path": "spec.lit", "value": false,
                "onReversal": "DeletePods", "onExpiry": "Delete",
            },
        ],
    });
    expected.as_object_mut().unwrap().append(floors().as_object_mut().unwrap());
    let written: Value = serde_saphyr::from_str(config(&objects)).unwrap();
    assert_eq!(written, expected);
    let defaults: Value = serde_saphyr::from_str(config(&keeper(json!({})).await)).unwrap();
    let expected = json!({
        "reclaimResolveMethod": "lca",
        "nodePoolLabelKey": "kai.scheduler/node-pool",
        "trustedWriters": [own],
        "longestFormation": "30m",
    });
    assert_eq!(defaults, expected);
}

#[tokio::test]
async fn keeper_and_webhook_share_the_configuration_file() {
    let objects = keeper(json!({})).await;
    for name in [NAME, "test-tenure-webhook"] {
        let pod = find(&objects, "Deployment", name).pointer("/spec/template/spec").unwrap();
        let list = |pointer: &str| pod.pointer(pointer).unwrap().as_array().unwrap().clone();
        let volume = json!({"name": "config", "configMap": {"name": "test-tenure-config"}});
        let mount = json!({"name": "config", "mountPath": "/config", "readOnly": true});
        assert!(list("/volumes").contains(&volume) && list("/containers/0/volumeMounts").contains(&mount));
        assert!(list("/containers/0/args").contains(&json!(format!("--config={CONFIG_FILE}"))));
    }
}

#[tokio::test]
async fn change_of_the_configuration_makes_no_new_pods_because_running_ones_take_it_up() {
    let templates = async |values: Value| {
        let objects = render("test", &values).await;
        [NAME, "test-tenure-webhook"]
            .map(|name| find(&objects, "Deployment", name).pointer("/spec/template").unwrap().clone())
    };
    let before = templates(json!({})).await;
    let configuration = json!({
        "keeper": {"expiryNotice": "5m", "owners": [rollout()]},
        "floors": floors(),
        "startTime": {"trustedWriters": ["writer"]},
    });
    assert_eq!(templates(configuration).await, before);
    let annotated = templates(json!({"keeper": {"podAnnotations": {"a": "b"}}})).await;
    assert_eq!(annotated[0].pointer("/metadata/annotations"), Some(&json!({"a": "b"})));
    assert_eq!(before[0].pointer("/metadata/annotations"), None);
}

#[tokio::test]
async fn rollout_never_leaves_the_cluster_without_a_ready_keeper() {
    let objects = keeper(json!({})).await;
    let deployment = find(&objects, "Deployment", NAME);
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    assert_eq!(deployment.pointer("/spec/strategy"), Some(&strategy));
    let budget = find(&objects, "PodDisruptionBudget", NAME);
    assert_eq!(budget.pointer("/spec/maxUnavailable"), Some(&json!(1)));
    // it is about the pods of the Deployment, and not about those of the webhook
    assert_eq!(budget.pointer("/spec/selector"), deployment.pointer("/spec/selector"));
    let other = find(&objects, "Deployment", "test-tenure-webhook").pointer("/spec/selector");
    assert_ne!(budget.pointer("/spec/selector"), other);
    let spread = deployment.pointer("/spec/template/spec/topologySpreadConstraints").unwrap();
    assert!(
        spread
            .as_array()
            .unwrap()
            .iter()
            .all(|constraint| { constraint.get("labelSelector") == deployment.pointer("/spec/selector") })
    );
}

#[tokio::test]
async fn names_and_namespace_can_be_replaced_everywhere() {
    let values = json!({
        "namespaceOverride": "elsewhere",
        "keeper": {"nameOverride": "duration-keeper", "expiryNotice": "5m", "labels": {"a": "b"}},
        "webhook": {"certificate": {"mode": "certManager"}},
    });
    let objects = render("test", &values).await;
    let text = serde_json::to_string(&objects).unwrap();
    assert!(!text.contains(NAMESPACE) && !text.contains("tenure-keeper\""), "{text}");
    for object in &objects {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        assert!(namespace.is_none_or(|name| name == "elsewhere"), "{object}");
        for subject in object.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            assert_eq!(subject.get("namespace"), Some(&json!("elsewhere")));
        }
    }
    for kind in ["Deployment", "Role", "ClusterRole", "ServiceAccount", "PodDisruptionBudget"] {
        find(&objects, kind, "duration-keeper");
    }
    let deployment = find(&objects, "Deployment", "duration-keeper");
    assert_eq!(deployment.pointer("/metadata/labels/a"), Some(&json!("b")));
    let account = deployment.pointer("/spec/template/spec/serviceAccountName");
    assert_eq!(account, Some(&json!("duration-keeper")));
    let lease = "--leader-elect-resource-name=duration-keeper".to_owned();
    assert!(arguments(deployment).contains(&lease));
    assert!(arguments(deployment).contains(&"--leader-elect-resource-namespace=elsewhere".to_owned()));
}
