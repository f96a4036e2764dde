//! `tenure-webhook`: admission for Kubernetes queues. The flags and all the work are in the
//! library.

use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tenure_service::install_crypto_provider();
    tenure_webhook::Args::parse().run().await
}
