//! A queue's status, by keepers that start, run dry, or may not write it.

use std::{
    fs,
    panic::{AssertUnwindSafe, resume_unwind},
};

use futures::FutureExt;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, eventually};
use tenure_tests::{
    DEADLINE, World, audit,
    keeper::{Keeper, Metrics},
    policies::{grant, revoke},
    queue_status::{V3, await_counts, await_status, status, with},
    queues::read,
    workloads::{Namespace, bare_pod, distinct, in_runai_queue, runai_queue},
};

use crate::world;

/// The number of times that the keeper has written a queue.
fn writes(cluster: &Cluster, name: &str) -> usize {
    audit::of_keeper(cluster, "patch", "queues", "").iter().filter(|queue| *queue == name).count()
}

#[tokio::test]
async fn nothing_is_written_twice_not_even_by_a_keeper_that_has_just_started() {
    let world = &*world().await;
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
    let world = &*world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&runai_queue("unwritten", "", "7s")).await;
    let dry = Keeper::start(world, &["--dry-run"]).await;
    namespace.create(&bare_pod(namespace.name(), "test", &in_runai_queue("unwritten"), &Value::Null)).await;
    // by then it has looked more than once
    namespace.await_events(1).await;
    assert_eq!(writes(&world.cluster, "unwritten"), 0);
    assert_eq!(status(world, "unwritten").await, Value::Null);
    dry.stop().await;

    let (group, resource) = ("scheduling.run.ai", "queues/status");
    let without_right = async {
        revoke(world, group, resource, &["patch"]).await;
        namespace.apply(&with("forbidden", &json!({}))).await;
        world.tenure.start_keeper().await.unwrap();
        let failed = async || {
            let failed = [("result", "Failed")];
            let count =
                Metrics::of_world(world).await.count("tenure_keeper_queue_status_writes_total", &failed);
            Ok((count > 2).then_some(()))
        };
        eventually("both queues to fail, and one again", DEADLINE, failed).await.unwrap();
        assert_eq!(said(world, "Not allowed to write the status of queues"), 1);
    };
    let role = "write-statuses";
    and_restore(Box::pin(without_right), Box::pin(grant(world, role, group, &[resource], &["patch"]))).await;
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
    let without_field = async {
        change(json!({"op": "remove", "path": path})).await;
        let lacks = async || Ok((said(world, "lacks fields of the status") > 0).then_some(()));
        let pod = bare_pod(namespace.name(), "another", &in_runai_queue("forbidden"), &Value::Null);
        namespace.create(&distinct(pod, "another")).await;
        eventually("the keeper to say what is wrong", DEADLINE, lacks).await.unwrap();
    };
    let added = change(json!({"op": "add", "path": path, "value": definition.pointer(&path)}));
    and_restore(Box::pin(without_field), Box::pin(added)).await;
}

/// Does a part of a test, and restores what other tests need, even if the part fails.
async fn and_restore(part: impl Future<Output = ()>, restore: impl Future<Output = ()>) {
    let done = AssertUnwindSafe(part).catch_unwind().await;
    restore.await;
    if let Err(panic) = done {
        resume_unwind(panic);
    }
}

/// The number of lines with a text in the keeper's log.
fn said(world: &World, what: &str) -> usize {
    let log = fs::read_to_string(world.tenure.keeper_log()).unwrap();
    log.lines().filter(|line| line.contains(what)).count()
}
