//! Workloads that make room and come back: their rows, and the commands that change their state.

use jiff::SignedDuration;
use tenure_testbed::UNREADY;

use super::*;

/// A queue in which pods that aren't ready make room after a second, for this many seconds.
pub async fn queue_with_backoff(world: &World, name: &str, seconds: i32, limit: i32) {
    let strategy = json!({"backoffBaseSeconds": seconds, "backoffLimitCount": limit});
    let mut queue = runai_queue(name, "", "1d");
    queue["spec"]["waitForPodsReady"] = json!({"timeout": "1s", "requeuingStrategy": strategy});
    world.apply(&queue).await;
}

/// A Job whose pods never get ready.
pub async fn stuck(namespace: &Namespace, name: &str, queue: &str) -> DynamicObject {
    let mut labels = in_runai_queue(queue);
    labels[UNREADY] = json!("true");
    namespace.create(&workload("Job", namespace.name(), name, &labels, &NOTHING)).await
}

async fn annotation(namespace: &Namespace, object: &DynamicObject, key: &str) -> Option<String> {
    let now = namespace.get(object).await.unwrap();
    now.metadata.annotations.unwrap_or_default().get(key).cloned()
}

/// The output of `queue`, as an object.
async fn shown(world: &World, queue: &str) -> Value {
    let said = run(world, &["queue", queue, "-o", "json"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    serde_json::from_str(&said.stdout).unwrap()
}

fn names(rows: &Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["workload"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_workload_that_waits_is_shown_and_brought_back_and_its_count_stays() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    queue_with_backoff(world, "cli-backoff", 600, 10).await;
    let job = stuck(&namespace, "stuck", "cli-backoff").await;
    let row = await_state(world, name, "Requeueing").await;
    assert_eq!((&row["reason"], &row["requeueCount"]), (&json!("PodsReadyTimeout"), &json!(1)));
    let waits = time(&row["requeueAt"]).duration_since(time(&row["pausedAt"]));
    assert_eq!(waits.as_secs(), SignedDuration::from_mins(10).as_secs());
    assert_eq!(names(&shown(world, "cli-backoff").await["comingBack"]), ["job/stuck"]);

    let answer = in_namespace(world, name, &["activate", "job/stuck"]).await.bad();
    let hint = format!("To bring it back at once: kubectl tenure requeue job.batch/stuck -n {name}\n");
    assert!(
        answer.contains("is not deactivated: it comes back by itself at ") && answer.ends_with(&hint),
        "{answer}"
    );
    let dry = in_namespace(world, name, &["requeue", "job/stuck", "--dry-run"]).await.good();
    assert_eq!(dry, "job.batch/stuck requeued (spec.suspend: false) (server dry run)\n");
    assert_eq!(namespace.field(&job, "spec.suspend").await, true);
    let output = in_namespace(world, name, &["requeue", "job/stuck"]).await;
    assert_eq!(output.stdout, "job.batch/stuck requeued (spec.suspend: false)\n");
    assert!(output.stderr.ends_with("It keeps its count of returns, 1.\n"), "{output:?}");
    let again = async || {
        Ok(Some(await_state(world, name, "Requeueing").await).filter(|row| row["requeueCount"] == 2))
    };
    eventually("the second wait", DEADLINE, again).await.unwrap();
}

#[tokio::test]
async fn a_workload_that_was_given_up_is_activated_and_its_count_begins_again() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    queue_with_backoff(world, "cli-limit", 600, 0).await;
    let job = stuck(&namespace, "stuck", "cli-limit").await;
    let row = await_state(world, name, "Inactive").await;
    assert_eq!((&row["reason"], row.get("requeueAt")), (&json!("WorkloadInactive"), None));
    assert_eq!(names(&shown(world, "cli-limit").await["deactivated"]), ["job/stuck"]);
    let output = in_namespace(world, name, &["requeue", "job/stuck"]).await.bad();
    assert!(
        output.contains("it is deactivated. To let it go on: kubectl tenure activate job.batch/stuck"),
        "{output}"
    );
    queue_with_backoff(world, "cli-limit", 600, 1).await;
    let output = in_namespace(world, name, &["activate", "job/stuck"]).await;
    assert_eq!(output.stdout, "job.batch/stuck activated (spec.suspend: false)\n", "{output:?}");
    assert_eq!(annotation(&namespace, &job, "tenure.dev/active").await, None);
    let row = await_state(world, name, "Requeueing").await;
    assert_eq!(row["requeueCount"], 1, "{row}");
}

#[tokio::test]
async fn a_person_stops_a_workload_and_only_a_person_brings_it_back() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&runai_queue("cli-stop", "", "1d")).await;
    let object = workload("Deployment", name, "test", &in_runai_queue("cli-stop"), &NOTHING);
    let deployment = namespace.create(&object).await;
    let row = await_state(world, name, "Running").await;
    assert_eq!((&row["pods"], &row["neededPods"]), (&json!(2), &json!(2)));
    assert_eq!(names(&shown(world, "cli-stop").await["running"]), ["deployment/test"]);

    let dry = in_namespace(world, name, &["deactivate", "deploy/test", "--dry-run"]).await.good();
    assert_eq!(dry, "deployment.apps/test deactivated (spec.replicas: 0) (server dry run)\n");
    assert_eq!(namespace.field(&deployment, "spec.replicas").await, 2);
    let output = in_namespace(world, name, &["deactivate", "deploy/test"]).await;
    assert_eq!(output.stdout, "deployment.apps/test deactivated (spec.replicas: 0)\n");
    let hint = format!("kubectl tenure activate deployment.apps/test -n {name}\n");
    assert!(output.stderr.ends_with(&hint), "{output:?}");
    let row = await_state(world, name, "Inactive").await;
    assert_eq!((&row["queue"], &row["reason"]), (&json!("cli-stop"), &json!("Deactivated")));
    let again = in_namespace(world, name, &["deactivate", "deploy/test"]).await.bad();
    assert!(again.contains("is deactivated already"), "{again}");

    let output = in_namespace(world, name, &["activate", "deploy/test"]).await;
    assert_eq!(output.stdout, "deployment.apps/test activated (spec.replicas: 2)\n", "{output:?}");
    assert_eq!(record_of(&namespace, &deployment).await, None);
    assert_eq!(annotation(&namespace, &deployment, "tenure.dev/active").await, None);
    await_state(world, name, "Running").await;
    let again = in_namespace(world, name, &["activate", "deploy/test"]).await.bad();
    assert!(again.contains("is not deactivated: it has no annotation tenure.dev/active"), "{again}");
}

