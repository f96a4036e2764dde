use std::{num::NonZeroU32, time::Duration};

use clap::Parser;
use kube::{Api, Client, runtime::watcher};
use prometheus_client::registry::Registry;
use tenure_policy::{expiry::SYSTEM_CRITICAL_PRIORITY, owners::OwnerTable};
use tenure_service::{
    admin::AdminArgs,
    client::ClientArgs,
    log::LogArgs,
    readiness::Readiness,
    shutdown::Signals,
    watch::{Guarded, follow},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    action::{Actor, write_limit},
    api::Objects,
    clock::ServerClock,
    cluster::{Cluster, PodStore, RunaiStore, TensorstackStore},
    events::Events,
    expiry::Expiry,
    metrics::Metrics,
};

/// For pauses in flight, after a signal to end.
const GRACE: Duration = Duration::from_secs(20);

/// Tenure's keeper: pauses workloads that have run for longer than the maxDuration of their queue.
///
/// It pauses a pod's topmost owner (a Deployment is scaled to 0, a Job is suspended), or deletes the pod if it
/// has none that can be paused. Never touched are pods of a DaemonSet, static pods, pods of priority 2000000000
/// or more, and pods without a queue.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenure-keeper", version, max_term_width = 100)]
pub struct Args {
    #[command(flatten, next_help_heading = "Cluster")]
    client: ClientArgs,

    /// The namespace in which tensorstack queues count
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system", help_heading = "Cluster")]
    t9k_system_namespace: String,

    /// The most that is paused or deleted a second, on the average
    #[arg(long, value_name = "NUMBER", default_value = "50", help_heading = "Limits")]
    writes_per_second: NonZeroU32,

    /// The most that is paused or deleted at once
    #[arg(long, value_name = "NUMBER", default_value = "100", help_heading = "Limits")]
    burst: NonZeroU32,

    #[command(flatten, next_help_heading = "Server")]
    admin: AdminArgs,

    #[command(flatten, next_help_heading = "Logs")]
    log: LogArgs,
}

impl Args {
    /// Works until a signal to end.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { client, t9k_system_namespace, writes_per_second, burst, admin, log } = self;
        log.init()?;
        let signals = Signals::catch()?;
        let client = client.client().await?;
        let readiness = Readiness::default();
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut registry);
        let admin = admin.serve(readiness.clone(), registry).await?;
        let cluster = Cluster::new(SYSTEM_CRITICAL_PRIORITY);
        let clock = ServerClock::default();
        let measured = clock.clone().measure(client.clone(), readiness.awaiting("the API server's clock"));
        let watches = watches(&client, &cluster, &readiness, &t9k_system_namespace);
        let actor = Actor {
            cluster: cluster.clone(),
            clock: clock.clone(),
            objects: Objects::new(client.clone()),
            limit: write_limit(writes_per_second, burst),
            table: OwnerTable::default(),
            priority_threshold: SYSTEM_CRITICAL_PRIORITY,
        };
        let expiry = Expiry { cluster, clock, actor, events: Events::new(client), metrics };
        let everything = async |shutdown: CancellationToken| {
            let work = async {
                tokio::select! {
                    () = readiness.ready() => info!("Keeping ceilings"),
                    () = shutdown.cancelled() => return,
                }
                expiry.run(&shutdown).await;
            };
            let too_long = async {
                shutdown.cancelled().await;
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                () = work => Ok(()),
                () = too_long => anyhow::bail!("gave up on what was in flight after {GRACE:?}"),
                result = admin => result,
                () = async { tokio::join!(watches, measured); } => Ok(()),
            }
        };
        // three watches make a large future
        Box::pin(signals.run(everything)).await
    }
}

/// Follows all that a ceiling depends on.
fn watches(
    client: &Client,
    cluster: &Cluster,
    readiness: &Readiness,
    t9k_system_namespace: &str,
) -> impl Future<Output = ()> + use<> {
    let all = watcher::Config::default();
    // nothing is to be done about pods that have ended, and old clusters are full of them
    let live = all.clone().fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods = follow(Api::all(client.clone()), live, readiness.awaiting("pods"), PodStore(cluster.clone()));
    let runai = follow(
        Api::all(client.clone()),
        all.clone(),
        readiness.awaiting("queues.scheduling.run.ai"),
        Guarded(RunaiStore(cluster.clone())),
    );
    let tensorstack = follow(
        Api::namespaced(client.clone(), t9k_system_namespace),
        all,
        readiness.awaiting("queues.scheduler.tensorstack.dev"),
        Guarded(TensorstackStore(cluster.clone())),
    );
    async {
        tokio::join!(pods, runai, tensorstack);
    }
}
