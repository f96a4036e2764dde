//! Jobs and pods that Kueue manages: what ends their run is their Workload, which Kueue respects.
//!
//! Kueue itself isn't here, but what does as it does.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod claims;
mod installed;
mod page;
mod pods;
mod queues;
mod returns;
mod standin;

use installed::uninstall;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use standin::Kueue;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    plugin::plugin_prints,
    workloads::{Namespace, distinct, in_runai_queue, workload},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// A cluster with Kueue's kinds, as of today.
async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world = Box::pin(World::installed("kueue", &[])).await?;
        fixtures::install(&world, fixtures::definitions(fixtures::KUEUE)).await;
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        anyhow::Ok(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// A cluster without Kueue's kinds, where no keeper runs at first. One test at a time has it.
async fn without_kueue() -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let start = async || {
        let world = Box::pin(World::installed("kueue-later", &[])).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        anyhow::Ok(Mutex::new(world))
    };
    let world = WORLD.get_or_try_init(start).await.unwrap().lock().await;
    world.tenure.stop_keeper().await.unwrap();
    uninstall(&world).await;
    world
}

/// Kueue's definitions with one version alone.
fn of_version(name: &str) -> Vec<CustomResourceDefinition> {
    let mut definitions = fixtures::definitions(fixtures::KUEUE);
    for definition in &mut definitions {
        definition.spec.versions.retain(|version| version.name == name);
        definition.spec.versions[0].storage = true;
    }
    definitions
}

/// A queue of the run.ai family with this spec.
async fn queue(namespace: &Namespace, name: &str, spec: &Value) {
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
    });
    namespace.apply(&queue).await;
}

/// A Job of one pod that is Kueue's to start, in a queue of Tenure's.
async fn job(namespace: &Namespace, name: &str, labels: &Value) -> DynamicObject {
    let mut job = distinct(workload("Job", namespace.name(), name, labels, &Value::Null), name);
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("main");
    job["spec"]["suspend"] = json!(true);
    namespace.create(&job).await
}

/// The Workload that the stand-in makes of a Job.
async fn workload_of(namespace: &Namespace, job: &str, version: &str) -> DynamicObject {
    let workload = json!({
        "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "Workload", "metadata": {"name": format!("job-{job}")},
    });
    let workload: DynamicObject = serde_json::from_value(workload).unwrap();
    let there = async || Ok(namespace.try_find(&workload).await);
    eventually("the Workload to be made", DEADLINE, there).await.unwrap()
}

/// Waits until the stand-in has set these Jobs going, in this order.
async fn await_starts(kueue: &Kueue, expected: &[&str]) {
    let what = format!("these to be set going: {expected:?}");
    let started = async || Ok((kueue.starts().len() >= expected.len()).then_some(()));
    eventually(&what, DEADLINE, started).await.unwrap();
    assert_eq!(kueue.starts(), expected);
}

/// `kubectl tenure`, which must succeed: its standard output.
async fn tenure(world: &World, namespace: &Namespace, arguments: &[&str]) -> String {
    plugin_prints(world, namespace.name(), arguments).await
}

/// A long Job of one queue, and one that waits behind it: their ceiling is kept, and no pause is undone.
async fn one_pause_and_no_reversal(world: &World, version: &str) {
    let namespace = Namespace::new(world).await;
    let (short, long) = (format!("short-{}", namespace.name()), format!("long-{}", namespace.name()));
    queue(&namespace, &short, &json!({"maxDuration": "2s"})).await;
    queue(&namespace, &long, &json!({"maxDuration": "1h"})).await;
    let kueue = Kueue::start(world, &namespace, version);
    let first = job(&namespace, "first", &in_runai_queue(&short)).await;
    await_starts(&kueue, &["first"]).await;
    let second = job(&namespace, "second", &in_runai_queue(&long)).await;
    let workload = workload_of(&namespace, "first", version).await;
    let record = namespace.await_pause_of(&workload, "spec.active", &json!(false)).await;
    assert_eq!((&record["reason"], &record["queue"]), (&json!("MaxDurationExceeded"), &json!(short)));
    assert_eq!(record["previousValue"], json!(true));

    // its quota is free, and the one behind it runs
    await_starts(&kueue, &["first", "second"]).await;
    namespace.await_running(1).await;
    audit::assert_changes(&world.cluster, namespace.name(), &["patch workloads/job-first"]).await;
    let message = "Job/first: Set spec.active of its Workload job-first to false because its pod's lifetime exceeded maxDuration defined in Queue";
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await, [message]);
    assert_eq!(namespace.events_of("PauseReversed").await, [""; 0]);

    // people know the Job
    let list = tenure(world, &namespace, &["list", "-o", "json"]).await;
    let rows: Value = serde_json::from_str(&list).unwrap();
    let row = &rows.as_array().unwrap().iter().find(|row| row["name"] == "first").unwrap();
    assert_eq!((&row["workload"], &row["state"]), (&json!("job/first"), &json!("Paused")), "{rows:#}");
    assert_eq!(row["kueueWorkload"], "job-first");
    let shown = tenure(world, &namespace, &["queue", &short]).await;
    assert!(shown.contains("job/first"), "{shown}");
    let pod = namespace.pod_names().await.pop_first().unwrap();
    let pod = format!("{}/{pod}", namespace.name());
    let explained = tenure(world, &namespace, &["explain", "pod", &pod]).await;
    let then =
        format!("Workload {0}/job-second, by which Kueue runs Job {0}/second, is paused", namespace.name());
    assert!(explained.contains(&then), "{explained}");

    // and resume it, and then it waits for its turn
    queue(&namespace, &short, &json!({"maxDuration": "1h"})).await;
    let resumed = tenure(world, &namespace, &["resume", "job/first"]).await;
    let expected = "workload.kueue.x-k8s.io/job-first, by which Kueue runs job.batch/first, resumed (spec.active: true)\n";
    assert_eq!(resumed, expected);
    let left = namespace.field(&workload, "metadata.annotations").await;
    assert_eq!(left.as_object().unwrap().keys().collect::<Vec<_>>(), ["tenure.dev/acts"], "the journal");
    assert_eq!(namespace.field(&first, "spec.suspend").await, json!(true));
    assert_eq!(kueue.starts(), ["first", "second"]);
    namespace.delete(&second).await;
    await_starts(&kueue, &["first", "second", "first"]).await;
    namespace.await_running(1).await;
    let pauses = audit::of_keeper(&world.cluster, "patch", "workloads", namespace.name());
    assert_eq!(pauses, ["job-first"]);
}

#[tokio::test]
async fn a_ceiling_is_kept_by_one_pause_the_next_job_starts_and_resume_brings_the_first_back_in_its_turn() {
    one_pause_and_no_reversal(world().await, "v1beta2").await;
}

#[tokio::test]
async fn a_ceiling_is_kept_where_kueue_serves_v1beta1_alone() {
    let world = &*without_kueue().await;
    fixtures::install(world, of_version("v1beta1")).await;
    world.tenure.start_keeper().await.unwrap();
    one_pause_and_no_reversal(world, "v1beta1").await;
}
