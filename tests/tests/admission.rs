//! Queues on a real API server with the webhook up.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use futures::{StreamExt, stream};
use serde_json::json;
use tenure_testbed::Output;
use tenure_tests::{
    World,
    queues::{Case, Verdict, ancestors, table},
};
use tokio::sync::OnceCell;

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(start).await.unwrap()
}

async fn start() -> anyhow::Result<World> {
    let world = World::installed("admission", &[]).await?;
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

async fn kubectl(world: &World, verb: &[&str], object: &serde_json::Value) -> Output {
    world.cluster.kubectl_with_input(&[verb, &["-f", "-"]].concat(), &object.to_string()).await.unwrap()
}

/// What is wrong with the output for a case; none if it is as the table says.
fn complaint(case: &Case, output: &Output) -> Option<String> {
    let said = &output.stderr;
    let as_expected = match &case.verdict {
        Verdict::Accepted => output.status.success() && said.is_empty(),
        Verdict::Warned(part) => output.status.success() && said.contains("Warning: ") && said.contains(part),
        Verdict::Refused(_, parts) => {
            !output.status.success() && parts.iter().all(|part| said.contains(part))
        }
    };
    (!as_expected).then(|| {
        format!("{} {}\n  expected {:?}\n  kubectl said {said}", case.api_version, case.spec, case.verdict)
    })
}

async fn complaints(check: impl AsyncFn(usize, Case) -> Option<String>) -> Vec<String> {
    let checks = table().into_iter().enumerate().map(|(number, case)| check(number, case));
    stream::iter(checks).buffer_unordered(4).filter_map(async |complaint| complaint).collect().await
}

#[tokio::test]
async fn queues_are_accepted_and_refused_when_created() {
    let world = world().await;
    let complaints = complaints(async |number, case| {
        let output = kubectl(world, &["create"], &case.object(&format!("created-{number}"))).await;
        complaint(&case, &output)
    })
    .await;
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test]
async fn queues_are_accepted_and_refused_when_changed() {
    let world = world().await;
    let complaints = complaints(async |number, case| {
        let name = format!("changed-{number}");
        kubectl(world, &["create"], &case.object_with(&name, &json!({}))).await.success().unwrap();
        let output = kubectl(world, &["replace"], &case.object(&name)).await;
        complaint(&case, &output)
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
    let table = world.cluster.kubectl(&["get", "rq", "printed"]).await.unwrap().success().unwrap();
    let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "PARENT", "PRIORITY", "PREEMPT-MIN", "RECLAIM-MIN", "MAX-DURATION", "AGE"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["printed", "short", "7", "1m", "2m", "3m"]);
    let all = world.cluster.kubectl(&["get", "tenure"]).await.unwrap().success().unwrap();
    assert!(all.contains("queue.scheduling.run.ai/printed"), "{all}");
}
