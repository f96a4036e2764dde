//! How the parts of the keeper are put together.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tenure_index::Settings;
use tenure_policy::{
    config::Config,
    expiry::{Family, SYSTEM_CRITICAL_PRIORITY, Scope},
};
use tenure_service::{
    leadership::{Election, Leadership},
    readiness::Readiness,
    shutdown::Signals,
    watch::{Guarded, follow},
};
use tenure_types::projection::{RunaiPodGroup, TensorstackPodGroup};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    Args,
    action::{Actor, write_limit},
    api::{ApiError, Objects, call, persist},
    clock::ServerClock,
    cluster::{Cluster, GroupStore, PodStore, RunaiStore, TensorstackStore},
    config::Configure,
    events::Events,
    expiry::Expiry,
    metrics::{Metrics, State},
    owners::Owners,
};

/// For pauses in flight, after a signal to end.
const GRACE: Duration = Duration::from_secs(20);

impl Args {
    /// Works until a signal to end.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self {
            client,
            t9k_system_namespace,
            schedulers,
            priority_class_threshold,
            config,
            dry_run,
            threadiness,
            writes_per_second,
            burst,
            leader,
            admin,
            log,
        } = self;
        log.init()?;
        info!(Start = "Run Duration Keeper");
        let mut registry = Registry::with_prefix("tenure_keeper");
        let (config, reload) = config.load(Config::parse, &mut registry)?;
        let signals = Signals::catch()?;
        let client = client.client().await?;
        // a dry run writes nothing, and so no Lease either
        let (lead, election) = if dry_run {
            (Leadership::always(), Election::none())
        } else {
            leader.election(client.clone())?
        };
        let priority_threshold = threshold(&client, &priority_class_threshold).await?;
        let schedulers = schedulers.into_iter().filter(|name| !name.is_empty()).collect();
        let scope = Scope { priority_threshold, schedulers };

        let readiness = Readiness::default();
        let metrics = Metrics::register(&mut registry);
        let settings = Settings { scope: scope.clone(), table: config.table.clone(), notice: config.notice };
        let cluster = Cluster::new(settings);
        let (configure, config) = Configure::new(config, cluster.clone());
        let configured = reload.follow(move |config| configure.apply(config));
        let clock = ServerClock::default();
        State::register(&mut registry, cluster.clone(), clock.clone(), lead.clone(), &metrics);
        let admin = admin.serve(readiness.clone(), registry).await?;
        let measured = clock.clone().measure(client.clone(), readiness.awaiting("the API server's clock"));
        let watches = watches(&client, &cluster, &readiness, &t9k_system_namespace);
        let looked = readiness.awaiting("the kinds of owners");
        let owners = Owners {
            client: client.clone(),
            cluster: cluster.clone(),
            clock: clock.clone(),
            config: config.clone(),
        };
        let owners = owners.follow(readiness.clone(), looked);
        let actor = Actor {
            cluster: cluster.clone(),
            clock: clock.clone(),
            objects: Objects::new(client.clone(), lead.clone()),
            limit: write_limit(writes_per_second, burst),
            config,
            scope,
            dry_run,
            announcements: write_limit(writes_per_second, burst),
            exempt_roots: Mutex::default(),
        };
        let events = Events::new(client, lead.clone());
        let expiry = Expiry { cluster, clock, actor, events, metrics, threadiness };
        let everything = async |shutdown: CancellationToken| {
            let work = async {
                tokio::select! {
                    () = readiness.ready() => info!(dry_run, "Knows all queues, PodGroups and pods"),
                    () = shutdown.cancelled() => return,
                }
                lead_and_work(&expiry, &lead, election, &shutdown).await;
            };
            let too_long = async {
                shutdown.cancelled().await;
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                () = work => Ok(()),
                () = too_long => anyhow::bail!("gave up on what was in flight after {GRACE:?}"),
                result = admin => result,
                () = async { tokio::join!(watches, owners, measured, configured); } => Ok(()),
            }
        };
        // many watches make a large future
        Box::pin(signals.run(everything)).await
    }
}

/// The lease is kept until what was begun is done.
async fn lead_and_work(expiry: &Expiry, lead: &Leadership, election: Election, shutdown: &CancellationToken) {
    let done = CancellationToken::new();
    let work = async {
        expiry.run(lead, shutdown).await;
        done.cancel();
    };
    tokio::join!(work, election.run(done.clone()));
}

/// The priority from which on pods are never touched.
async fn threshold(client: &Client, class: &str) -> anyhow::Result<i32> {
    if class.is_empty() {
        return Ok(SYSTEM_CRITICAL_PRIORITY);
    }
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let context = || format!("--priority-class-threshold {class}");
    match persist(async || call(classes.get(class)).await).await {
        Ok(found) => Ok(found.value.unwrap_or_default()),
        Err(ApiError::NotFound) => anyhow::bail!(
            "--priority-class-threshold {class}: there is no such PriorityClass: `kubectl get priorityclasses` lists those that there are"
        ),
        Err(error) => Err(error).with_context(context),
    }
}

/// Follows all that a ceiling depends on, apart from owners.
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
        all.clone(),
        readiness.awaiting("queues.scheduler.tensorstack.dev"),
        Guarded(TensorstackStore(cluster.clone())),
    );
    let groups = |family| Guarded(GroupStore { cluster: cluster.clone(), family });
    let runai_groups = follow(
        Api::<DeserializeGuard<RunaiPodGroup>>::all(client.clone()),
        all.clone(),
        readiness.awaiting("podgroups.scheduling.run.ai"),
        groups(Family::Runai),
    );
    let tensorstack_groups = follow(
        Api::<DeserializeGuard<TensorstackPodGroup>>::all(client.clone()),
        all,
        readiness.awaiting("podgroups.scheduler.tensorstack.dev"),
        groups(Family::Tensorstack),
    );
    async {
        tokio::join!(pods, runai, tensorstack, runai_groups, tensorstack_groups);
    }
}
