//! Workloads that don't get ready make room, and come back.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod below;
mod changed;
mod cron_jobs;
mod decisions;
mod dry;
mod kills;
mod kinds;
mod life;
mod metrics;
mod order;
mod queues;
mod refusals;
mod scene;
mod stories;
mod stuck;
mod ways;

use std::fs;

use tenure_tests::{World, fixtures};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The configuration file, which counts where no queue says anything.
const CONFIG: &str =
    "waitForPodsReady: {timeout: 3s, requeuingStrategy: {backoffBaseSeconds: 500, backoffFactor: '1'}}\n";

/// Of `PodGroup`s, and of owners that people bring along.
const DEFINITIONS: &[&str] = &[
    "batch.volcano.sh",
    "scheduling.run.ai",
    "batch.tensorstack.dev",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "tensorstack.dev",
];

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world = Box::pin(World::installed("requeue", &[])).await?;
        let definitions = DEFINITIONS.iter().flat_map(|file| fixtures::definitions(file));
        fixtures::install(&world, definitions.collect()).await;
        fs::write(world.tenure.config_file(), CONFIG)?;
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// A cluster whose keeper makes all its tries within a minute, and keeps two paused Jobs of a `CronJob`.
async fn brisk_world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let (values, flags) = (["keeper.pausedHistoryLimit=2"], ["--retry-after=1s"]);
        let world = Box::pin(World::installed_with("requeue-brisk", &values, &flags)).await?;
        for definitions in ["trainer.kubeflow.org", "jobset.x-k8s.io"] {
            fixtures::install(&world, fixtures::definitions(definitions)).await;
        }
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// A cluster on which no program runs. One test at a time has it.
async fn empty_world() -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let start = async || {
        let world = Box::pin(World::installed("requeue-empty", &["webhook.failurePolicy=Ignore"])).await?;
        Ok::<_, anyhow::Error>(Mutex::new(world))
    };
    WORLD.get_or_try_init(start).await.unwrap().lock().await
}
