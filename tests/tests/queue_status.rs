//! The keeper's part of a queue's status, beside the parts of others.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{collections::HashSet, fs};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Tenure, eventually};
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    keeper::{Keeper, Metrics},
    policies::{grant, revoke},
    queues::read,
    workloads::{Namespace, bare_pod, distinct, in_queue, in_runai_queue, queue, runai_queue, workload},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const V3: &str = "queues.v3alpha1.scheduling.run.ai";
const V2: &str = "queues.v2.scheduling.run.ai";

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start =
        async || fixtures::world_of("queue-status", fixtures::definitions("scheduling.run.ai"), &[]).await;
    WORLD.get_or_try_init(start).await.unwrap()
}

/// A cluster whose keepers a test starts and ends. One test at a time has it. At first no keeper runs, and there is no queue:
/// a test counts the writes of all queues.
async fn own_keepers() -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let start = async || {
        let world = World::installed("queue-status-keepers", &[]).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        Ok::<_, anyhow::Error>(Mutex::new(world))
    };
    let world = WORLD.get_or_try_init(start).await.unwrap().lock().await;
    world.tenure.stop_keeper().await.unwrap();
    world.cluster.kubectl(&["delete", V3, "--all"]).await.unwrap().success().unwrap();
    world
}

/// A queue of the run.ai family with some spec.
fn with(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

async fn status(world: &World, name: &str) -> Value {
    read(&world.cluster, V3, name).await["status"].take()
}

/// Waits until the status of a queue is as expected; returns it.
async fn await_status(world: &World, name: &str, what: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let found = async || Ok(Some(status(world, name).await).filter(&is_right));
    eventually(&format!("the status of {name} to have {what}"), DEADLINE, found).await.unwrap()
}

/// Waits until this many workloads of a queue are running, protected and paused; returns its status.
async fn await_counts(world: &World, name: &str, [running, protected, paused]: [u32; 3]) -> Value {
    let counts = json!({"running": running, "protected": protected, "paused": paused, "requeueing": 0});
    let is_so = |status: &Value| {
        let mut workloads = status["workloads"].clone();
        let runs = workloads.as_object_mut().and_then(|fields| fields.remove("runs"));
        let last =
            runs.as_ref().and_then(|runs| runs.as_array()?.last().map(|last| last["workloads"].clone()));
        workloads == counts && last.unwrap_or_else(|| json!(0)) == counts["running"]
    };
    await_status(world, name, &counts.to_string(), is_so).await
}

/// Has another manager say something in the status of a queue, by a merge patch.
async fn say(world: &World, name: &str, status: &Value) {
    let patch = json!({"status": status}).to_string();
    let (resource, manager) = (V3, "--field-manager=another");
    let patch = ["patch", resource, name, "--subresource=status", "--type=merge", manager, "--patch", &patch];
    world.cluster.kubectl(&patch).await.unwrap().success().unwrap();
}

/// The number of times that the keeper has written a queue.
fn writes(cluster: &Cluster, name: &str) -> usize {
    audit::of_keeper(cluster, "patch", "queues", "").iter().filter(|queue| *queue == name).count()
}

#[tokio::test]
async fn workloads_count_as_their_pods_start_and_as_long_as_they_are_protected() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&with("counted", &json!({"preemptMinRuntime": "20s"}))).await;
    await_counts(world, "counted", [0, 0, 0]).await;
    let alone = bare_pod(namespace.name(), "alone", &in_runai_queue("counted"), &Value::Null);
    let alone = namespace.create(&distinct(alone, "alone")).await;
    let group = json!({"minMember": 2, "queue": "counted"});
    namespace
        .create(&fixtures::object("scheduling.run.ai/v2alpha2", "PodGroup", namespace.name(), "gang", &group))
        .await;
    for name in ["one", "two", "three"] {
        let mut pod = distinct(bare_pod(namespace.name(), name, &json!({}), &Value::Null), name);
        pod["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
        namespace.create(&pod).await;
    }
    await_counts(world, "counted", [2, 2, 0]).await;
    await_counts(world, "counted", [2, 0, 0]).await;
    namespace.delete(&alone).await;
    await_counts(world, "counted", [1, 0, 0]).await;
}

