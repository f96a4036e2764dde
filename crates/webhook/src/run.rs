//! Puts the parts of the webhook together.
//!
//! `main.rs` calls [`Args::run`]. All watches, servers and tasks run as branches of one `select!`:
//! when one of them ends or fails, so does the process. The busy watches are tasks that a branch
//! awaits, so their events poll no branch.

use anyhow::ensure;
use axum::Router;
use futures::future::OptionFuture;
use kube::Client;
use tenure_policy::{config::Config, kueue};
use tenure_service::{
    admin::registry, clock::ServerClock, readiness::ProcessReadiness, shutdown::Signals, spans,
    validity::CertificateEnds,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    Args, Extender, Guard, Metrics, Mutator, OwnerAnswers, Validator,
    args::WebhookCommand,
    certificates::CertificateManager,
    guard::{self, EvictionResponder},
    http::LargeBodies,
    kai::KaiWatch,
    owners, router, scheduler,
    sight::{ClusterView, follow},
};

impl Args {
    /// Serves until a signal to stop, or runs the subcommand. Fails if a flag, a file or the
    /// configuration is invalid, or if a server or the subcommand fails.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command.clone() {
            Some(WebhookCommand::Uninstall(uninstall)) => uninstall.run().await,
            None => Box::pin(self.serve()).await,
        }
    }

    /// Loads the configuration and the certificates, starts the watches and serves until shutdown.
    async fn serve(self) -> anyhow::Result<()> {
        self.log.clone().init()?;
        ensure!(
            self.guard || !self.eviction_responder,
            "--eviction-responder needs --guard, which knows the floors of pods"
        );
        let _spans = spans::start("tenure-webhook")?;
        let mut metrics_page = registry(env!("CARGO_PKG_VERSION"));
        let registry = metrics_page.sub_registry_with_prefix("tenure_webhook");
        let (config, reload) = self.config.clone().load(Config::parse, registry)?;
        let signals = Signals::catch()?;
        let clock = ServerClock::default();
        let client = self.client.clone().client(&clock).await?;
        let callers = self.callers.clone().load(self.scheduler_extender)?;
        let readiness = ProcessReadiness::default();
        registry.register_collector(Box::new(readiness.freshness.clone()));
        let certificates = self.certificates.clone();
        // a client of its own: the Lease must not wait behind other calls
        let of_lease = self.client.clone().client(&clock).await?;
        let clients = (client.clone(), of_lease, clock.clone());
        let ends = CertificateEnds::register(registry);
        let (manager, made) = certificates.open(clients, &self.tls, &ends, &readiness)?.unzip();
        let (metrics, kai) = (Metrics::register(registry), KaiWatch::new(registry));
        let sight = ClusterView { clock, readiness: readiness.clone(), ..ClusterView::default() };
        registry.register_collector(Box::new(sight.queues.clone()));
        let handlers = Handlers::new(&self, &sight, &client, (&metrics, kai), config);
        let configured = handlers.clone();
        let configured = reload.follow(move |config| configured.configure(config));
        let synced = readiness.awaiting("queues.scheduling.run.ai");
        let mut queues = JoinSet::new();
        queues.spawn(follow(self.runai_queue_version, client.clone(), synced, sight.queues.clone()));
        // boxed: this future is large, and would be part of every future around it
        let definition = Box::pin(self.definition.clone().keep(client.clone()));
        let kai = Box::pin(handlers.kai.clone().follow(client.clone()));
        let admin = self.admin.clone().serve(readiness.clone(), metrics_page, client.clone()).await?;
        let responder =
            handlers.guard.clone().filter(|_| self.eviction_responder).map(EvictionResponder::new);
        let responding = Box::pin(respond_to_evictions(responder, client.clone()));
        let following =
            Box::pin(follow_cluster(sight, client, handlers.extender.clone(), handlers.guard.is_some()));
        let authorities = callers.authorities();
        let router = spans::of_answers(callers.admit(handlers.router(&metrics), metrics));
        signals
            .run(async |shutdown| {
                tokio::select! {
                    () = keep(manager, shutdown.clone()) => Ok(()),
                    result = Box::pin(self.tls.serve(router, authorities, (made, ends), readiness, shutdown)) => result,
                    result = admin => result,
                    _ = queues.join_all() => Ok(()),
                    () = definition => Ok(()),
                    () = kai => Ok(()),
                    () = following => Ok(()),
                    () = responding => Ok(()),
                    () = configured => Ok(()),
                }
            })
            .await
    }
}

