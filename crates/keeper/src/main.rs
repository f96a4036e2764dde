//! `tenure-keeper`: holds workloads to the ceilings of their queues.

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tenure_service::install_crypto_provider();
    tenure_keeper::Args::parse().run().await
}
