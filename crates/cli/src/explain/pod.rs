//! `kubectl tenure explain pod`: what applies to a pod.

mod answer;
mod print;

use anyhow::Result;
use clap::Args;

use super::{PodName, key, pod_name};
use crate::{
    connect::ConnectArgs,
    floors::FloorArgs,
    input::InputArgs,
    output::OutputArgs,
    snapshot::{Snapshot, Wanted},
};
use answer::Question;

/// Say what applies to a pod: until when it is protected, when it expires, and what would be paused
///
/// Protection is told against a preemptor of the same leaf queue, one elsewhere below each of the queue's ancestors,
/// and one of each other top-level queue. The end of its run is computed by the keeper's own code.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PodArgs {
    /// The pod
    #[arg(value_name = "NAMESPACE/POD", value_parser = pod_name)]
    pod: PodName,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    output: OutputArgs,

    /// The namespace in which queues of T9k count, as the keeper has it
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system")]
    t9k_system_namespace: String,

    #[command(flatten)]
    floors: FloorArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure explain pod team/train-0
  kubectl tenure explain pod -f cluster.yaml --now 2026-01-02T03:04:05Z team/train-0 -o json";

impl PodArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { pod, input, output, t9k_system_namespace, floors: args } = self;
        let key = key(pod, &connect.namespace(!input.filename.is_empty()).await?);
        let config = args.config()?;
        let wanted = Wanted {
            pods: std::slice::from_ref(&key),
            t9k_system_namespace: Some(&t9k_system_namespace),
            nodes: args.needs_nodes(&config),
            config: &config,
        };
        let (mut snapshot, source) = Snapshot::read(input, connect, wanted).await?;
        let pod = snapshot.pod(&key)?.clone();
        snapshot.warn_of_missing_group(&pod);
        let action = snapshot.climb(&source, &key.0, pod.controller()).await?;
        let standing = snapshot.index.standing(&pod);
        let pool = args.node_pool.as_deref().or_else(|| snapshot.pool(&pod));
        let question = Question { snapshot: &snapshot, pool, key: &key, pod: &pod };
        let answer = question.answer(&action, standing);
        output.show(&answer, || print::sentences(&answer, snapshot.now))
    }
}
