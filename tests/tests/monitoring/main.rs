//! The chart's alerts and dashboard: by Prometheus' own parser and engine, and on the metrics of a keeper and a webhook that
//! run.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod alerts;
mod expressions;
mod past;
mod promql;
mod running;
mod secure;

use tenure_tests::{World, fixtures};
use tokio::sync::OnceCell;

const VALUES: [&str; 5] = [
    "guard.enabled=true",
    "schedulerExtender.enabled=true",
    "keeper.receivers.ops.format=Slack",
    "keeper.receivers.ops.url=https://127.0.0.1:1",
    "monitoring.tls.secretName=admin-certificate",
];

/// The cluster of all tests, with a keeper and a webhook that serve all metrics.
async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world = Box::pin(World::installed("monitoring", &VALUES)).await?;
        fixtures::install(&world, fixtures::definitions("scheduling.run.ai")).await;
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        anyhow::Ok(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}
