//! `kubectl tenure matrix`: what applies in each queue, and between each two of them.

mod answer;
mod print;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;

use crate::{
    connect::ConnectArgs,
    floors::FloorArgs,
    input::InputArgs,
    output::OutputArgs,
    snapshot::{Snapshot, queues},
    tell::tell,
};
use answer::Matrix;

/// Show the floors and ceilings of all queues, and the floor between each two of them
///
/// For each queue: its preemptMinRuntime, which holds against workloads of the same leaf queue, and its effective
/// maxDuration. For each ordered pair of queues: the reclaimMinRuntime that holds for a victim in the one against a
/// preemptor in the other. Each with where it comes from.
///
/// Only queues of group scheduling.run.ai have floors. Who keeps them depends on the scheduler: docs/kube-scheduler.md.
/// Pairs are computed as they are printed: however many there are, they take no memory.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MatrixArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    output: OutputArgs,

    /// Only pairs with this queue as the preemptor's
    #[arg(long, value_name = "QUEUE")]
    preemptor_queue: Option<String>,

    /// Only pairs with this queue as the victim's
    #[arg(long, value_name = "QUEUE")]
    victim_queue: Option<String>,

    #[command(flatten)]
    floors: FloorArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure matrix                                   # of the cluster's queues
  kubectl tenure matrix -f queues/                        # of queues that are not yet in a cluster
  kubectl tenure matrix --preemptor-queue a --victim-queue b
  kubectl tenure matrix -o json | jq -r '.reclaim[] | \"\\(.preemptor) -> \\(.victim): \\(.value)\"'";

impl MatrixArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<ExitCode> {
        let Self { input, output: OutputArgs { output }, preemptor_queue, victim_queue, floors: args } = self;
        let config = args.config()?;
        let documents = queues::documents(&input.filename, connect).await?;
        let now = input.now.unwrap_or_else(Timestamp::now);
        let snapshot = Snapshot::of_documents(&documents, &config, now);
        snapshot.warn();
        let tree = snapshot.tree();
        for name in preemptor_queue.iter().chain(&victim_queue) {
            if tree.find(name).is_none() {
                bail!("there is no queue {name:?} of group scheduling.run.ai");
            }
        }
        if tree.is_empty() {
            tell("No queues of group scheduling.run.ai found.");
        }
        let (preemptor, victim) = (preemptor_queue.as_deref(), victim_queue.as_deref());
        let matrix = Matrix::new(tree, &config.floors, args.node_pool.as_deref(), preemptor, victim);
        output.show(&print::Whole(&matrix), |out| print::tables(&matrix, out))?;
        Ok(ExitCode::SUCCESS)
    }
}
