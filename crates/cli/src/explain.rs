//! `kubectl tenure explain`: the floors and ceilings of a workload or a pod, and decisions on preemption.

mod pause;
mod pod;
mod preemption;
mod text;
mod workload;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::connect::ConnectArgs;

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
