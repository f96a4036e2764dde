use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;
use tenure_testbed::Cluster;
use tokio::signal::ctrl_c;

/// Start a control plane and keep it until Ctrl-C
#[derive(Args)]
pub(crate) struct Up {
    /// Name of the work directory under target/testbed
    #[arg(long, default_value = "up")]
    name: String,
}

impl Up {
    pub(crate) async fn run(self) -> Result<()> {
        let Self { name } = self;
        let started = Instant::now();
        let cluster = Cluster::start(&name).await?;
        eprintln!(
            "Ready after {:.1} s; logs are in {}",
            started.elapsed().as_secs_f64(),
            cluster.directory().display()
        );
        println!("export KUBECONFIG={}", cluster.kubeconfig().display());
        println!("export PATH={}:$PATH", cluster.binaries().directory().display());
        eprintln!("Ctrl-C ends it");
        ctrl_c().await.context("cannot listen for Ctrl-C")
    }
}
