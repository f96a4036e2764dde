//! `kubectl tenure explain pod`: the protection of a pod, and the end of its run.

mod print;
mod question;

pub use print::sentences;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tenure_types::runai::v3alpha1::OnReversal;

use super::text::{RunArgs, key, pod_name};
use crate::{
    access::QueueAccess,
    cluster::ConnectArgs,
    floors::Sourced,
    run::Run,
    snapshot::{NamespacedName, Snapshot},
    status::runs_dry,
};
use question::{Question, without_effect};

/// Explain a pod: the end of its protection, the end of its run, and the action then
///
/// Protection is shown against preemptors of the same leaf queue, against others below each of the queue's ancestors,
/// and against those of each other top-level queue. The end of the run is computed by the keeper's own code.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure explain pod/train-0 -n team
  kubectl tenure explain pod/train-0 -n team -f cluster.yaml --now 2026-01-02T03:04:05Z -o json")]
pub struct PodArgs {
    /// The pod
    #[arg(value_name = "NAMESPACE/POD", value_parser = pod_name)]
    pod: NamespacedName,

    #[command(flatten)]
    args: RunArgs,
}

impl PodArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { pod, args } = self;
        let key = key(pod, &connect.namespace(!args.input.filename.is_empty()).await?);
        let mut snapshot = args.read(connect, std::slice::from_ref(&key), None).await?;
        let answer = answer(&mut snapshot, &key).await?;
        args.output.show(&answer, || sentences(&answer, snapshot.now))
    }
}

/// Answers the floors and the ceiling of a pod that was read.
pub async fn answer(snapshot: &mut Snapshot, key: &NamespacedName) -> Result<PodExplanation> {
    let pod = snapshot.pod(key)?.clone();
    snapshot.warn_of_missing_group(&pod);
    let action = snapshot.climb(&key.0, pod.controller()).await?;
    let workload = snapshot.workload(&pod, &action).await?;
    let standing = snapshot.index.standing(&pod);
    let ending = standing.as_ref().and_then(|of| Some((of.expires?.1, of.queue(of.expires?.1)?)));
    let rules = ending.map(|(family, queue)| snapshot.index.rules(family, queue));
    let without_effect = without_effect(snapshot, &pod, &action, standing.as_ref());
    let runs_dry = match snapshot.cluster() {
        Some(cluster) => runs_dry(cluster).await,
        None => false,
    };
    let question = Question { snapshot, key, pod: &pod, rules, without_effect, runs_dry };
    let mut answer = question.answer((&action, workload.as_ref()), standing);
    if let Some(cluster) = snapshot.cluster() {
        answer.queue_access = QueueAccess::of_pod(cluster, key).await?;
    }
    Ok(answer)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, each for itself")]
pub struct PodExplanation {
    pod: String,
    /// `PodGroup ns/name`, or `pod ns/name`.
    workload: String,
    /// The queue of the run.ai family.
    queue: Option<String>,
    /// The path from the root to the queue; empty if there is none.
    path: Vec<String>,
    tensorstack_queue: Option<String>,
    /// The rights to use the queues that its labels name, where queues take a right.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queue_access: Vec<QueueAccess>,
    started_at: Option<Timestamp>,
    started_at_from: &'static str,
    /// True if the workload may lose pods at any time, except the pods that it needs to run while it is protected.
    elastic: bool,
    /// True if its queue may not be read: then nothing is known of its floors.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    queue_is_hidden: bool,
    /// True if a queue that it names, of any group, may not be read: then its end is that which its workload shows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    end_is_hidden: bool,
    /// Empty once the pod has ended, or is terminating, and if its queue may not be read.
    protected: Vec<Protection>,
    preemption_toleration: Option<TolerationAnswer>,
    /// The reason why its toleration isn't known.
    priority_class_trouble: Option<String>,
    /// The end of its run, counted from `ceiling_since`.
    expires_at: Option<Timestamp>,
    /// True if the end is that of annotation `tenure.dev/expires-at`, and not computed from queues.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shows_end: bool,
    /// The times at which its end is announced, if it is; the first of them first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices_at: Vec<Timestamp>,
    ceiling_since: Option<Timestamp>,
    ceiling_since_from: Option<&'static str>,
    max_duration: Option<Sourced>,
    /// The time that its run was granted beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    extension: Option<String>,
    /// Annotations `tenure.dev/max-duration` that have no effect, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_effect: Vec<String>,
    /// None if it is never touched.
    would: Option<Would>,
    exempt: Option<&'static str>,
}

/// Its protection against workloads of some queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Protection {
    /// The queue, or the one below which the preemptor is.
    preemptor_queue: String,
    preemptor: Relation,
    kind: &'static str,
    #[serde(flatten)]
    floor: Sourced,
    /// Null: not protected now.
    until: Option<Timestamp>,
}

/// The relation of a preemptor's queue to the pod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Relation {
    Same,
    /// An ancestor of the pod's queue, or another descendant of that ancestor.
    Below,
    /// Another top-level queue, or a queue below it.
    OtherTree,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TolerationAnswer {
    priority_class: String,
    minimum_preemptable_priority: i64,
    toleration_seconds: i64,
    /// Null: not protected by it now, or without end if the seconds are negative.
    until: Option<Timestamp>,
}

/// The keeper's action on expiry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Would {
    /// True if the keeper runs dry, as far as the user may see: then it only reports this.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    /// `pause`, `delete`, or the reason for neither.
    action: &'static str,
    kind: String,
    name: String,
    /// The job that Kueue runs by it, as in `Job ns/name`, if it is a Workload of Kueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    kueue_workload_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// The field that is set if the served schema doesn't have `field`.
    #[serde(skip_serializing_if = "Option::is_none")]
    or_field: Option<String>,
    /// `DeletePods` if its pods are deleted once three of its pauses were undone, each for a full run.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_reversal: Option<OnReversal>,
    /// The time for which it is paused, if it comes back by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    comes_back_after: Option<String>,
    /// The command that resumes it before that, or at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
}
