//! Queues and priority classes on a real API server with the webhook up, and what the API server refuses while it is down.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod down;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_policy::runs::Runs;
use tenure_testbed::{Cluster, Output, Tenure};
use tenure_tests::{
    World,
    queues::{Answer, Case, Verdict, ancestors, table, write},
    workloads::{Namespace, in_runai_queue, runai_queue, workload},
};
use tokio::sync::OnceCell;

const MINIMUM: &str = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority";
const SECONDS: &str = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds";

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(start).await.unwrap()
}

async fn start() -> anyhow::Result<World> {
    let cluster = Cluster::start_api_server_alone("admission").await?;
    let stored = class("stored", &json!({MINIMUM: "high"}));
    cluster.kubectl_with_input(&["create", "-f", "-"], &stored.to_string()).await?.success()?;
    let values = ["crds.serveV2=true", "webhook.owners.enabled=false"];
    let tenure = Tenure::install(&cluster, &values).await?;
    cluster.kubectl(&["create", "namespace", "t9k-system"]).await?.success()?;
    let world = World { cluster, tenure };
    world.tenure.start_webhook(&world.cluster).await?;
    for ancestor in ancestors() {
        world.apply(&ancestor).await;
    }
    // the webhook knows a queue once its watch has told it
    await_known(&world, "team").await;
    Ok(world)
}

async fn await_known(world: &World, queue: &str) {
    let child = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "probe"},
        "spec": {"parentQueue": queue},
    });
    tenure_testbed::eventually(&format!("queue {queue} to be known"), tenure_tests::DEADLINE, async || {
        let output = kubectl(world, &["create", "--dry-run=server"], &child).await;
        Ok((!output.stderr.contains("doesn't exist")).then_some(()))
    })
    .await
    .unwrap();
}

async fn kubectl(world: &World, verb: &[&str], object: &Value) -> Output {
    world.cluster.kubectl_with_input(&[verb, &["-f", "-"]].concat(), &object.to_string()).await.unwrap()
}

/// A priority class of value 8000.
fn class(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": annotations}, "value": 8000,
    })
}

/// Describes how the answer to a case differs from the table. None: it is as in the table.
fn complaint(case: &Case, answer: &Answer) -> Option<String> {
    let as_expected = match (&case.verdict, answer) {
        (Verdict::Accepted, (warnings, Ok(_))) => warnings.is_empty(),
        (Verdict::Warned(part), (warnings, Ok(_))) => warnings.iter().any(|warning| warning.contains(part)),
        (Verdict::Refused(_, parts), (_, Err(refusal))) => parts.iter().all(|part| refusal.contains(part)),
        _ => false,
    };
    (!as_expected).then(|| {
        format!("{} {}\n  expected {:?}\n  got {answer:?}", case.api_version, case.spec, case.verdict)
    })
}

async fn complaints(check: impl AsyncFn(usize, Case) -> Option<String>) -> Vec<String> {
    let checks = table().into_iter().enumerate().map(|(number, case)| check(number, case));
    stream::iter(checks).buffer_unordered(4).filter_map(async |complaint| complaint).collect().await
}