/// The parts that answer requests. None: the part is off. A change of the configuration reaches
/// them all.
#[derive(Clone)]
struct Handlers {
    sight: ClusterView,
    /// The `kueue.queues` of the start. A later change takes effect at the next start.
    kueue_queues: kueue::KueueQueues,
    validator: Validator,
    extender: Option<Extender>,
    guard: Option<Guard>,
    owners: Option<OwnerAnswers>,
    kai: KaiWatch,
}

impl Handlers {
    /// Creates the parts that the flags turn on, and applies the first configuration.
    fn new(
        args: &Args,
        sight: &ClusterView,
        client: &Client,
        (metrics, kai): (&Metrics, KaiWatch),
        config: Config,
    ) -> Self {
        let (queues, namespace) = (&sight.queues, &args.t9k_system_namespace);
        let owners = args.answer_owners.then(|| {
            let asking = Some((client.clone(), namespace.clone(), args.runai_queue_version));
            OwnerAnswers::new(queues.clone(), sight.config.clone(), asking)
        });
        let extender = args.scheduler_extender.then(|| {
            let mut extender = Extender::new(sight.clone(), metrics.clone());
            extender.wakes = args.wake_up;
            extender
        });
        let permits = extender.as_ref().map(|extender| extender.permits.clone()).unwrap_or_default();
        let guard = args.guard.then(|| Guard::new(sight.clone(), permits));
        let validator = Validator::new(queues.clone(), namespace.clone());
        let mut validator = validator.asking(client.clone(), args.runai_queue_version);
        validator.config = sight.config.clone();
        let kueue_queues = config.kueue_queues.clone();
        sight.placement.change(|index| index.set_kueue_queues(kueue_queues.clone()));
        let sight = sight.clone();
        let handlers = Self { sight, kueue_queues, validator, extender, guard, owners, kai };
        handlers.configure(config);
        handlers
    }

    /// Applies a configuration to all parts. Warns of a change that takes effect only at the next
    /// start.
    fn configure(&self, config: Config) {
        if config.kueue_queues != self.kueue_queues {
            warn!("kueue.queues has changed: restart the webhook to apply the change");
        }
        self.sight.placement.change(|index| index.set_longest_formation(config.longest_formation));
        self.sight.queues.configure(&config);
        self.kai.configure(config.floors.clone(), config.kai.clone());
        self.sight.config.set(config);
    }

    /// Returns all routes. A route whose part is off says so in its answers. The admission routes
    /// share one bound on the bodies in memory.
    fn router(self, metrics: &Metrics) -> Router {
        let Self { sight, validator, extender, guard, owners, .. } = self;
        let (mutator, bodies) = (Mutator { config: sight.config }, LargeBodies::default());
        router(validator, mutator, metrics.clone(), &bodies)
            .merge(scheduler::router(extender, metrics.clone()))
            .merge(guard::router(guard, metrics.clone(), &bodies))
            .merge(owners::router(owners, metrics.clone(), &bodies))
    }
}

/// Follows the objects that the extender and the guard need, and runs the tasks of the extender.
/// Does nothing if both are off. Never ends.
async fn follow_cluster(sight: ClusterView, client: Client, extender: Option<Extender>, guards: bool) {
    let ClusterView { placement, clock, readiness, .. } = sight;
    if extender.is_none() && !guards {
        return std::future::pending().await;
    }
    let measured = clock.measure(client.clone(), readiness.awaiting("the API server's clock"));
    let wake = extender.as_ref().and_then(Extender::waker).map(|waker| waker.run(client.clone()));
    let count = OptionFuture::from(extender.as_ref().map(Extender::count_kept));
    tokio::join!(measured, placement.follow(client, readiness, guards), OptionFuture::from(wake), count);
}

/// Responds to Evictions, if that is on. Never ends.
async fn respond_to_evictions(responder: Option<EvictionResponder>, client: Client) {
    match responder {
        Some(responder) => Box::pin(responder.run(client)).await,
        None => std::future::pending().await,
    }
}

/// Keeps the certificates, if the webhook makes them. Never ends.
async fn keep(manager: Option<CertificateManager>, shutdown: CancellationToken) {
    match manager {
        Some(manager) => Box::pin(manager.keep(shutdown)).await,
        None => std::future::pending().await,
    }
}
