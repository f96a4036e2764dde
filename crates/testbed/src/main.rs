//! The program `testbed`: a real Kubernetes control plane on this machine, to try things out.

mod demo;

use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use tenure_testbed::{Binaries, Cluster};
use tokio::signal::ctrl_c;

/// A real Kubernetes control plane as local processes.
///
/// The binaries are built from source once, with Go, and cached; `TENURE_CONTROL_PLANE` may name a directory of
/// ready-made ones.
#[derive(Parser)]
#[command(name = "testbed", version)]
struct CommandLine {
    #[command(subcommand)]
    command: TestbedCommand,
}

#[derive(Subcommand)]
enum TestbedCommand {
    /// Build the control plane's binaries, unless they are cached, and print their directory
    Build,
    Up(UpArgs),
    Demo(demo::Demo),
}

/// Start a control plane and keep it until Ctrl-C
#[derive(Args)]
struct UpArgs {
    /// Name of the work directory under target/testbed
    #[arg(long, default_value = "up")]
    name: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    tenure_testbed::install_crypto_provider();
    match CommandLine::parse().command {
        TestbedCommand::Build => println!("{}", Binaries::locate()?.directory().display()),
        TestbedCommand::Up(up) => up.run().await?,
        TestbedCommand::Demo(demo) => Box::pin(demo.run()).await?,
    }
    Ok(())
}

impl UpArgs {
    async fn run(self) -> Result<()> {
        let started = Instant::now();
        let cluster = Cluster::start(&self.name).await?;
        let (seconds, directory) = (started.elapsed().as_secs_f64(), cluster.directory().display());
        eprintln!("Ready after {seconds:.1} s; logs are in {directory}");
        println!("export KUBECONFIG={}", cluster.kubeconfig().display());
        println!("export PATH={}:$PATH", cluster.binaries().directory().display());
        eprintln!("Ctrl-C ends it");
        ctrl_c().await.context("cannot listen for Ctrl-C")
    }
}
