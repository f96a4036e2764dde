//! The flags of the webhook, which `run.rs` reads. The doc comments on flags are the text of
//! `--help`.

use clap::{ArgAction, Parser, Subcommand};
use tenure_service::{admin::AdminArgs, client::ClientArgs, config::ConfigArgs, log::LogArgs, tls::TlsArgs};
use tenure_types::runai::QueueVersion;

use crate::{
    callers::CallerArgs, certificates::CertificateArgs, definition::DefinitionArgs, uninstall::UninstallArgs,
};

/// Tenure's admission webhook: refuses queues and priority classes that can't be obeyed, and warns of probable
/// mistakes.
///
/// It answers the API server on POST /validate, for both kinds of Queue (scheduling.run.ai and
/// scheduler.tensorstack.dev/v1beta1) and for PriorityClass (scheduling.k8s.io/v1). On POST /mutate it ensures that
/// only trusted writers set when a pod group started or move it to another queue, that clients of Queue v2 lose no
/// field of v3alpha1, and that an Extension names the user who asks. On POST /convert it converts queues of
/// scheduling.run.ai from v2 to v3alpha1 and back. With --scheduler-extender it answers kube-scheduler on POST
/// /scheduler/preempt: no pod is preempted within its floor or its toleration. With --guard it reviews deletions and
/// evictions of pods on POST /guard, and denies those that come too early. With --answer-owners it says on POST /owners
/// when a workload asks for more than the ceiling of its queue.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenure-webhook", version, max_term_width = 100, args_override_self = true)]
#[command(args_conflicts_with_subcommands = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<WebhookCommand>,

    #[command(flatten, next_help_heading = "Server")]
    pub(crate) tls: TlsArgs,

    #[command(flatten, next_help_heading = "Certificates that the webhook makes by itself")]
    pub(crate) certificates: CertificateArgs,

    #[command(flatten, next_help_heading = "Server")]
    pub(crate) admin: AdminArgs,

    #[command(flatten, next_help_heading = "Cluster")]
    pub(crate) client: ClientArgs,

    /// The namespace in which queues of T9k count
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system", help_heading = "Cluster")]
    pub(crate) t9k_system_namespace: String,

    /// The version in which queues of scheduling.run.ai are read: v3alpha1, or v2 where KAI-Scheduler owns
    /// their definition. Annotations such as tenure.dev/max-duration then stand for the fields that v2 lacks
    #[arg(long, value_name = "VERSION", default_value_t, help_heading = "Cluster")]
    pub(crate) runai_queue_version: QueueVersion,

    #[command(flatten, next_help_heading = "Cluster")]
    pub(crate) definition: DefinitionArgs,

    /// Answer kube-scheduler on POST /scheduler/preempt. The webhook then follows all pods, and what protects them
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, help_heading = "Scheduler extender")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) scheduler_extender: bool,

    /// Wake preemptors when the floor in their way ends. Without this, they wait until kube-scheduler tries
    /// again by itself, up to five minutes later
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, help_heading = "Scheduler extender")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) wake_up: bool,

    /// Review deletions of pods by schedulers, and evictions of pods by all users, on POST /guard: those within a floor or
    /// a toleration are denied. The webhook then follows all pods, what protects them, and namespaces
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, help_heading = "Guard")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) guard: bool,

    /// With --guard, hold back Evictions of lifecycle.k8s.io/v1alpha1 for floors, where a pod's spec.evictionResponders
    /// names tenure.dev/floor. An alpha API of Kubernetes 1.37
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, help_heading = "Guard")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) eviction_responder: bool,

    /// Review new owners, such as Jobs, on POST /owners: warn about those that ask for a longer run than the ceiling of
    /// their queue, or refuse them where the queue says so
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, help_heading = "Owners")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) answer_owners: bool,

    #[command(flatten, next_help_heading = "Callers")]
    pub(crate) callers: CallerArgs,

    #[command(flatten, next_help_heading = "Configuration file")]
    pub(crate) config: ConfigArgs,

    #[command(flatten, next_help_heading = "Logs")]
    pub(crate) log: LogArgs,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Prepare an uninstall where v2 of queues is served: delete the webhook configurations, and turn off the conversion in the
    /// definition of queues, which couldn't be read in v2 without the webhook
    Uninstall(UninstallArgs),
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
