//! Assembles the keeper: reads the configuration, starts the watches, and runs the controllers
//! until a signal to end.
//!
//! `main` calls `Args::run` once. The watches run in every replica, and the controllers only in the
//! one that leads.

mod lead;

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Api, Client, api::ListParams};
use tenure_index::{CeilingIndex, RetryAfter};
use tenure_policy::{
    config::Config,
    expiry::{SYSTEM_CRITICAL_PRIORITY, Scope},
};
use tenure_service::{
    admin::registry,
    call::{ApiError, call, persist},
    clock::ServerClock,
    config::Current,
    groups::follow_groups,
    leadership::{Election, Leadership},
    readiness::ProcessReadiness,
    served::follow_served,
    shutdown::Signals,
    spans,
};
use tenure_types::projection::TensorstackQueueObject;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    Args,
    api::ObjectClient,
    cluster::ClusterState,
    config::{cluster_state, configure},
    events::EventQueue,
    extensions::OpenExtensions,
    gate::FreshnessGate,
    handles::Handles,
    ledger::UsageBook,
    limit::write_limit,
    messages::Messages,
    metrics::{Metrics, MetricsSources},
    owner_watches::Owners,
    pod_notices::NotifiedWorkloads,
    queues::QueueReader,
    status::Statuses,
    stores::{GroupStore, watches},
};

/// The time that work in flight gets after a signal to end. Then the process ends with an error.
const GRACE: Duration = Duration::from_secs(20);

impl Args {
    /// Runs the keeper until SIGINT or SIGTERM. Returns an error if the keeper can't start, if the
    /// admin port fails, or if work is still in flight 20 seconds after the signal.
    pub async fn run(self) -> anyhow::Result<()> {
        self.log.clone().init()?;
        let _spans = spans::start("tenure-keeper")?;
        info!(Start = "Run Duration Keeper");
        let mut metrics_page = registry(env!("CARGO_PKG_VERSION"));
        let registry = metrics_page.sub_registry_with_prefix("tenure_keeper");
        let (config, reload) = self.config.clone().load(Config::parse, registry)?;
        let signals = Signals::catch()?;
        let clock = ServerClock::default();
        // a separate client: renewals of the Lease must not wait behind other calls
        let (lead, election) = self.elect(self.client.clone().client(&clock).await?)?;
        let client = self.client.clone().client_of_leader(&clock, lead.clone()).await?;
        let scope = self.scope(&client).await?;
        let readiness = ProcessReadiness::with_max_staleness(self.max_watch_staleness);
        registry.register_collector(Box::new(readiness.freshness.clone()));
        let metrics = Metrics::register(registry);
        let retry_after = RetryAfter(self.retry_after.unsigned_abs());
        let cluster = cluster_state(&config, scope.clone(), retry_after);
        let gate = FreshnessGate::new(&readiness, &lead, self.max_watch_staleness);
        let handles = Arc::new(self.handles(client, (cluster.clone(), clock, gate), config, metrics));
        let to_configure = Arc::clone(&handles);
        let configured = reload.follow(move |config| configure(&to_configure, config));
        let Handles { clock, metrics, usage, events, extensions, .. } = &*handles;
        registry.register_collector(Box::new(MetricsSources {
            cluster: cluster.clone(),
            clock: clock.clone(),
            lead,
            metrics: metrics.clone(),
            usage: usage.clone(),
            events: events.clone(),
            extensions: extensions.clone(),
        }));
        let admin = self.admin.clone().serve(readiness.clone(), metrics_page, handles.client.clone()).await?;
        let followed = self.follow(&handles, &readiness);
        let everything = async |shutdown: CancellationToken| {
            let known = async {
                readiness.ready().await;
                cluster.with(CeilingIndex::know_queues);
                info!(dry_run = self.dry_run, "Knows all queues, PodGroups and pods");
            };
            let work = async {
                if shutdown.run_until_cancelled(known).await.is_some() {
                    Box::pin(self.lead(scope, &handles, election, &shutdown)).await;
                }
            };
            tokio::select! {
                () = work => Ok(()),
                () = grace_is_over(&shutdown) => anyhow::bail!("gave up on what was in flight after {GRACE:?}"),
                result = admin => result,
                () = async { tokio::join!(followed, configured); } => Ok(()),
            }
        };
        // many watches make a large future
        Box::pin(signals.run(everything)).await
    }

    /// Returns the lead, and the election to run for it. A dry run must not write a Lease, so it
    /// always leads, and holds no election.
    fn elect(&self, client: Client) -> anyhow::Result<(Leadership, Election)> {
        if self.dry_run {
            return Ok((Leadership::always(), Election::none()));
        }
        self.leader.clone().election(client)
    }

    /// Returns which pods the keeper may act on. Fails if the `PriorityClass` of the threshold
    /// can't be read.
    async fn scope(&self, client: &Client) -> anyhow::Result<Scope> {
        let priority_threshold = threshold(client, &self.priority_class_threshold).await?;
        let [schedulers, exempt_namespaces] =
            [&self.schedulers, &self.exempt_namespaces].map(|names| named(names));
        Ok(Scope { priority_threshold, schedulers, exempt_namespaces })
    }