#[tokio::test]
async fn what_a_ceiling_has_paused_counts_until_it_is_resumed() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    // of the same name in the other family
    namespace.apply(&queue("paused", "1s")).await;
    namespace.apply(&runai_queue("paused", "", "1d")).await;
    let other = workload("Deployment", namespace.name(), "other", &in_queue("paused"), &Value::Null);
    namespace.apply(&distinct(other, "other")).await;
    namespace.await_paused("Deployment", "other").await;
    let test = workload("Deployment", namespace.name(), "test", &in_runai_queue("paused"), &Value::Null);
    let test = namespace.apply(&distinct(test, "test")).await;
    let running = await_counts(world, "paused", [1, 0, 0]).await;
    let scheduled = namespace.created().await.into_iter().min().unwrap();
    let next: jiff::Timestamp = running["nextExpiry"].as_str().unwrap().parse().unwrap();
    let rest = next.duration_since(scheduled).as_secs();
    assert!((86_400..86_430).contains(&rest), "{running}");

    namespace.apply(&runai_queue("paused", "", "1s")).await;
    let record = namespace.await_paused("Deployment", "test").await;
    assert_eq!(record["queueGroup"], "scheduling.run.ai");
    let paused = await_counts(world, "paused", [0, 0, 1]).await;
    assert_eq!(paused.get("nextExpiry"), None);

    namespace.apply(&runai_queue("paused", "", "1d")).await;
    let resumed = json!({"metadata": {"annotations": {"tenure.dev/paused": null}}, "spec": {"replicas": 1}});
    namespace.patch(&test, &resumed).await;
    await_counts(world, "paused", [1, 0, 0]).await;
}

#[tokio::test]
async fn children_are_named_in_order() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    for (name, parent) in [("family", ""), ("family-b", "family"), ("family-a", "family")] {
        namespace.apply(&with(name, &json!({"parentQueue": parent}))).await;
    }
    let both = json!(["family-a", "family-b"]);
    await_status(world, "family", "two children", |status| status["childQueues"] == both).await;
    for name in ["family-a", "family-b"] {
        world.cluster.kubectl(&["delete", V3, name]).await.unwrap().success().unwrap();
    }
    let none = |status: &Value| status.get("childQueues").is_none();
    await_status(world, "family", "no children", none).await;
}

#[tokio::test]
async fn what_others_say_stays_and_what_they_take_away_is_put_back() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&with("shared", &json!({}))).await;
    let condition = json!({
        "type": "OverQuota", "status": "False", "reason": "Fits", "message": "there is room",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let theirs = json!({"conditions": [condition], "allocated": {"cpu": "1"}, "requested": {"cpu": "2"}});
    say(world, "shared", &theirs).await;
    await_counts(world, "shared", [0, 0, 0]).await;
    let pod = bare_pod(namespace.name(), "test", &in_runai_queue("shared"), &Value::Null);
    namespace.create(&pod).await;
    let found = await_counts(world, "shared", [1, 0, 0]).await;
    for field in ["allocated", "requested"] {
        assert_eq!(found[field], theirs[field], "{field}");
    }
    say(world, "shared", &json!({"workloads": null, "nextExpiry": "2026-01-02T03:04:05Z"})).await;
    await_counts(world, "shared", [1, 0, 0]).await;
    let both = |status: &Value| {
        let types = status["conditions"].as_array().into_iter().flatten().map(|of| of["type"].clone());
        status["conditions"].as_array().is_some_and(|all| all.contains(&condition))
            && types.collect::<HashSet<_>>() == HashSet::from([json!("OverQuota"), json!("Ready")])
    };
    await_status(world, "shared", "the conditions of both", both).await;

    let managers = read(&world.cluster, V3, "shared").await["metadata"]["managedFields"].take();
    let ours: Vec<_> =
        managers.as_array().unwrap().iter().filter(|of| of["manager"] == "tenure-keeper-status").collect();
    assert_eq!(ours.len(), 1, "{managers}");
    assert_eq!((&ours[0]["operation"], &ours[0]["subresource"]), (&json!("Apply"), &json!("status")));
    let fields: Vec<_> = ours[0]["fieldsV1"]["f:status"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["f:conditions", "f:workloads"]);
}

#[tokio::test]
async fn kubectl_waits_for_a_queue_whose_parent_exists() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let wait = async |condition: &str| {
        let (condition, timeout) =
            (format!("--for=condition={condition}"), format!("--timeout={}s", DEADLINE.as_secs()));
        let wait = ["wait", &condition, V3, "orphan", &timeout];
        world.cluster.kubectl(&wait).await.unwrap().success().unwrap();
        let status = status(world, "orphan").await;
        status["conditions"].as_array().unwrap().iter().find(|of| of["type"] == "Ready").unwrap().clone()
    };
    namespace.apply(&with("orphan", &json!({"parentQueue": "late"}))).await;
    let before = wait("Ready=False").await;
    assert_eq!(before["reason"], "ParentMissing");
    assert_eq!(before["message"], "queue \"late\" doesn't exist: this queue counts as a top-level queue");
    namespace.apply(&with("late", &json!({}))).await;
    let ready = wait("Ready").await;
    assert_eq!((&ready["reason"], &ready["observedGeneration"]), (&json!("Accepted"), &json!(1)));
}