#[tokio::test]
async fn queues_are_accepted_and_refused_when_created() {
    let client = &world().await.cluster.client().unwrap();
    let complaints = complaints(async |number, case| {
        complaint(&case, &write(client, &case.object(&format!("created-{number}"))).await)
    })
    .await;
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test]
async fn queues_are_accepted_and_refused_when_changed() {
    let client = &world().await.cluster.client().unwrap();
    let complaints = complaints(async |number, case| {
        let name = format!("changed-{number}");
        let created = write(client, &case.object_with(&name, &json!({}))).await.1.unwrap();
        let mut changed = case.object(&name);
        changed["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        complaint(&case, &write(client, &changed).await)
    })
    .await;
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_table_has_at_least_forty_cases() {
    assert!(table().len() >= 40, "{}", table().len());
}

#[tokio::test]
async fn a_cycle_is_refused_with_field_value_and_rule() {
    let world = world().await;
    let queue = |name: &str, parent: &str| {
        json!({
            "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name},
            "spec": {"parentQueue": parent},
        })
    };
    kubectl(world, &["apply"], &queue("cycle-a", "")).await.success().unwrap();
    kubectl(world, &["apply"], &queue("cycle-b", "cycle-a")).await.success().unwrap();
    await_known(world, "cycle-b").await;
    let output = kubectl(world, &["apply"], &queue("cycle-a", "cycle-b")).await;
    assert!(!output.status.success());
    let expected = "spec.parentQueue: Invalid value: \"cycle-b\": a queue can't be its own ancestor: cycle-a -> cycle-b -> cycle-a";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
}

#[tokio::test]
async fn a_name_that_no_label_can_have_is_refused_for_new_queues_alone() {
    let world = world().await;
    let long = "q".repeat(64);
    for (api_version, namespace) in [
        ("scheduling.run.ai/v3alpha1", Value::Null),
        ("scheduler.tensorstack.dev/v1beta1", json!("t9k-system")),
    ] {
        let queue = |name: &str| json!({"apiVersion": api_version, "kind": "Queue", "metadata": {"name": name, "namespace": namespace}, "spec": {}});
        let output = kubectl(world, &["create"], &queue(&long)).await;
        let expected = format!("metadata.name: Invalid value: \"{long}\": must be at most 63 characters");
        assert!(!output.status.success() && output.stderr.contains(&expected), "{}", output.stderr);
        kubectl(world, &["create"], &queue(&long[1..])).await.success().unwrap();
    }
}

/// As the keeper of another world would have it: none runs here.
async fn say_running(world: &World, name: &str, started: &[Timestamp]) {
    let runs = Runs::of(started.to_vec());
    let workloads = json!({"running": started.len(), "runs": runs.written()});
    let status = json!({"status": {"workloads": workloads}}).to_string();
    let resource = "queues.v3alpha1.scheduling.run.ai";
    let patch = ["patch", resource, name, "--subresource=status", "--type=merge", "--patch", &status];
    world.cluster.kubectl(&patch).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn a_change_that_ends_runs_and_a_deletion_are_warned_of_with_their_numbers() {
    let world = world().await;
    let queue = |version: &str, name: &str, spec: Value| {
        let api_version = format!("scheduling.run.ai/{version}");
        json!({"apiVersion": api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
    };
    let v3 = |name: &str, spec: Value| queue("v3alpha1", name, spec);
    for (name, spec) in [
        ("busy", json!({"maxDuration": "10h"})),
        ("busy-child", json!({"parentQueue": "busy"})),
        ("busy-short", json!({"maxDuration": "1m"})),
    ] {
        // with the annotation that `kubectl apply` would miss with a warning
        kubectl(world, &["apply"], &v3(name, spec)).await.success().unwrap();
    }
    let ago = |minutes: i64| Timestamp::now() - SignedDuration::from_mins(minutes);
    say_running(world, "busy", &[ago(120), ago(90), ago(5)]).await;
    say_running(world, "busy-child", &[ago(120)]).await;
    let said = async |verb: &[&str], object: &Value, part: &str| {
        tenure_testbed::eventually(&format!("a warning of {part}"), tenure_tests::DEADLINE, async || {
            let output = kubectl(world, verb, object).await;
            assert!(output.status.success(), "{}", output.stderr);
            Ok((output.stderr.contains("Warning: ") && output.stderr.contains(part)).then_some(()))
        })
        .await
        .unwrap();
    };
    let dry = ["apply", "--dry-run=server"];
    // until the webhook's watch has told it of both statuses
    let ended = "spec.maxDuration: this ends 3 running workloads of queues \"busy\", \"busy-child\", which have run for longer than 1h: paused at once";
    said(&dry, &v3("busy", json!({"maxDuration": "1h"})), ended).await;
    let moved = json!({"maxDuration": "10h", "parentQueue": "busy-short"});
    said(&dry, &v3("busy", moved), "spec.parentQueue: this ends 4 running workloads").await;
    let noticed = json!({"maxDuration": "1h", "expiryNotice": "10m"});
    said(&dry, &v3("busy", noticed), "paused within 1m, after a notice").await;
    let mut in_v2 = queue("v2", "busy", json!({}));
    in_v2["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "1h"});
    said(&dry, &in_v2, "this ends 3 running workloads of").await;
    let longer = kubectl(world, &dry, &v3("busy", json!({"maxDuration": "20h"}))).await;
    assert_eq!(longer.stderr, "");
    let root = "1 running workload names queue \"busy-child\": without the queue it has no ceiling";
    let delete = ["delete", "--dry-run=server"];
    said(&delete, &v3("busy-child", json!({})), root).await;
    let children = "queue \"busy-child\" is below queue \"busy\", and becomes a top-level queue, without the ceiling of 10h of queue \"busy\": this affects 1 running workload";
    said(&delete, &v3("busy", json!({})), children).await;
    let quiet = kubectl(world, &delete, &v3("busy-short", json!({}))).await;
    assert_eq!((quiet.status.success(), quiet.stderr.as_str()), (true, ""));
}

#[tokio::test]
async fn a_class_whose_toleration_can_not_be_read_is_refused_with_the_reason() {
    let world = world().await;
    let bad = class("unreadable", &json!({MINIMUM: "10000", SECONDS: "10m"}));
    let expected = format!(
        "The PriorityClass \"unreadable\" is invalid: metadata.annotations[{SECONDS}]: Invalid value: \"10m\": must be a whole number of seconds, such as 600; -1 means no limit\n"
    );
    let created = kubectl(world, &["create"], &bad).await;
    assert_eq!((created.status.success(), created.stderr), (false, expected.clone()));
    world.apply(&class("unreadable", &json!({}))).await;
    let changed = kubectl(world, &["replace"], &bad).await;
    assert_eq!((changed.status.success(), changed.stderr), (false, expected));
}

#[tokio::test]
async fn a_class_that_tolerates_nothing_is_accepted_with_a_warning() {
    let world = world().await;
    let output = kubectl(world, &["create"], &class("useless", &json!({SECONDS: "600"}))).await;
    let expected = format!(
        "Warning: metadata.annotations[{SECONDS}]: 600 has no effect without {MINIMUM}, whose default is 8001: set that above 8001\n"
    );
    assert_eq!(output.stderr, expected);
    output.success().unwrap();
}

#[tokio::test]
async fn a_class_that_tolerates_something_or_says_nothing_is_accepted_without_a_word() {
    let world = world().await;
    for (name, annotations) in
        [("tolerates", json!({MINIMUM: "10000", SECONDS: "600"})), ("plain", json!({"a": "b"}))]
    {
        let output = kubectl(world, &["create"], &class(name, &annotations)).await;
        assert_eq!(output.stderr, "", "{name}");
        output.success().unwrap();
    }
}

#[tokio::test]
async fn a_class_with_a_bad_toleration_that_was_stored_can_be_labelled_and_deleted() {
    let world = world().await;
    let of_class = async |arguments: &[&str]| {
        let output = world.cluster.kubectl(&[arguments, &["priorityclass", "stored"]].concat()).await;
        output.unwrap()
    };
    let change = async |metadata: Value| {
        let patch = json!({"metadata": metadata}).to_string();
        of_class(&["patch", "--type=merge", "--patch", &patch]).await
    };
    let warning = format!(
        "Warning: metadata.annotations[{MINIMUM}]: Invalid value: \"high\": must be a priority, a whole number from -2147483648 to 2147483647\n"
    );
    for metadata in [json!({"labels": {"a": "b"}}), json!({"finalizers": ["example.com/a"]})] {
        let output = change(metadata).await;
        assert_eq!(output.stderr, warning);
        output.success().unwrap();
    }
    let output = change(json!({"annotations": {MINIMUM: "higher"}})).await;
    assert!(
        !output.status.success() && output.stderr.contains("Invalid value: \"higher\""),
        "{}",
        output.stderr
    );
    of_class(&["delete", "--wait=false"]).await.success().unwrap();
    let output = change(json!({"finalizers": []})).await;
    assert_eq!(output.stderr, warning);
    output.success().unwrap();
}

#[tokio::test]
async fn explain_reads_like_documentation() {
    let world = world().await;
    for (version, rule) in [
        ("scheduling.run.ai/v3alpha1", "a child can shorten, never lengthen"),
        ("scheduler.tensorstack.dev/v1beta1", "time spent pending counts"),
    ] {
        let field = ["explain", "queue.spec.maxDuration", "--api-version", version];
        let text = world.cluster.kubectl(&field).await.unwrap().success().unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("FIELD: maxDuration <string>") && text.contains(rule), "{text}");
    }
}

#[tokio::test]
async fn queues_are_printed_with_parent_priority_floors_and_ceiling() {
    let world = world().await;
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "printed"},
        "spec": {"parentQueue": "short", "priority": 7, "preemptMinRuntime": "1m", "reclaimMinRuntime": "2m", "maxDuration": "3m"},
    });
    world.apply(&queue).await;
    let resource = "queues.v3alpha1.scheduling.run.ai";
    let table = world.cluster.kubectl(&["get", resource, "printed"]).await.unwrap().success().unwrap();
    let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    let expected = [
        "NAME",
        "PARENT",
        "PRIORITY",
        "PREEMPT-MIN",
        "RECLAIM-MIN",
        "MAX-DURATION",
        "RUNNING",
        "PAUSED",
        "REQUEUEING",
        "AGE",
    ];
    assert_eq!(columns, expected);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["printed", "short", "7", "1m", "2m", "3m"]);
    let all = world.cluster.kubectl(&["get", "tenure"]).await.unwrap().success().unwrap();
    assert!(all.contains("queue.scheduling.run.ai/printed"), "{all}");
}

#[tokio::test]
async fn where_answers_to_owners_are_off_the_creation_of_owners_is_not_answered() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let mut refusing = runai_queue("refusing", "", "1h");
    refusing["spec"]["overCeiling"] = json!("Refuse");
    world.apply(&refusing).await;
    let configurations = ["get", "validatingwebhookconfigurations", "-o", "name"];
    let configurations = world.cluster.kubectl(&configurations).await.unwrap().success().unwrap();
    assert!(!configurations.contains("owners"), "{configurations}");
    let mut long = workload("Job", namespace.name(), "long", &in_runai_queue("refusing"), &Value::Null);
    long["spec"]["activeDeadlineSeconds"] = json!(7200);
    let created = kubectl(world, &["create"], &long).await;
    assert_eq!((created.stderr.as_str(), created.status.success()), ("", true));
}
