//! A real Kubernetes control plane on this machine, to try things out.

mod commands;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// A real Kubernetes control plane as local processes.
///
/// The binaries are built from source once, with Go, and cached; `TENURE_CONTROL_PLANE` may name a directory of
/// ready-made ones.
#[derive(Parser)]
#[command(name = "testbed", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the control plane's binaries, unless they are cached, and print their directory
    Build,
    Up(commands::up::Up),
    Demo(commands::demo::Demo),
}

#[tokio::main]
async fn main() -> Result<()> {
    tenure_testbed::install_crypto_provider();
    match Args::parse().command {
        Command::Build => commands::build::run(),
        Command::Up(up) => up.run().await,
        Command::Demo(demo) => Box::pin(demo.run()).await,
    }
}