#[tokio::test]
async fn children_that_another_names_are_left_alone() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&with("theirs", &json!({}))).await;
    await_counts(world, "theirs", [0, 0, 0]).await;
    say(world, "theirs", &json!({"childQueues": ["x"]})).await;
    namespace.apply(&with("theirs-child", &json!({"parentQueue": "theirs"}))).await;
    let left = async || {
        let left = [("result", "ChildrenLeft")];
        let count = Metrics::of_world(world).await.count("tenure_keeper_queue_status_writes_total", &left);
        Ok((count > 0).then_some(()))
    };
    eventually("the children to be left alone", DEADLINE, left).await.unwrap();
    let pod = bare_pod(namespace.name(), "test", &in_runai_queue("theirs"), &Value::Null);
    namespace.create(&pod).await;
    let found = await_counts(world, "theirs", [1, 0, 0]).await;
    assert_eq!(found["childQueues"], json!(["x"]));
    say(world, "theirs", &json!({"childQueues": null})).await;
    let ours = |status: &Value| status["childQueues"] == json!(["theirs-child"]);
    await_status(world, "theirs", "our children", ours).await;
}

#[tokio::test]
async fn kubectl_shows_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&with("shown", &json!({"maxDuration": "1d"}))).await;
    namespace.create(&bare_pod(namespace.name(), "test", &in_runai_queue("shown"), &Value::Null)).await;
    let status = await_counts(world, "shown", [1, 0, 0]).await;
    let table = world.cluster.kubectl(&["get", V3, "shown", "-o", "wide"]).await.unwrap().success().unwrap();
    let mut lines = table.lines();
    let (head, row) = (lines.next().unwrap(), lines.next().unwrap());
    let column = |name: &str| {
        let place = head.find(name).unwrap();
        row[place..].split_whitespace().next().unwrap_or_default()
    };
    assert_eq!((column("RUNNING"), column("PAUSED"), column("REQUEUEING")), ("1", "0", "0"), "{table}");
    assert_eq!(column("NEXT-EXPIRY"), status["nextExpiry"].as_str().unwrap());
}

#[tokio::test]
async fn nothing_is_written_twice_not_even_by_a_keeper_that_has_just_started() {
    let world = &own_keepers().await;
    world.tenure.start_keeper().await.unwrap();
    let namespace = Namespace::new(world).await;
    for (name, spec) in [
        ("quiet", json!({"maxDuration": "1d", "preemptMinRuntime": "1h"})),
        ("quiet-child", json!({"parentQueue": "quiet"})),
        ("busy", json!({})),
    ] {
        namespace.apply(&with(name, &spec)).await;
    }
    namespace
        .create(&distinct(
            bare_pod(namespace.name(), "quiet", &in_runai_queue("quiet"), &Value::Null),
            "quiet",
        ))
        .await;
    await_counts(world, "quiet", [1, 1, 0]).await;
    let has_child = |status: &Value| status["childQueues"] == json!(["quiet-child"]);
    await_status(world, "quiet", "its child", has_child).await;
    let before = (writes(&world.cluster, "quiet"), read(&world.cluster, V3, "quiet").await);
    // the keeper looks at all when one changes
    for (number, restart) in [(1, false), (2, true), (3, false)] {
        if restart {
            world.tenure.stop_keeper().await.unwrap();
            world.tenure.start_keeper().await.unwrap();
        }
        let name = format!("busy-{number}");
        let pod = bare_pod(namespace.name(), &name, &in_runai_queue("busy"), &Value::Null);
        namespace.create(&distinct(pod, &name)).await;
        await_counts(world, "busy", [number, 0, 0]).await;
    }
    let after = (writes(&world.cluster, "quiet"), read(&world.cluster, V3, "quiet").await);
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_keeper_that_runs_dry_writes_nothing_and_one_that_can_not_write_says_why_once() {
    let world = &own_keepers().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&runai_queue("dry", "", "7s")).await;
    let dry = Keeper::start(world, &["--dry-run"]).await;
    namespace.create(&bare_pod(namespace.name(), "test", &in_runai_queue("dry"), &Value::Null)).await;
    // by then it has looked more than once
    namespace.await_events(1).await;
    assert_eq!(writes(&world.cluster, "dry"), 0);
    assert_eq!(status(world, "dry").await, Value::Null);
    dry.stop().await;

    let (group, resource) = ("scheduling.run.ai", "queues/status");
    revoke(world, group, resource, &["patch"]).await;
    namespace.apply(&with("forbidden", &json!({}))).await;
    world.tenure.start_keeper().await.unwrap();
    let failed = async || {
        let failed = [("result", "Failed")];
        let count = Metrics::of_world(world).await.count("tenure_keeper_queue_status_writes_total", &failed);
        Ok((count > 2).then_some(()))
    };
    eventually("both queues to fail, and one again", DEADLINE, failed).await.unwrap();
    assert_eq!(said(world, "Not allowed to write the status of queues"), 1);
    grant(world, "write-statuses", group, &[resource], &["patch"]).await;
    await_counts(world, "forbidden", [0, 0, 0]).await;

    // as a definition of an earlier version has it
    let definition = read(&world.cluster, "crd", "queues.scheduling.run.ai").await;
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let number = versions.iter().position(|version| version["name"] == "v3alpha1").unwrap();
    let path =
        format!("/spec/versions/{number}/schema/openAPIV3Schema/properties/status/properties/workloads");
    let change = async |operation: Value| {
        let operations = json!([operation]).to_string();
        let arguments = ["patch", "crd", "queues.scheduling.run.ai", "--type=json", "--patch", &operations];
        world.cluster.kubectl(&arguments).await.unwrap().success().unwrap();
    };
    change(json!({"op": "remove", "path": path})).await;
    let lacks = async || Ok((said(world, "lacks fields of the status") > 0).then_some(()));
    let pod = bare_pod(namespace.name(), "another", &in_runai_queue("forbidden"), &Value::Null);
    namespace.create(&distinct(pod, "another")).await;
    eventually("the keeper to say what is wrong", DEADLINE, lacks).await.unwrap();
    change(json!({"op": "add", "path": path, "value": definition.pointer(&path)})).await;
}

