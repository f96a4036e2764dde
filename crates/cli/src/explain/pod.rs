//! `kubectl tenure explain pod`: the protection of a pod, and the end of its run.
//!
//! [`answer`] is also called by `explain` for a workload's first pod. It reads the owners on the
//! way up; `question` then puts the answer together without any request.

mod print;
mod question;

pub use print::sentences;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tenure_policy::climb;
use tenure_types::runai::v3alpha1::OnReversal;

use super::text::{RunArgs, key, pod_name};
use crate::{
    access::QueueAccess,
    cluster::ConnectArgs,
    floors::SourcedValue,
    run::WorkloadRun,
    snapshot::{NamespacedName, Snapshot},
    status::runs_dry,
};
use question::{ExplainedPod, without_effect};

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
    /// Reads the pod and its group, and prints the answer.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { pod, args } = self;
        let key = key(pod, &connect.namespace(!args.input.filename.is_empty()).await?);
        let mut snapshot = args.read(connect, std::slice::from_ref(&key), None).await?;
        let answer = answer(&mut snapshot, &key).await?;
        args.output.show(&answer, || sentences(&answer, snapshot.now))
    }
}

/// Returns the floors and the ceiling of a pod that the snapshot has. Reads its owners, and its
/// Workload of Kueue.
pub async fn answer(snapshot: &mut Snapshot, key: &NamespacedName) -> Result<PodExplanation> {
    let pod = snapshot.pod(key)?.clone();
    snapshot.warn_of_missing_group(&pod);
    let action = snapshot.climb(&key.0, climb::controller(&pod)).await?;
    let workload = snapshot.workload(&pod, &action).await?;
    let standing = snapshot.index.standing(&pod);
    let ending = standing.as_ref().and_then(|of| {
        let (_, family) = of.expires?;
        Some((family, of.queue(family)?))
    });
    let rules = ending.map(|(family, queue)| snapshot.index.queue_rules(family, queue));
    let without_effect = without_effect(snapshot, &pod, &action, standing.as_ref());
    let runs_dry = match snapshot.cluster() {
        Some(cluster) => runs_dry(cluster).await,
        None => false,
    };
    let question = ExplainedPod { snapshot, key, pod: &pod, rules, without_effect, runs_dry };
    let mut answer = question.answer((&action, workload.as_ref()), standing);
    if let Some(cluster) = snapshot.cluster() {
        answer.queue_access = QueueAccess::of_pod(cluster, key).await?;
    }
    Ok(answer)
}

/// The answer about a pod, for people and programs. Empty lists and false flags are left out of
/// JSON where most pods have them so.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, each for itself")]
pub struct PodExplanation {
    /// Namespace and name: `ns/name`.
    pod: String,
    /// The unit of floors and starts: `PodGroup ns/name`, or `pod ns/name`.
    workload: String,
    /// The queue of the run.ai family.
    queue: Option<String>,
    /// The path from the root to the queue. Empty: no such queue exists.
    path: Vec<String>,
    tensorstack_queue: Option<String>,
    /// The rights to use the queues that the pod's labels name, where queues take a right.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queue_access: Vec<QueueAccess>,
    /// The start of the workload, from which floors count. Null: it hasn't started.
    started_at: Option<Timestamp>,
    started_at_from: &'static str,
    /// True if the workload may lose pods at any time, apart from those that it needs to run while
    /// it is protected.
    elastic: bool,
    /// True if the user may not read the pod's queue. Its floors aren't known then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    queue_is_hidden: bool,
    /// True if the user may not read a queue, of any group, that the pod names. The end is then the
    /// one that its workload shows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    end_is_hidden: bool,
    /// The protection against each kind of preemptor. Empty once the pod has ended or is
    /// terminating, and if the user may not read its queue.
    protected: Vec<Protection>,
    /// The toleration of its priority class. Null: the class has none, or it isn't known.
    preemption_toleration: Option<TolerationAnswer>,
    /// The reason why the toleration isn't known. Null: it is known.
    priority_class_trouble: Option<String>,
    /// The end of the run, counted from `ceiling_since`. Null: no end is known.
    expires_at: Option<Timestamp>,
    /// True if the end is that of annotation `tenure.dev/expires-at`, and wasn't computed from
    /// queues.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shows_end: bool,
    /// The times at which the end is announced, the earliest first. Empty: the end isn't announced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices_at: Vec<Timestamp>,
    ceiling_since: Option<Timestamp>,
    ceiling_since_from: Option<&'static str>,
    /// The ceiling that applies, with the queue or the annotation that sets it.
    max_duration: Option<SourcedValue>,
    /// The time beyond that ceiling that the run was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    extension: Option<String>,
    /// Sentences about annotations `tenure.dev/max-duration` that have no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_effect: Vec<String>,
    /// The keeper's action at the end. Null: the pod is never touched.
    would: Option<ExpiryAction>,
    /// The reason why the pod is never touched.
    exempt: Option<&'static str>,
}

/// The pod's protection against workloads of some queues.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Protection {
    /// The queue of the preemptor, or a queue above it.
    preemptor_queue: String,
    /// How that queue is related to the pod's queue.
    preemptor: QueueRelation,
    /// `preempt` or `reclaim`.
    kind: &'static str,
    #[serde(flatten)]
    floor: SourcedValue,
    /// The end of the protection. Null: the pod isn't protected now.
    until: Option<Timestamp>,
}

/// The relation of a preemptor's queue to the pod's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum QueueRelation {
    /// The pod's own queue.
    Same,
    /// An ancestor of the pod's queue, or another descendant of that ancestor.
    Below,
    /// Another top-level queue, or a queue below it.
    OtherTree,
}

/// The toleration of the pod's priority class.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TolerationAnswer {
    priority_class: String,
    /// The pod is protected against preemptors with a lower priority than this.
    minimum_preemptable_priority: i64,
    /// The time after the pod's scheduling for which it is protected. Negative: always. 0: never.
    toleration_seconds: i64,
    /// The end of this protection. Null: the pod isn't protected by it now, or, with negative
    /// seconds, without end.
    until: Option<Timestamp>,
}

/// The keeper's action on expiry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExpiryAction {
    /// True if the keeper is in dry-run mode, as far as the user may see. It then only reports this
    /// action.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    /// `pause`, `delete`, `awaitDeletion`, `forbidden` or `nothing`.
    action: &'static str,
    /// The object of the action, with its namespace before its name.
    kind: String,
    name: String,
    /// The job that Kueue runs by this Workload, as in `Job ns/name`. None: the object isn't a
    /// Workload of Kueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    kueue_workload_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// The field that is set if the served schema lacks `field`.
    #[serde(skip_serializing_if = "Option::is_none")]
    or_field: Option<String>,
    /// `DeletePods` if the pods are deleted in place of a pause once three pauses were undone, each
    /// for a full run.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_reversal: Option<OnReversal>,
    /// The time for which the workload is paused. Null: it doesn't come back by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    comes_back_after: Option<String>,
    /// The command that resumes the workload. Null: the action isn't a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
}
