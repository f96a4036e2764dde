//! The scenes of the demo: a ceiling, a floor, and a workload that doesn't get ready. Each prints a
//! timeline, and fails if what happens isn't what Tenure promises.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Api, Client, ResourceExt as _};
use tenure_testbed::{Cluster, program};
use tokio::{process::Command, task::spawn_blocking};

use super::timeline::Timeline;

/// The manifests of the scenes, in `default`.
const CEILING: &str = include_str!("../../../../examples/t9k.yaml");
const FLOOR: &str = include_str!("floor.yaml");
const REQUEUE: &str = include_str!("requeue.yaml");

/// The allowed delay of the pause after the ceiling of 10 s.
const LATE: SignedDuration = SignedDuration::from_secs(3);

/// The annotation with the record of a pause.
const PAUSED: &str = "tenure.dev/paused";

/// Shows that a Deployment in a queue with a ceiling of ten seconds is paused, and resumes it with
/// the plugin.
pub(super) async fn ceiling(cluster: &Cluster, client: &Client) -> Result<()> {
    apply(cluster, CEILING).await?;
    let mut timeline = Timeline::new(client, &["test-"], &["MaxDurationExceeded"]);
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let mut created = None;
    let mut paused: Option<Timestamp> = None;
    timeline
        .until("Deployment test to be at 0/0", async |timeline| {
            let deployment = deployments.get("test").await?;
            let status = deployment.status.clone().unwrap_or_default();
            let wanted = deployment.spec.replicas.unwrap_or(1);
            let ready = status.ready_replicas.unwrap_or(0);
            timeline.print_state("Deployment test", &format!("is at {ready}/{wanted}"));
            if let Some(record) = deployment.annotations().get(PAUSED) {
                timeline.print_state("its annotation tenure.dev/paused", &format!("is {record}"));
                let record: serde_json::Value = serde_json::from_str(record)?;
                paused = record.get("at").and_then(|at| at.as_str()?.parse().ok());
            }
            created = created.or(deployment.creation_timestamp().map(|time| time.0));
            Ok(wanted == 0
                && status.replicas.unwrap_or(0) == 0
                && timeline.events_of("MaxDurationExceeded").await? > 0)
        })
        .await?;
    let after = paused.context("no record of the pause")?.duration_since(created.context("no creation")?);
    let (is_late, seconds) = (after > SignedDuration::from_secs(10) + LATE, after.as_secs_f64());
    ensure!(!is_late, "the Deployment was paused {seconds:.1} s after its creation, later than 13 s");
    println!("It was paused {seconds:.1} s after its creation, by queue demo with maxDuration 10s.");
    for arguments in [&["list"][..], &["explain", "deployment/test"], &["resume", "deployment/test"]] {
        plugin(cluster, arguments).await?;
    }
    Ok(())
}

/// Runs the plugin as a user would, and shows its output.
async fn plugin(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    println!("\n$ kubectl tenure {}", arguments.join(" "));
    let program = spawn_blocking(|| program("kubectl-tenure")).await??;
    let mut command = Command::new(program);
    command.args(arguments).args(["--namespace", "default"]).env("KUBECONFIG", cluster.kubeconfig());
    let status = command.status().await?;
    ensure!(status.success(), "`kubectl tenure {}` ended with {status}", arguments.join(" "));
    Ok(())
}

/// Shows that an urgent pod waits until the floor of another pod has ended, is woken, and runs.
pub(super) async fn floor(cluster: &Cluster, client: &Client) -> Result<()> {
    let [queue, class, training, urgent] = documents(FLOOR)?;
    for document in [queue, class, training] {
        apply(cluster, document).await?;
    }
    let mut timeline = Timeline::new(client, &["training", "urgent"], &["Preempted"]);
    let runs = "runs on node-1";
    timeline.until("pod training to run", async |timeline| Ok(timeline.is("pod training", runs))).await?;
    apply(cluster, urgent).await?;
    timeline.until("pod urgent to run", async |timeline| Ok(timeline.is("pod urgent", runs))).await?;
    let at = |pod: &str| timeline.scheduled.get(pod).copied().with_context(|| format!("{pod} has no node"));
    let ran = at("urgent")?.duration_since(at("training")?);
    ensure!(ran >= SignedDuration::from_secs(15), "pod training ran for only {ran:#}");
    println!(
        "The urgent pod got the node {ran:#} after pod training, in a queue with preemptMinRuntime 15s."
    );
    println!("By itself kube-scheduler would have preempted it at once.");
    Ok(())
}

/// Shows that a Job whose pod doesn't get ready makes room, returns once, and is given up.
pub(super) async fn requeue(cluster: &Cluster, client: &Client) -> Result<()> {
    apply(cluster, REQUEUE).await?;
    let given_up = "DeactivatedDueToRequeuingLimitExceeded";
    let reasons = &["EvictedDueToPodsReadyTimeout", "Requeued", "DeactivatedDueToRequeuingLimitExceeded"];
    let mut timeline = Timeline::new(client, &["fragile-"], reasons);
    let jobs = Api::<Job>::default_namespaced(client.clone());
    timeline
        .until("Job fragile to be given up", async |timeline| {
            let spec = jobs.get("fragile").await?.spec.unwrap_or_default();
            let is_suspended = spec.suspend.unwrap_or(false);
            timeline.print_state("Job fragile", if is_suspended { "is suspended" } else { "may run" });
            Ok(is_suspended && timeline.events_of(given_up).await? > 0)
        })
        .await?;
    let returns = timeline.events_of("Requeued").await?;
    ensure!(returns == 1, "Job fragile came back {returns} times, and may only once");
    println!("`kubectl tenure activate job/fragile` would start it again.");
    Ok(())
}

async fn apply(cluster: &Cluster, manifest: &str) -> Result<()> {
    cluster.kubectl_with_input(&["apply", "-f", "-"], manifest).await?.success()?;
    Ok(())
}

/// Splits a manifest into its documents.
fn documents<const N: usize>(manifest: &str) -> Result<[&str; N]> {
    let documents: Vec<&str> = manifest.split("\n---\n").collect();
    let count = documents.len();
    documents.try_into().ok().with_context(|| format!("{count} documents and not {N}"))
}
