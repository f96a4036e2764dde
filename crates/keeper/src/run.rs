//! Puts the parts of the keeper together.

mod lead;
mod work;

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Api, Client};
use tenure_index::{CeilingIndex, RetryAfter};
use tenure_policy::{
    config::Config,
    expiry::{SYSTEM_CRITICAL_PRIORITY, Scope},
};
use tenure_service::{
    admin::registry,
    call::{ApiError, call, persist},
    clock::ServerClock,
    groups::follow_groups,
    leadership::{Election, LeaderArgs, Leadership},
    readiness::ProcessReadiness,
    served::follow_served,
    shutdown::Signals,
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    Args,
    cluster::ClusterState,
    config::{Configure, settings},
    extensions::OpenExtensions,
    gate::FreshnessGate,
    ledger::{UsageBook, UsageMetrics},
    metrics::{Metrics, State},
    owners::Owners,
    queues::QueueReader,
    status::Statuses,
    stores::{GroupStore, watches},
};
use work::Parts;

/// The time for pauses in flight after a signal to end.
const GRACE: Duration = Duration::from_secs(20);

impl Args {
    /// Works until a signal to end.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self {
            client,
            t9k_system_namespace,
            runai_queue_version,
            schedulers,
            priority_class_threshold,
            exempt_namespaces,
            config,
            dry_run,
            threadiness,
            writes_per_second,
            burst,
            max_termination_grace,
            retry_after,
            max_watch_staleness,
            usage_config_map,
            leader,
            admin,
            log,
        } = self;
        log.init()?;
        info!(Start = "Run Duration Keeper");
        let mut metrics_page = registry(env!("CARGO_PKG_VERSION"));
        let registry = metrics_page.sub_registry_with_prefix("tenure_keeper");
        let (config, reload) = config.load(Config::parse, registry)?;
        let signals = Signals::catch()?;
        let clock = ServerClock::default();
        let usage_namespace = leader.namespace();
        // a client of its own: the Lease must not wait behind other calls
        let (lead, election) = elect(leader, client.clone().client(&clock).await?, dry_run)?;
        let client = client.client(&clock).await?;
        let priority_threshold = threshold(&client, &priority_class_threshold).await?;
        let [schedulers, exempt_namespaces] = [schedulers, exempt_namespaces].map(named);
        let scope = Scope { priority_threshold, schedulers, exempt_namespaces };

        let readiness = ProcessReadiness::with_max_staleness(max_watch_staleness);
        let metrics = Metrics::register(registry);
        let cluster = ClusterState::new(settings(&config, scope.clone(), RetryAfter(retry_after)));
        let statuses = Statuses::default();
        let extensions = OpenExtensions::default();
        let (configure, config) = Configure::new(config, cluster.clone());
        let configured = reload.follow(move |config| configure.apply(config));
        let usage = UsageBook::default();
        UsageMetrics::register(registry, usage.clone(), cluster.clone());
        State::register(registry, cluster.clone(), clock.clone(), lead.clone(), &metrics);
        registry.register_collector(Box::new(readiness.freshness().clone()));
        let admin = admin.serve(readiness.clone(), metrics_page).await?;
        let measured = clock.clone().measure(client.clone(), readiness.awaiting("the API server's clock"));
        let watches = watches(
            &client,
            (&cluster, &clock, lead.clone(), metrics.clone()),
            (statuses.clone(), extensions.clone()),
            &readiness,
            &t9k_system_namespace,
            runai_queue_version,
        );
        let owners = Owners::new(client.clone(), cluster.clone(), clock.clone(), config.clone());
        let kinds = follow_kinds(&client, owners, &cluster, &readiness);
        let known = cluster.clone();
        let gate = FreshnessGate::new(&readiness, &lead, max_watch_staleness);
        let queues = QueueReader::new(client.clone(), &cluster, runai_queue_version, t9k_system_namespace);
        let usage_namespace = usage_namespace.unwrap_or_else(|| client.default_namespace().into());
        let parts = Parts {
            client,
            gate,
            cluster,
            statuses,
            extensions,
            clock,
            lead: lead.clone(),
            config,
            metrics,
            writes: (writes_per_second, burst),
            longest_termination: max_termination_grace,
            dry_run,
            usage,
            usage_record: (usage_namespace, usage_config_map),
        };
        let work = parts.work(scope, queues, runai_queue_version, threadiness);
        let everything = async |shutdown: CancellationToken| {
            let work = async {
                tokio::select! {
                    () = readiness.ready() => {
                        known.with(CeilingIndex::know_queues);
                        info!(dry_run, "Knows all queues, PodGroups and pods");
                    }
                    () = shutdown.cancelled() => return,
                }
                Box::pin(work.lead(&lead, election, &shutdown)).await;
            };
            tokio::select! {
                () = work => Ok(()),
                () = grace_is_over(&shutdown) => anyhow::bail!("gave up on what was in flight after {GRACE:?}"),
                result = admin => result,
                () = async { tokio::join!(watches, kinds, measured, configured); } => Ok(()),
            }
        };
        // many watches make a large future
        Box::pin(signals.run(everything)).await
    }
}

/// Waits until the time for pauses in flight is over after a signal to end.
async fn grace_is_over(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

/// Follows the kinds of owners and of `PodGroup`s that the API server serves. The process is ready once it knows them.
fn follow_kinds(
    client: &Client,
    owners: Owners,
    cluster: &ClusterState,
    readiness: &ProcessReadiness,
) -> impl Future<Output = ()> + use<> {
    let looked = readiness.awaiting("the kinds of owners");
    let owners = follow_served(client.clone(), owners, readiness.clone(), looked);
    let looked = readiness.awaiting("the kinds of PodGroups");
    let known = cluster.clone();
    let store = move |kind| GroupStore { cluster: known.clone(), kind };
    let groups = follow_groups(client.clone(), store, readiness.clone(), looked);
    async { _ = tokio::join!(owners, groups) }
}

/// A dry run writes nothing, and so no Lease either.
fn elect(leader: LeaderArgs, client: Client, dry_run: bool) -> anyhow::Result<(Leadership, Election)> {
    if dry_run {
        return Ok((Leadership::always(), Election::none()));
    }
    leader.election(client)
}

/// Drops empty names, as an empty flag has one.
fn named(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).collect()
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