/// The number of lines with a text in the keeper's log.
fn said(world: &World, what: &str) -> usize {
    let log = fs::read_to_string(world.tenure.keeper_log()).unwrap();
    log.lines().filter(|line| line.contains(what)).count()
}

/// A cluster whose queues are KAI-Scheduler's.
async fn kais_world() -> World {
    let cluster = Cluster::start("queue-status-kai").await.unwrap();
    let definition = serde_json::from_value(fixtures::kais_queue()).unwrap();
    let tenure = Tenure::install(&cluster, &["crds.runai=false"]).await.unwrap();
    let world = World { cluster, tenure };
    fixtures::install(&world, vec![definition]).await;
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    world
}

#[tokio::test]
async fn where_kai_owns_the_definition_it_is_an_annotation_and_no_queue_comes_back_by_it() {
    let world = &kais_world().await;
    let namespace = Namespace::new(world).await;
    let queue = |name: &str, parent: &str| {
        json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "spec": {"parentQueue": parent},
            "metadata": {"name": name, "annotations": {"example.com/mine": "stays", "tenure.dev/max-duration": "1d"}},
        })
    };
    let (parent, _) =
        (namespace.create(&queue("kai", "")).await, namespace.create(&queue("kai-child", "kai")).await);
    namespace.create(&bare_pod(namespace.name(), "test", &in_runai_queue("kai"), &Value::Null)).await;
    let annotation = async |name: &str| {
        let found = read(&world.cluster, V2, name).await;
        let text = found["metadata"]["annotations"]["tenure.dev/status"].as_str();
        text.map(|text| serde_json::from_str::<Value>(text).unwrap())
    };
    let running = async || Ok(annotation("kai").await.filter(|status| status["workloads"]["running"] == 1));
    let status = eventually("the annotation", DEADLINE, running).await.unwrap();
    assert!(status["nextExpiry"].is_string() && status.get("childQueues").is_none(), "{status}");
    let found = read(&world.cluster, V2, "kai").await;
    assert_eq!(found["metadata"]["annotations"]["example.com/mine"], "stays");
    assert_eq!(found.get("status"), None, "KAI's own");

    // as a keeper would that has not yet seen that the queue is gone
    let annotations = json!({"tenure.dev/status": "{}"});
    let body = json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
        "metadata": {"name": "kai", "uid": parent.metadata.uid, "annotations": annotations},
    });
    world.cluster.kubectl(&["delete", V2, "kai"]).await.unwrap().success().unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("scheduling.run.ai", "v2", "Queue"));
    let queues: Api<DynamicObject> = Api::all_with(world.cluster.client().unwrap(), &kind);
    let late = PatchParams::apply("tenure-keeper-status").force();
    let error = queues.patch("kai", &late, &Patch::Apply(&body)).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error}");
    assert!(queues.get_opt("kai").await.unwrap().is_none());
}
