//! The files of `examples/`: each is accepted as it is and, with shorter times, does what its comment says.

use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use serde_json::Value;
use tenure_testbed::{Output, UNREADY};
use tenure_tests::{World, workloads::Namespace};

use super::{in_namespace, run, time, world};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

async fn apply(world: &World, namespace: &Namespace, text: &str) -> Output {
    let apply = ["apply", "--namespace", namespace.name(), "-f", "-"];
    world.cluster.kubectl_with_input(&apply, text).await.unwrap()
}

/// A namespace with the objects of an example; and another with some of their texts replaced, such as long times by
/// short ones.
async fn tried(world: &World, name: &str, replaced: &[(&str, &str)]) -> (Namespace, Namespace) {
    let text = std::fs::read_to_string(directory().join(name)).unwrap();
    let (as_it_is, changed) = (Namespace::new(world).await, Namespace::new(world).await);
    let output = apply(world, &as_it_is, &text).await;
    assert_eq!(output.stderr, "", "{name} is accepted without a warning");
    output.success().unwrap();
    if !replaced.is_empty() {
        let text = replaced.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from), "{name}: {from}");
            text.replace(from, to)
        });
        apply(world, &changed, &text).await.success().unwrap();
    }
    (as_it_is, changed)
}

/// The row of a queue in `matrix`.
async fn in_matrix(world: &World, queue: &str) -> Value {
    let matrix = object(world, &["matrix", "-o", "json"]).await;
    matrix["queues"].as_array().unwrap().iter().find(|of| of["name"] == queue).unwrap().clone()
}

async fn object(world: &World, arguments: &[&str]) -> Value {
    serde_json::from_str(&run(world, arguments).await.good()).unwrap()
}

#[tokio::test]
async fn ceiling_announces_the_end_and_pauses_the_job() {
    let world = world().await;
    let (_, namespace) = tried(world, "ceiling.yaml", &[("8h", "6s"), ("30m", "3s")]).await;
    namespace.await_events_of("MaxDurationApproaching", 1).await;
    namespace.await_paused("Job", "training").await;
    let resumed = in_namespace(world, namespace.name(), &["resume", "job/training"]).await;
    assert_eq!(resumed.stdout, "job.batch/training resumed (spec.suspend: false)\n", "{resumed:?}");
}

#[tokio::test]
async fn floors_are_inherited_as_the_comment_says() {
    let world = world().await;
    let (namespace, _) = tried(world, "floors.yaml", &[]).await;
    for (queue, floor) in [("vision-batch", "1h"), ("vision-labs", "2h"), ("language", "0s")] {
        let queue = in_matrix(world, queue).await;
        assert_eq!(queue["preemptMinRuntime"]["value"], floor, "{queue:#}");
    }
    let pair = ["matrix", "-o", "json", "--preemptor-queue", "language", "--victim-queue", "vision-batch"];
    assert_eq!(object(world, &pair).await["reclaim"][0]["value"], "10m");
    namespace.await_running(1).await;
    let pod = format!("{}/labelling", namespace.name());
    let explained = object(world, &["explain", "pod", &pod, "-o", "json"]).await;
    let until = time(&explained["protected"][0]["until"]).duration_since(time(&explained["startedAt"]));
    assert_eq!(until, SignedDuration::from_hours(1), "{explained:#}");
}

#[tokio::test]
async fn both_use_cases_of_preemption_toleration_are_explained() {
    let world = world().await;
    let (namespace, _) = tried(world, "preemption-toleration.yaml", &[]).await;
    namespace.await_running(2).await;
    for (pod, seconds, lasts) in
        [("never-preempted", -1, None), ("not-preempted-at-first", 600, Some(SignedDuration::from_mins(10)))]
    {
        let pod = format!("{}/{pod}", namespace.name());
        let explained = object(world, &["explain", "pod", &pod, "-o", "json"]).await;
        let toleration = &explained["preemptionToleration"];
        assert_eq!(toleration["minimumPreemptablePriority"], 10_000, "{explained:#}");
        assert_eq!(toleration["tolerationSeconds"], seconds, "{explained:#}");
        let until = toleration["until"].is_string().then(|| time(&toleration["until"]));
        assert_eq!(until.map(|until| until.duration_since(time(&explained["startedAt"]))), lasts);
    }
}

#[tokio::test]
async fn job_that_does_not_get_ready_is_requeued() {
    let world = world().await;
    let unready = format!("kai.scheduler/queue: impatient\n        {UNREADY}: \"true\"");
    let replaced = [
        ("timeout: 10m", "timeout: 3s"),
        ("backoffBaseSeconds: 60", "backoffBaseSeconds: 1"),
        ("kai.scheduler/queue: impatient", &unready),
    ];
    let (_, namespace) = tried(world, "requeue.yaml", &replaced).await;
    namespace.await_events_of("Requeued", 1).await;
}

#[tokio::test]
async fn job_in_time_slices_comes_back() {
    let world = world().await;
    let (_, namespace) = tried(world, "time-slices.yaml", &[("4h", "4s"), ("10m", "2s")]).await;
    namespace.await_events_of("Requeued", 1).await;
}

#[tokio::test]
async fn t9k_deployment_is_paused_after_ten_seconds() {
    let world = world().await;
    let text = std::fs::read_to_string(directory().join("t9k.yaml")).unwrap();
    world.cluster.kubectl_with_input(&["apply", "-f", "-"], &text).await.unwrap().success().unwrap();
    Namespace::of(world, "default").await_paused("Deployment", "test").await;
}

/// KAI-Scheduler isn't here: the Job's pods are placed by kube-scheduler.
#[tokio::test]
async fn queue_of_kai_scheduler_has_the_ceiling_of_its_annotation() {
    let world = world().await;
    let shorter = [
        ("12h", "4s"),
        ("15m", "1s"),
        ("1h", "1s"),
        ("10m", "1s"),
        ("schedulerName: kai-scheduler", "schedulerName: default-scheduler"),
    ];
    let (_, namespace) = tried(world, "kai.yaml", &shorter).await;
    namespace.await_paused("Job", "finetune").await;
    let queue = in_matrix(world, "gpu-team").await;
    assert_eq!(queue["maxDuration"]["value"], "4s", "{queue:#}");
}
