//! `kubectl tenure forecast`: the resources that ceilings free, and by when at the latest.
//!
//! `room` reads pods and nodes, `bound` computes without a cluster, and `answer` makes the text.
//! `ui` uses `answer`, too. The result is an upper bound: most pods end sooner.

pub mod answer;
mod bound;
mod demand;
pub mod room;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tenure_types::ExtendedDuration;

use crate::{
    cluster::{ConnectArgs, T9kArgs},
    floors::{duration, of_file},
    input::{self, Document, InputArgs},
    print::OutputArgs,
};
use answer::Forecast;
use room::ClusterRoom;

/// Show which resources come free, and by when at the latest
///
/// A bound, not an estimate: the latest time at which each pod has ended, by the ceiling of its queue alone. The bound
/// includes ten minutes for the keeper, even if owners resist, and the grace period of the pod. Most pods end sooner. Pods
/// without a ceiling are listed separately. The bound doesn't hold once more time is granted or a queue is changed. It doesn't
/// say which workload gets the room.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure forecast                       # of all namespaces, or with -n of one
  kubectl tenure forecast --by node --resource nvidia.com/gpu
  kubectl tenure forecast --for job.yaml        # the time by which there is room for it at the latest
  kubectl tenure forecast -f cluster.yaml --now 2026-01-02T03:04:05Z")]
pub struct ForecastArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Show when there is room for this workload at the latest: a Pod, Job, JobSet, Deployment, StatefulSet or
    /// ReplicaSet; - is standard input
    #[arg(long = "for", value_name = "FILE|-")]
    workload: Option<String>,

    /// Show what comes free in all, or by node
    #[arg(long, value_parser = ["all", "node"], default_value = "all")]
    by: String,

    /// Only these resources [default: GPUs if there are any, else cpu]
    #[arg(long = "resource", value_name = "RESOURCE", value_delimiter = ',')]
    resources: Vec<String>,

    /// The number of rows of the table
    #[arg(long, value_name = "N", default_value_t = 30)]
    rows: usize,

    /// The longest time that a pod may terminate: the value of the keeper's flag of this name
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    max_termination_grace: ExtendedDuration,

    #[command(flatten)]
    t9k: T9kArgs,

    /// The configuration file of keeper and webhook; - for standard input
    #[arg(long, value_name = "FILE")]
    config: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

impl ForecastArgs {
    /// Reads the pods, from a cluster or from files, and prints the bound.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let config = of_file(self.config.as_deref())?;
        let wanted = self.workload.as_ref().map(|path| workload(path)).transpose()?;
        ensure!(
            wanted.is_none() || connect.named_namespace().is_none(),
            "--for needs the pods of all namespaces, because each takes room: leave out -n"
        );
        let cluster = if self.input.filename.is_empty() {
            ClusterRoom::of_cluster(&self, connect, &config).await?
        } else {
            ClusterRoom::of_files(&self, &config)?
        };
        let forecast = Forecast::new(&cluster, self.by == "node", wanted.as_ref())?;
        self.output.show(&forecast, || forecast.text(self.resources, self.rows))
    }
}

/// Returns the only object of a file. An error: the file has none, or several.
fn workload(path: &str) -> Result<Document> {
    let mut documents = input::read(&[path.to_owned()])?;
    let (number, name) = (documents.len(), input::shown(path));
    let one = documents.pop().filter(|_| number == 1);
    one.with_context(|| format!("--for {name}: has {number} objects: must have one"))
}
