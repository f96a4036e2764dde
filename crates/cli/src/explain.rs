//! `kubectl tenure explain`: the floors and ceilings of a workload or a pod, and decisions on preemption.

mod pause;
mod pod;
mod preemption;
mod workload;

use anyhow::Result;
use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::{
    age::{self, until},
    connect::ConnectArgs,
    snapshot::NamespacedName,
    table::printable,
};

/// Explain a workload, a pod or a decision, in sentences or as JSON
///
/// For a paused workload: the reason and the time of the pause, the queue and the ceiling, the time at which it comes back, and
/// the command that resumes it. For one that has pods: the floors and the ceiling of the pod whose run ends first.
#[derive(Clone, Debug, Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "DECISION",
    after_help = workload::EXAMPLES,
)]
pub struct Explain {
    #[command(subcommand)]
    decision: Option<Decision>,

    #[command(flatten)]
    workload: workload::WorkloadArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum Decision {
    Preemption(preemption::PreemptionArgs),
    Pod(pod::PodArgs),
}

impl Explain {
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        match self.decision {
            Some(Decision::Preemption(preemption)) => preemption.run(connect).await,
            Some(Decision::Pod(pod)) => pod.run(connect).await,
            None => self.workload.run(connect).await,
        }
    }
}

/// A pod of the command line, `NAMESPACE/POD` or a name alone: then its namespace is empty.
fn pod_name(text: &str) -> Result<NamespacedName, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    if name.is_empty() || name.contains('/') || text.starts_with('/') {
        return Err("must be NAMESPACE/POD".into());
    }
    Ok((namespace.into(), name.into()))
}

/// Returns a key with this namespace, if it names none.
fn key((named, name): NamespacedName, namespace: &str) -> NamespacedName {
    (if named.is_empty() { namespace.to_owned() } else { named }, name)
}

/// `NAMESPACE/POD`
fn shown(key: &NamespacedName) -> String {
    format!("{}/{}", key.0, key.1)
}

/// A heading and the sentences below it.
fn paragraph(heading: &str, sentences: &[String]) -> String {
    let sentences = sentences.iter().map(|sentence| format!("  - {}\n", printable(sentence)));
    std::iter::once(format!("{}\n", printable(heading))).chain(sentences).collect()
}

/// To the second, and how long it is until then.
fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({} from now)", age::moment(at), until(at, now))
}