#[tokio::test]
async fn who_waits_and_is_deactivated_does_not_come_back_until_it_is_activated() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    queue_with_backoff(world, "cli-wait", 600, 10).await;
    let job = stuck(&namespace, "stuck", "cli-wait").await;
    await_state(world, name, "Requeueing").await;
    let output = in_namespace(world, name, &["deactivate", "job/stuck"]).await;
    assert_eq!(
        output.stdout,
        "job.batch/stuck deactivated (it was paused already, because of PodsReadyTimeout)\n"
    );
    let row = await_state(world, name, "Inactive").await;
    assert_eq!((&row["reason"], row.get("requeueAt")), (&json!("Deactivated"), None));
    // the keeper brings a workload back that is no longer deactivated, also if its annotation was removed
    namespace.patch(&job, &json!({"metadata": {"annotations": {"tenure.dev/active": null}}})).await;
    let row = await_state(world, name, "Requeueing").await;
    assert_eq!(row["requeueCount"], 1, "it counts from the start: {row}");
    namespace.await_events_of("Reactivated", 1).await;
}

#[tokio::test]
async fn a_queue_is_shown_in_tables_and_one_that_is_not_there_is_an_error() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    queue_with_backoff(world, "cli-tables", 600, 10).await;
    stuck(&namespace, "stuck", "cli-tables").await;
    await_state(world, name, "Requeueing").await;
    // a pod that starts slowly isn't evicted
    world.apply(&runai_queue("cli-tables", "", "1d")).await;
    namespace.create(&bare_pod(name, "test", &in_runai_queue("cli-tables"), &NOTHING)).await;
    namespace.await_running(1).await;
    let all = run(world, &["queue", "cli-tables"]).await.good();
    assert!(all.starts_with("NAMESPACE") && all.contains("RUNNING") && all.contains("COMING BACK"), "{all}");
    let one = in_namespace(world, name, &["queue", "cli-tables"]).await.good();
    let lines: Vec<&str> = one.lines().collect();
    assert!(lines[0].starts_with("RUNNING ") && lines[1].starts_with("pod/test  "), "{one}");
    assert!(lines[3].starts_with("COMING BACK ") && lines[4].ends_with(" PodsReadyTimeout"), "{one}");
    world.apply(&runai_queue("cli-empty", "", "1d")).await;
    let empty = run(world, &["queue", "cli-empty"]).await;
    assert_eq!((empty.code, empty.stdout.as_str()), (Some(0), ""));
    assert_eq!(empty.stderr, "No workloads run, come back or are paused in queue cli-empty.\n");
    let gone = run(world, &["queue", "cli-gone"]).await.bad();
    assert_eq!(gone, "error: there is no queue \"cli-gone\", as far as you may see\n");
}
