use clap::{ArgAction, Parser, Subcommand};
use tenure_policy::{config::Config, kueue, usage::DEFAULT_RESOURCE};
use tenure_service::{
    admin::{AdminArgs, registry},
    client::ClientArgs,
    clock::ServerClock,
    config::ConfigArgs,
    log::LogArgs,
    readiness::ProcessReadiness,
    shutdown::Signals,
    tls::TlsArgs,
};
use tenure_types::runai::QueueVersion;

use crate::{
    Extender, Guard, KnownQueues, Metrics, Mutator, OwnerAnswers, Placement, Validator,
    callers::CallerArgs,
    certificates::{CertificateArgs, CertificateManager},
    definition::DefinitionArgs,
    guard,
    kai::KaiWatch,
    owners::{self, OwnerArgs},
    router, scheduler,
    sight::{Sight, follow},
    uninstall::UninstallArgs,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Tenure's admission webhook: refuses queues and priority classes that can't be obeyed, and warns of probable
/// mistakes.
///
/// It answers the API server on POST /validate, for both kinds of Queue (scheduling.run.ai and
/// scheduler.tensorstack.dev/v1beta1) and for PriorityClass (scheduling.k8s.io/v1). On POST /mutate it ensures that
/// only trusted writers set when a pod group started, and that clients of Queue v2 lose no field of v3alpha1.
/// On POST /convert it converts queues of scheduling.run.ai from v2 to v3alpha1 and back. With --scheduler-extender it
/// answers kube-scheduler on POST /scheduler/preempt: no pod is preempted within its floor or its toleration. With
/// --guard it reviews deletions and evictions of pods on POST /guard, and denies those that come too early. With
/// --answer-owners it says on POST /owners when a workload that is created asks for more than the ceiling of its queue.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenure-webhook", version, max_term_width = 100, args_override_self = true)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten, next_help_heading = "Server")]
    tls: TlsArgs,

    #[command(flatten, next_help_heading = "Certificates that the webhook makes by itself")]
    certificates: CertificateArgs,

    #[command(flatten, next_help_heading = "Server")]
    admin: AdminArgs,

    #[command(flatten, next_help_heading = "Cluster")]
    client: ClientArgs,

    /// The namespace in which tensorstack queues count
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system", help_heading = "Cluster")]
    t9k_system_namespace: String,

    /// The version in which queues of scheduling.run.ai are read: v3alpha1, or v2 where KAI-Scheduler owns their
    /// definition. Then annotations such as tenure.dev/max-duration stand for what v2 lacks
    #[arg(long, value_name = "VERSION", default_value_t, help_heading = "Cluster")]
    runai_queue_version: QueueVersion,

    #[command(flatten, next_help_heading = "Cluster")]
    definition: DefinitionArgs,

    /// Answer kube-scheduler on POST /scheduler/preempt. The webhook then follows all pods, and what protects them
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, help_heading = "Scheduler extender")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    scheduler_extender: bool,

    /// Wake pods that could not preempt any pod, when the floor in their way ends. Without it they wait until
    /// kube-scheduler looks again by itself, which takes up to five minutes
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, help_heading = "Scheduler extender")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    wake_up: bool,

    /// Review deletions of pods by schedulers, and evictions of pods by all users, on POST /guard: those within a floor or
    /// a toleration are denied. The webhook then follows all pods, what protects them, and namespaces
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, help_heading = "Guard")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    guard: bool,

    #[command(flatten, next_help_heading = "Owners")]
    owners: OwnerArgs,

    #[command(flatten, next_help_heading = "Callers")]
    callers: CallerArgs,

    #[command(flatten, next_help_heading = "Configuration file")]
    config: ConfigArgs,

    #[command(flatten, next_help_heading = "Logs")]
    log: LogArgs,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Prepare an uninstall: delete the webhook configurations, and turn off the conversion in the definition of queues,
    /// which couldn't be read in v2 without the webhook
    Uninstall(UninstallArgs),
}

