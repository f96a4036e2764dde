use clap::Parser;
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};
use prometheus_client::registry::Registry;
use tenure_policy::config::Config;
use tenure_service::{
    admin::AdminArgs,
    client::ClientArgs,
    config::ConfigArgs,
    log::LogArgs,
    readiness::{Awaited, Readiness},
    shutdown::Signals,
    tls::TlsArgs,
    watch,
};
use tenure_types::{
    projection::{RunaiQueue, RunaiQueueV2},
    runai::QueueVersion,
};

use crate::{KnownQueues, KnownQueuesV2, Metrics, Mutator, Validator, router};

/// Tenure's admission webhook: refuses queues and priority classes that can't be meant, and warns of those that
/// probably aren't.
///
/// It answers the API server on POST /validate, for both kinds of Queue (scheduling.run.ai and
/// scheduler.tensorstack.dev/v1beta1) and for PriorityClass (scheduling.k8s.io/v1). On POST /mutate it sees to it that
/// nobody but trusted writers sets when a pod group started, and that clients of Queue v2 lose no field of v3alpha1.
/// On POST /convert it converts queues of scheduling.run.ai from v2 to v3alpha1 and back.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenure-webhook", version, max_term_width = 100, args_override_self = true)]
pub struct Args {
    #[command(flatten, next_help_heading = "Server")]
    tls: TlsArgs,

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

    #[command(flatten, next_help_heading = "Configuration file")]
    config: ConfigArgs,

    #[command(flatten, next_help_heading = "Logs")]
    log: LogArgs,
}

impl Args {
    /// Serves until a signal to end.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { tls, admin, client, t9k_system_namespace, runai_queue_version, config, log } = self;
        log.init()?;
        let mut registry = Registry::with_prefix("tenure_webhook");
        let (config, reload) = config.load(Config::parse, &mut registry)?;
        let signals = Signals::catch()?;
        let client = client.client().await?;
        let readiness = Readiness::default();
        let metrics = Metrics::register(&mut registry);
        let queues = KnownQueues::default();
        let validator = Validator::new(queues.clone(), t9k_system_namespace);
        let mutator = Mutator::default();
        let configure = {
            let (validator, mutator) = (validator.clone(), mutator.clone());
            move |config: Config| {
                validator.configure(config.floors);
                mutator.configure(config.trusted);
            }
        };
        configure(config);
        let configured = reload.follow(configure);
        let synced = readiness.awaiting("queues.scheduling.run.ai");
        let admin = admin.serve(readiness.clone(), registry).await?;
        // either way to follow them is large, and it would be in every future around it
        let queues = Box::pin(follow(runai_queue_version, client, synced, queues));
        signals
            .run(async |shutdown| {
                tokio::select! {
                    result = tls.serve(router(validator, mutator, metrics), readiness, shutdown) => result,
                    result = admin => result,
                    () = queues => Ok(()),
                    () = configured => Ok(()),
                }
            })
            .await
    }
}

async fn follow(version: QueueVersion, client: Client, synced: Awaited, queues: KnownQueues) {
    let all = watcher::Config::default();
    match version {
        QueueVersion::V3alpha1 => {
            let api: Api<DeserializeGuard<RunaiQueue>> = Api::all(client);
            watch::follow_converted(api, all, synced, watch::Guarded(queues)).await;
        }
        QueueVersion::V2 => {
            let api: Api<DeserializeGuard<RunaiQueueV2>> = Api::all(client);
            watch::follow(api, all, synced, watch::Guarded(KnownQueuesV2(queues))).await;
        }
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
