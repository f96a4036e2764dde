//! The keeper's part of a queue's status, beside the parts of others.

use std::collections::HashSet;

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, fixtures,
    keeper::Metrics,
    queue_status::{V3, await_counts, await_status, status, with},
    queues::read,
    workloads::{Namespace, bare_pod, distinct, in_queue, in_runai_queue, queue, runai_queue, workload},
};

use crate::world;

/// Has another manager say something in the status of a queue, by a merge patch.
async fn say(world: &World, name: &str, status: &Value) {
    let patch = json!({"status": status}).to_string();
    let (resource, manager) = (V3, "--field-manager=another");
    let patch = ["patch", resource, name, "--subresource=status", "--type=merge", manager, "--patch", &patch];
    world.cluster.kubectl(&patch).await.unwrap().success().unwrap();
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
