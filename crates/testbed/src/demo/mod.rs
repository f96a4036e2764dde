//! The demo of `testbed demo` and `make demo`: starts a control plane, installs Tenure on it, and
//! plays the scenes. Fails if a scene doesn't end as it should.

mod scenes;
mod timeline;

use std::{env, time::Duration};

use anyhow::{Context as _, Result};
use clap::Args;
use kube::{Client, Config};
use serde_json::json;
use tenure_testbed::{Binaries, Cluster, Tenure, program};
use tokio::signal::ctrl_c;
use tokio::task::spawn_blocking;
use tokio::try_join;

/// Show a ceiling, a floor and a requeue, on a control plane of its own
#[derive(Args)]
pub(crate) struct Demo {
    /// Leave everything up at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<()> {
        let Self { keep } = self;
        if let Some(url) = reachable_cluster().await {
            println!("KUBECONFIG leads to a cluster that answers, {url}.");
            println!("To install Tenure there:                      make install");
            println!("To see the demo on a cluster of its own:      env -u KUBECONFIG make demo");
            return Ok(());
        }
        println!("1/7  Building the control plane and Tenure's programs, unless they are there already");
        // cargo beside go: neither keeps all processors busy while it links
        let programs = spawn_blocking(|| {
            ["tenure-webhook", "tenure-keeper", "kubectl-tenure"]
                .into_iter()
                .try_for_each(|name| program(name).map(drop))
        });
        let (binaries, programs) = try_join!(spawn_blocking(Binaries::locate), programs)?;
        binaries?;
        programs?;
        println!("2/7  Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok");
        let cluster = Cluster::start("demo").await?;
        println!("3/7  helm install tenure charts/tenure --set schedulerExtender.enabled=true");
        let tenure = Tenure::install(&cluster, &["schedulerExtender.enabled=true"]).await?;
        println!(
            "4/7  Starting tenure-webhook and tenure-keeper; kube-scheduler asks the webhook whom it may preempt"
        );
        tenure.start_webhook(&cluster).await?;
        tenure.start_keeper().await?;
        let extender = tenure.extender(&cluster);
        cluster.configure_scheduler(|config| config["extenders"] = json!([extender])).await?;
        let shown = show(&cluster).await;
        if keep {
            println!();
            println!("All is left up. In another terminal, look around with");
            println!("  export PATH={}:$PATH", cluster.binaries().directory().display());
            println!(
                "  kubectl --kubeconfig={} get tenure,deployments,pods,events -A",
                cluster.kubeconfig().display()
            );
            println!("Logs are in {}. Ctrl-C ends it.", cluster.directory().display());
            ctrl_c().await.context("cannot listen for Ctrl-C")?;
        }
        shown
    }
}

/// Returns the URL of the cluster that KUBECONFIG leads to, if it answers within 3 seconds. None:
/// KUBECONFIG is unset or empty, or the cluster doesn't answer.
async fn reachable_cluster() -> Option<String> {
    env::var_os("KUBECONFIG").filter(|value| !value.is_empty())?;
    let mut config = Config::infer().await.ok()?;
    let url = config.cluster_url.to_string();
    config.default_retry = false;
    let client = Client::try_from(config).ok()?;
    let answer = tokio::time::timeout(Duration::from_secs(3), client.apiserver_version()).await;
    answer.ok()?.ok().map(|_| url)
}

/// Plays the scenes one after the other, and fails at the first that doesn't go as it should.
async fn show(cluster: &Cluster) -> Result<()> {
    let client = cluster.client()?;
    println!("\n5/7  A ceiling: Deployment test in queue demo, with maxDuration 10s");
    scenes::ceiling(cluster, &client).await?;
    println!(
        "\n6/7  A floor: an urgent pod wants the node of pod training, in queue research with preemptMinRuntime 15s"
    );
    scenes::floor(cluster, &client).await?;
    println!(
        "\n7/7  A requeue: the pod of Job fragile doesn't get ready, in queue impatient with a timeout of 5s"
    );
    scenes::requeue(cluster, &client).await
}