impl Args {
    /// Serves until a signal to end, or runs the subcommand.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command.clone() {
            Some(Command::Uninstall(uninstall)) => uninstall.run().await,
            None => Box::pin(self.serve()).await,
        }
    }

    async fn serve(self) -> anyhow::Result<()> {
        let Self {
            command: _,
            tls,
            certificates,
            admin,
            client,
            t9k_system_namespace,
            runai_queue_version,
            definition,
            scheduler_extender,
            wake_up,
            guard,
            owners,
            callers,
            config,
            log,
        } = self;
        log.init()?;
        let mut metrics_page = registry(env!("CARGO_PKG_VERSION"));
        let registry = metrics_page.sub_registry_with_prefix("tenure_webhook");
        let (config, reload) = config.load(Config::parse, registry)?;
        let signals = Signals::catch()?;
        let clock = ServerClock::default();
        let client = client.client(&clock).await?;
        let callers = callers.load(scheduler_extender)?;
        let readiness = ProcessReadiness::default();
        registry.register_collector(Box::new(readiness.freshness().clone()));
        let (manager, certificate) = certificates.open(client.clone(), &tls, registry, &readiness)?;
        let metrics = Metrics::register(registry);
        let kai = KaiWatch::new(registry);
        let queues = KnownQueues::default();
        let owners = owners.answers(&queues, &client, &t9k_system_namespace);
        let validator =
            Validator::new(queues.clone(), t9k_system_namespace).asking(client.clone(), runai_queue_version);
        let mutator = Mutator::default();
        let placement = Placement::default();
        let extender = scheduler_extender.then(|| {
            Extender::new(
                placement.clone(),
                queues.clone(),
                clock.clone(),
                readiness.clone(),
                metrics.clone(),
            )
            .waking(wake_up)
        });
        let permits = extender.as_ref().map(|extender| extender.permits.clone()).unwrap_or_default();
        let guard = guard.then(|| {
            Guard::new(placement.clone(), queues.clone(), clock.clone(), readiness.clone(), permits)
        });
        placement.change(|index| index.set_kueue_queues(config.kueue.queues.clone()));
        let configured = Configured {
            kueue_queues: config.kueue.queues.clone(),
            validator: validator.clone(),
            mutator: mutator.clone(),
            extender: extender.clone(),
            guard: guard.clone(),
            owners: owners.clone(),
            placement: placement.clone(),
            kai: kai.clone(),
        };
        configured.apply(config);
        let configured = reload.follow(move |config| configured.apply(config));
        let synced = readiness.awaiting("queues.scheduling.run.ai");
        // either way to follow them is large, and it would be in every future around it
        let queues = Box::pin(follow(runai_queue_version, client.clone(), synced, queues));
        let definition = Box::pin(definition.keep(client.clone()));
        let kai = Box::pin(kai.follow(client.clone()));
        let sight = Sight { placement, client, clock, readiness: readiness.clone() };
        let waker = extender.as_ref().and_then(Extender::waker);
        let look = Box::pin(sight.look(waker, extender.clone(), guard.is_some()));
        let admin = admin.serve(readiness.clone(), metrics_page).await?;
        let router = router(validator, mutator, metrics.clone())
            .merge(scheduler::router(extender, metrics.clone()))
            .merge(guard::router(guard, metrics.clone()))
            .merge(owners::router(owners, metrics.clone()));
        let authorities = callers.authorities();
        let router = callers.admit(router, metrics);
        signals
            .run(async |shutdown| {
                tokio::select! {
                    () = keep(manager, shutdown.clone()) => Ok(()),
                    result = tls.serve(router, authorities, certificate, readiness, shutdown) => result,
                    result = admin => result,
                    () = queues => Ok(()),
                    () = definition => Ok(()),
                    () = kai => Ok(()),
                    () = look => Ok(()),
                    () = configured => Ok(()),
                }
            })
            .await
    }
}

/// The parts that a change of the configuration reaches.
struct Configured {
    /// Counts until the next start.
    kueue_queues: kueue::Queues,
    validator: Validator,
    mutator: Mutator,
    extender: Option<Extender>,
    guard: Option<Guard>,
    owners: Option<OwnerAnswers>,
    placement: Placement,
    kai: KaiWatch,
}

impl Configured {
    fn apply(&self, config: Config) {
        let Self { kueue_queues, validator, mutator, extender, guard, owners, placement, kai } = self;
        if config.kueue.queues != *kueue_queues {
            warn!("kueue.queues has changed: that counts when the webhook is started again");
        }
        placement.change(|index| index.set_longest_formation(config.longest_formation));
        if let Some(extender) = extender {
            extender.configure(config.floors.clone());
            let usual = || [DEFAULT_RESOURCE.to_owned()].into();
            extender.count_resources(config.usage.clone().unwrap_or_else(usual));
        }
        if let Some(owners) = owners {
            owners.configure(&config);
        }
        if let Some(guard) = guard {
            guard.configure(config.floors.clone(), config.guarded);
        }
        kai.configure(config.floors.clone(), config.kai);
        validator.configure(config.floors, config.bounds, config.notice, config.grace_on_change);
        mutator.configure(config.trusted, config.tenancy_writers);
    }
}

/// Keeps the certificates, if the webhook makes them. Never ends.
async fn keep(manager: Option<CertificateManager>, shutdown: CancellationToken) {
    match manager {
        Some(manager) => Box::pin(manager.keep(shutdown)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_well_formed_and_all_have_a_default() {
        Args::command().debug_assert();
        Args::try_parse_from(["tenure-webhook"]).unwrap();
    }

    #[test]
    fn every_flag_is_explained_under_a_heading() {
        let mut command = Args::command();
        command.build();
        for flag in command.get_arguments() {
            let id = flag.get_id().as_str();
            if !["help", "version"].contains(&id) {
                assert!(flag.get_help().is_some() && flag.get_help_heading().is_some(), "{id}");
            }
        }
        let help = command.render_long_help().to_string();
        assert!(help.contains("POST /validate"), "{help}");
    }
}