    /// Builds the handles that all controllers share.
    pub(crate) fn handles(
        &self,
        client: Client,
        (cluster, clock, gate): (ClusterState, ServerClock, FreshnessGate),
        config: Config,
        metrics: Metrics,
    ) -> Handles {
        let (config, namespace) = (Current::new(config), self.t9k_system_namespace.clone());
        let messages = Messages::new(config.clone(), clock.clone(), metrics.clone());
        let events = EventQueue::new(metrics.clone(), cluster.outbox.clone(), messages.clone());
        Handles {
            objects: ObjectClient::new(client.clone()),
            queues: QueueReader::new(client.clone(), &cluster, self.runai_queue_version, namespace),
            client,
            gate,
            cluster,
            statuses: Statuses::default(),
            extensions: OpenExtensions::default(),
            clock,
            config,
            metrics,
            events,
            messages,
            usage: UsageBook::default(),
            notified_workloads: NotifiedWorkloads::default(),
            announcements: write_limit(self.writes_per_second, self.burst),
            longest_termination: self.max_termination_grace,
            writes_per_second: self.writes_per_second,
            burst: self.burst,
            dry_run: self.dry_run,
        }
    }

    /// Follows all objects and the kinds of owners, and measures the API server's clock. Each watch
    /// is a task, and a panic in a task resumes here. Never returns.
    fn follow(&self, handles: &Handles, readiness: &ProcessReadiness) -> impl Future<Output = ()> + use<> {
        let Handles { client, cluster, clock, config, .. } = handles;
        let synced = readiness.awaiting("the API server's clock");
        let mut tasks = watches(handles, readiness, &self.t9k_system_namespace, self.runai_queue_version);
        tasks.spawn(clock.clone().measure(client.clone(), synced));
        let owners = Owners::new(client.clone(), cluster.clone(), clock.clone(), config.clone());
        let kinds = follow_kinds(client, owners, cluster, readiness);
        let checked = check_namespace(client.clone(), self.t9k_system_namespace.clone());
        async {
            tokio::join!(tasks.join_all(), kinds, checked);
        }
    }
}

/// Returns once `GRACE` has passed since the signal to end.
async fn grace_is_over(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

/// Follows the kinds of owners and of `PodGroup`s that the API server serves. Never returns. The
/// process isn't ready before these kinds are known.
fn follow_kinds(
    client: &Client,
    owners: Owners,
    cluster: &ClusterState,
    readiness: &ProcessReadiness,
) -> impl Future<Output = ()> + use<> {
    let listed = readiness.awaiting("the kinds of owners");
    let owners = follow_served(client.clone(), owners, readiness.clone(), listed);
    let listed = readiness.awaiting("the kinds of PodGroups");
    let known = cluster.clone();
    let store = move |kind| GroupStore { cluster: known.clone(), kind };
    let groups = follow_groups(client.clone(), store, readiness.clone(), listed);
    async { _ = tokio::join!(owners, groups) }
}

/// Logs a warning if no queue of T9k counts: the watch is silent about a namespace that is mistyped.
async fn check_namespace(client: Client, value: String) {
    if lacks_queues(client, &value).await {
        let (flag, remedy) = ("--t9k-system-namespace", "create the queues there, or correct the flag");
        warn!(flag, value, remedy, "No queue of T9k counts: the namespace has none, or doesn't exist");
    }
}

/// True if the cluster has the kind of T9k's queues, and the namespace has no such queue.
async fn lacks_queues(client: Client, namespace: &str) -> bool {
    let queues: Api<TensorstackQueueObject> = Api::namespaced(client, namespace);
    let one = ListParams::default().limit(1);
    let found = persist(async || call(queues.list_metadata(&one)).await).await;
    found.is_ok_and(|found| found.items.is_empty())
}

/// Drops empty names: an empty flag yields one empty name.
fn named(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| !name.is_empty()).cloned().collect()
}

/// Returns the priority from which on pods are never touched. An empty `class` stands for
/// 2000000000, the priority of `system-cluster-critical`. Fails if there is no such
/// `PriorityClass`, or if the API server doesn't answer.
async fn threshold(client: &Client, class: &str) -> anyhow::Result<i32> {
    if class.is_empty() {
        return Ok(SYSTEM_CRITICAL_PRIORITY);
    }
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let context = || format!("--priority-class-threshold {class}");
    match persist(async || call(classes.get(class)).await).await {
        Ok(found) => Ok(found.value.unwrap_or_default()),
        Err(ApiError::NotFound) => anyhow::bail!(
            "--priority-class-threshold {class}: there is no such PriorityClass: kubectl get priorityclasses lists those of the cluster"
        ),
        Err(error) => Err(error).with_context(context),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::client;

    #[tokio::test]
    async fn a_namespace_without_queues_of_t9k_is_noticed_where_the_cluster_has_the_kind() {
        let list = |items: Value| {
            let (kind, api_version) = ("PartialObjectMetadataList", "meta.k8s.io/v1");
            json!({"kind": kind, "apiVersion": api_version, "metadata": {}, "items": items})
        };
        let absent = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "no", "code": 404});
        for (code, body, expected) in [
            (200_u16, list(json!([])), true),
            (200, list(json!([{"metadata": {"name": "demo", "namespace": "t9k-system"}}])), false),
            (404, absent, false),
        ] {
            let answer = body.clone();
            let client = client(move |_, _| ready((code, answer.clone())));
            assert_eq!(lacks_queues(client, "t9k-system").await, expected, "{body}");
        }
    }
}
