//! Keepers that each test starts, configures and ends by itself.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod config;
mod flags;
mod fresh;
mod messages;
mod options;
mod status;

use anyhow::Result;
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, World, fixtures, keeper::Metrics, policies::grant};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The queues of both families.
const QUEUES: &str = "queues.v3alpha1.scheduling.run.ai,queues.v1beta1.scheduler.tensorstack.dev";

/// A cluster with the webhook. One test at a time has it. At first no keeper runs, there is no queue, and the
/// configuration file is as in the chart's `ConfigMap`.
async fn world() -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let world = WORLD.get_or_try_init(start).await.unwrap().lock().await;
    // one that a failed test has left may not end well
    world.tenure.kill_keeper().await.unwrap();
    world.tenure.update_config(&world.cluster).await.unwrap();
    // without a queue, no keeper acts on the pods of earlier tests
    let delete = ["delete", QUEUES, "--all", "--all-namespaces"];
    world.cluster.kubectl(&delete).await.unwrap().success().unwrap();
    world
}

async fn start() -> Result<Mutex<World>> {
    let values = [
        "keeper.expiryNotice=0s",
        "kai.configMap.namespace=default",
        "kai.configMap.name=scheduler-config",
        "kai.shards=true",
        // flags and files of the tests have owners that the chart doesn't know
        "accountPolicy=Off",
    ];
    let world = Box::pin(World::installed("keepers", &values)).await?;
    fixtures::install(&world, fixtures::definitions("unlisted")).await;
    for group in ["example.com", "argoproj.io"] {
        grant(&world, &format!("pause-{group}"), group, &["*"], &["get", "list", "watch", "patch"]).await;
    }
    world.tenure.start_webhook(&world.cluster).await?;
    Ok(Mutex::new(world))
}

/// The cluster of [`world`], with a keeper that leads.
async fn with_keeper() -> MutexGuard<'static, World> {
    let world = world().await;
    world.tenure.start_keeper().await.unwrap();
    await_gauge(&world, "tenure_keeper_leader", 1.0).await;
    world
}

/// Waits until a gauge of the keeper has a value.
async fn await_gauge(world: &World, name: &str, value: f64) {
    let reached = async || {
        let gauge = Metrics::of_world(world).await.gauge(name);
        Ok(gauge.filter(|gauge| (gauge - value).abs() < f64::EPSILON).map(drop))
    };
    eventually(&format!("{name} to be {value}"), DEADLINE, reached).await.unwrap();
}
