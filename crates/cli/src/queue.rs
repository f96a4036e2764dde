//! `kubectl tenure queue`: who runs in a queue, who comes back and when, and who doesn't.

mod answer;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use tenure_policy::expiry::Family;

use crate::{
    connect::ConnectArgs,
    floors::of_file,
    list::gather::Gatherer,
    output::{Output, OutputArgs},
    tell::tell,
};
use answer::Answer;

/// Show who runs in a queue, who comes back and when, and who is paused
///
/// RUNNING are workloads that have pods, those that have run for longest first, with how many of their pods are ready
/// and how many it takes; their times are as those of list. COMING BACK are those that Tenure has paused for a while,
/// in the order in which they come back: of those that are due at once the higher priority comes first, then who was
/// paused, or created, earlier, as the queue's requeuingStrategy says. RETURNS is how often a workload was paused because
/// its pods didn't get ready. DEACTIVATED are those that wait for activate, and PAUSED those that wait for resume.
///
/// Workloads of all namespaces, or with -n of one.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct QueueArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    name: String,

    /// The namespace in which queues of T9k count, as the keeper has it
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system")]
    t9k_system_namespace: String,

    /// The configuration file of the servers, whose waitForPodsReady and default floors count where no queue has any; -
    /// for standard input
    #[arg(long, value_name = "FILE")]
    config: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure queue research                  # workloads of all namespaces
  kubectl tenure queue research -n team          # those of one
  kubectl tenure queue research -o json | jq -r '.comingBack[] | \"\\(.requeueAt) \\(.workload)\"'";

impl QueueArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<ExitCode> {
        let Self { name, t9k_system_namespace, config, output: OutputArgs { output } } = self;
        let config = of_file(config.as_deref())?;
        let is_given = connect.named_namespace().is_some();
        let connection = connect.connect().await?;
        let namespace = is_given.then_some(connection.namespace);
        let mut gatherer = Gatherer::new(connection.client, namespace, t9k_system_namespace, config).await;
        let mut view = gatherer.view().await?;
        let (is_known, now) = (view.snapshot.knows(&name), gatherer.now());
        let mut of =
            |family| view.snapshot.index.pods_ready(family, &name).map(|of| of.timestamp).unwrap_or_default();
        let (of_runai, of_tensorstack) = (of(Family::Runai), of(Family::Tensorstack));
        let timestamp = |family| if family == Family::Runai { of_runai } else { of_tensorstack };
        let answer = Answer::new(name, timestamp, view.rows(now), now);
        if answer.is_empty() && !is_known {
            bail!("there is no queue {:?}, as far as you may see", answer.queue);
        }
        if answer.is_empty() && output == Output::Table {
            tell(&format!("Nobody runs, comes back or is paused in queue {}.", answer.queue));
        }
        output.show(&answer, |mut out| answer.tables(!is_given, now, &mut out))?;
        Ok(ExitCode::SUCCESS)
    }
}
