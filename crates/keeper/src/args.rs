//! The flags of the keeper. `main` parses them, and `run` starts the keeper from them.

use std::{num::NonZeroU32, time::Duration};

use clap::{ArgAction, Parser, builder::NonEmptyStringValueParser};
use jiff::SignedDuration;
use tenure_policy::expiry::KUBE_SYSTEM;
use tenure_service::{
    admin::AdminArgs, client::ClientArgs, config::ConfigArgs, leadership::LeaderArgs, log::LogArgs,
};
use tenure_types::{runai::QueueVersion, usage_record::USAGE_CONFIG_MAP};

/// Tenure's keeper: pauses workloads that have run for longer than the maxDuration of their queue.
///
/// If a queue or the configuration file has waitForPodsReady, it also pauses workloads whose pods don't get ready
/// in time, and brings them back later.
///
/// It pauses a pod's topmost owner (a Deployment is scaled to 0, a Job is suspended), or deletes the pod if it
/// has none that can be paused. Never touched are pods of a DaemonSet, static pods, pods of priority 2000000000
/// or more, and pods without a queue. Of several keepers one leads, and the others stand by.
///
/// Flags may have one dash or two. -h lists them in brief.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenure-keeper", version, max_term_width = 100, args_override_self = true)]
pub struct Args {
    #[command(flatten, next_help_heading = "Cluster")]
    pub(crate) client: ClientArgs,

    /// The namespace in which queues of T9k count
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system", help_heading = "Cluster")]
    #[arg(visible_alias = "t9kSystemNamespace")]
    pub(crate) t9k_system_namespace: String,

    /// The version in which queues of scheduling.run.ai are read: v3alpha1, or v2 where KAI-Scheduler owns their
    /// definition. Then annotations such as tenure.dev/max-duration stand for the fields that v2 lacks
    #[arg(long, value_name = "VERSION", default_value_t, help_heading = "Cluster")]
    pub(crate) runai_queue_version: QueueVersion,

    /// Schedulers whose pods count, separated by commas. Without it: pods of all schedulers
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Pods in scope")]
    pub(crate) schedulers: Vec<String>,

    /// Name of a PriorityClass: pods of its priority or a higher one are never touched. Without it:
    /// 2000000000, the priority of system-cluster-critical
    #[arg(long, value_name = "NAME", default_value = "", help_heading = "Pods in scope")]
    #[arg(hide_default_value = true)]
    pub(crate) priority_class_threshold: String,

    /// Namespaces whose pods are never touched, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = KUBE_SYSTEM, help_heading = "Pods in scope")]
    pub(crate) exempt_namespaces: Vec<String>,

    /// Only report the actions that would be taken, in events, metrics and logs
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, help_heading = "Pods in scope")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) dry_run: bool,

    /// The number of owners that are handled at the same time
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = at_least_one, help_heading = "Limits")]
    #[arg(allow_negative_numbers = true)]
    pub(crate) threadiness: NonZeroU32,

    /// The most pauses and deletions a second, on average. Returns, stamps of start times and notices of the end have
    /// limits of the same size, and wait for none of the others. That of events is four times as high
    #[arg(long, value_name = "NUMBER", default_value = "50", value_parser = at_least_one, help_heading = "Limits")]
    pub(crate) writes_per_second: NonZeroU32,

    /// The most pauses and deletions at once. The other limits have the same burst
    #[arg(long, value_name = "NUMBER", default_value = "100", value_parser = at_least_one, help_heading = "Limits")]
    pub(crate) burst: NonZeroU32,

    /// The longest time that a pod may terminate once it has reached its ceiling. A pod with a longer grace period is
    /// deleted with this one, or deleted again with the rest of this time as its grace period
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = at_least_a_second, help_heading = "Limits")]
    pub(crate) max_termination_grace: SignedDuration,

    /// The time from the first try to pause or delete a pod until the next, if the pod runs on. It doubles with each
    /// try, up to eight times as long. After nine tries, which is five minutes by default, a pod whose owners can't be
    /// paused is deleted
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = at_least_a_second, help_heading = "Limits")]
    pub(crate) retry_after: SignedDuration,

    /// The longest time without an answer of the API server to a watch. After it, the keeper is unready, and pauses and
    /// resumes nothing, because its data may be out of date. The API server ends each watch after 50 seconds
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = at_least_a_minute, help_heading = "Limits")]
    pub(crate) max_watch_staleness: Duration,

    /// The ConfigMap with the record of usage, if the configuration has usage. It must exist, in the namespace of the
    /// Lease
    #[arg(long, value_name = "NAME", default_value = USAGE_CONFIG_MAP, help_heading = "Usage")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) usage_config_map: String,

    #[command(flatten, next_help_heading = "Configuration file")]
    pub(crate) config: ConfigArgs,

    #[command(flatten, next_help_heading = "Several keepers")]
    pub(crate) leader: LeaderArgs,

    #[command(flatten, next_help_heading = "Server")]
    pub(crate) admin: AdminArgs,

    #[command(flatten, next_help_heading = "Logs")]
    pub(crate) log: LogArgs,
}

/// Parses a duration of at least one second.
fn at_least_a_second(text: &str) -> Result<SignedDuration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.as_secs() == 0 {
        return Err("must be at least a second".into());
    }
    SignedDuration::try_from(duration).map_err(|_| "is too long".into())
}

/// Parses a duration of at least one minute.
fn at_least_a_minute(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration < Duration::from_mins(1) { Err("must be at least a minute".into()) } else { Ok(duration) }
}

/// Parses a whole number of at least 1.
fn at_least_one(text: &str) -> Result<NonZeroU32, &'static str> {
    text.parse().map_err(|_| "must be a whole number of at least 1")
}
