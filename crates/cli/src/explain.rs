//! `kubectl tenure explain`: why a workload is paused, or when its run ends; and its subcommands
//! about a pod and about a preemption.
//!
//! Each command reads one [`Snapshot`], of a cluster or of files, and answers by the code of
//! `tenure_policy` and `tenure_index` that the servers run.

mod pause;
mod pod;
mod preemption;
mod text;

use anyhow::{Result, anyhow, ensure};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use serde_json::Value;
use tenure_policy::{
    climb::Action,
    expiry::{Exemption, Scope, exemption},
    kueue,
    naming::{group_of, reference},
    owner_table::PauseRule,
    pause::{OwnerObject, PausedObject},
};
use tenure_types::{podgroup::PodGroupKind, projection};

use crate::{
    access::QueueAccess,
    change::{not_below, shown},
    cluster::{ConnectArgs, targets},
    snapshot::{NamedObject, NamespacedName, Snapshot},
};
use pause::PauseReport;
use text::{RunArgs, paragraph};

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
    after_help = "\
Examples:
  kubectl tenure explain job/train          # why it is paused and what resumes it, or when its run ends
  kubectl tenure explain deployment web -f cluster.yaml
  kubectl tenure explain pod/train-0 -n team
  kubectl tenure explain preemption --preemptor team/big-0 --victim prod/train-0"
)]
pub struct Explain {
    #[command(subcommand)]
    decision: Option<ExplainCommand>,

    /// The workload: KIND/NAME, or KIND and NAME. A kind as kubectl takes it: deploy, deployments, deployment.apps
    #[arg(value_name = "OBJECT", required = true, num_args = 1..=2)]
    object: Vec<String>,

    #[command(flatten)]
    args: RunArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum ExplainCommand {
    Preemption(preemption::PreemptionArgs),
    Pod(pod::PodArgs),
}

impl Explain {
    /// Explains one object, or the subcommand's subject. A pod is explained as by `explain pod`.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { decision, object, args } = self;
        match decision {
            Some(ExplainCommand::Preemption(preemption)) => return preemption.run(connect).await,
            Some(ExplainCommand::Pod(pod)) => return pod.run(connect).await,
            None => {}
        }
        let mut targets = targets(&object)?;
        let target = targets.pop().filter(|_| targets.is_empty());
        let target = target.ok_or_else(|| anyhow!("name one object, as in deployment/test"))?;
        let namespace = connect.namespace(!args.input.filename.is_empty()).await?;
        let mut snapshot = args.read(connect, &[], Some(&namespace)).await?;
        let named = snapshot.named(&namespace, &target).await?;
        if (group_of(&named.reference.api_version), named.reference.kind.as_str()) == ("", "Pod") {
            let answer = pod::answer(&mut snapshot, &(namespace, target.1)).await?;
            return args.output.show(&answer, || pod::sentences(&answer, snapshot.now));
        }
        let answer = answer(&mut snapshot, &namespace, &named).await?;
        args.output.show(&answer, || answer.text(snapshot.now))
    }
}

/// The answer about a workload, for people and programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadExplanation {
    /// Kind, namespace and name: `Job ns/name`.
    workload: String,
    /// The number of its live pods that are in a queue.
    pods: usize,
    /// The record of its pause. Null: it has none.
    paused: Option<PauseReport>,
    /// A sentence about a record that Tenure doesn't follow, or about a pause by another program.
    /// None: there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// The rights to use the queues that its pod template names, if it has no pods in a queue and
    /// queues require a right.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queue_access: Vec<QueueAccess>,
    /// The pod whose run ends first. Null: no pod is in a queue.
    first_pod: Option<pod::PodExplanation>,
}

/// Explains a workload or a `PodGroup`. An error: Tenure doesn't pause this kind, or pauses an
/// owner above it.
async fn answer(
    snapshot: &mut Snapshot,
    namespace: &str,
    named: &NamedObject,
) -> Result<WorkloadExplanation> {
    let of = &named.reference;
    let workload = format!("{} {namespace}/{}", of.kind, of.name);
    let group = PodGroupKind::of(group_of(&of.api_version), &of.kind);
    if group.is_none() {
        let metadata = projection::metadata(&named.object);
        not_below(kueue::paused_in_place(of, &metadata, &snapshot.table), &workload, "explain")?;
        let paused = snapshot.owners.paused_below(&metadata);
        let paused =
            paused.map(|of| format!("; it has paused {of}: kubectl tenure explain {of} -n {namespace}"));
        let (knows, paused) = (snapshot.table.knows(of), paused.unwrap_or_default());
        ensure!(
            knows,
            "Tenure doesn't pause a {}: explain one of its pods, or an object that it controls{paused}",
            of.kind
        );
    }
    let (count, first) = pods(snapshot, namespace, (of, group)).await?;
    let (paused, note) = match pause(snapshot, namespace, named).await? {
        Some(Err(note)) => (None, Some(note)),
        paused => (paused.and_then(Result::ok), None),
    };
    let first_pod = match first {
        Some(key) => Some(pod::answer(snapshot, &key).await?),
        None => None,
    };
    let queue_access = match snapshot.cluster().filter(|_| first_pod.is_none()) {
        Some(cluster) => QueueAccess::of_template(cluster, namespace, &named.object).await?,
        None => Vec::new(),
    };
    Ok(WorkloadExplanation { workload, pods: count, paused, note, queue_access, first_pod })
}

/// Returns the number of live pods in a queue that belong to an owner or a group, and the pod whose
/// run ends first. A pod belongs to the owner that Tenure would pause for it, or to its group.
async fn pods(
    snapshot: &mut Snapshot,
    namespace: &str,
    (of, group): (&OwnerReference, Option<PodGroupKind>),
) -> Result<(usize, Option<NamespacedName>)> {
    let is_owner = |owner: &OwnerReference| {
        (group_of(&owner.api_version), &owner.kind, &owner.name)
            == (group_of(&of.api_version), &of.kind, &of.name)
    };
    let of_group = (group, (namespace.to_owned(), of.name.clone()));
    let mut standings = Vec::new();
    for (key, controller) in snapshot.pods_in(namespace) {
        let is_member = if group.is_some() {
            snapshot.gang_key(snapshot.pod(&key)?) == of_group
        } else {
            match snapshot.climb(namespace, controller.as_ref()).await? {
                Action::Pause(of) | Action::AwaitDeletion(of) | Action::Forbidden(of) => is_owner(&of),
                Action::DeletePod | Action::Exempt => false,
            }
        };
        let exemption = exemption(snapshot.pod(&key)?, &Scope::default());
        if !is_member || matches!(exemption, Some(Exemption::Terminating | Exemption::Finished)) {
            continue;
        }
        let pod = snapshot.pod(&key)?.clone();
        let Some(standing) = snapshot.index.standing(&pod) else { continue };
        let end = standing.expires.map_or(Timestamp::MAX, |(at, _)| at);
        standings.push((exemption.is_some(), end, key));
    }
    let count = standings.len();
    Ok((count, standings.into_iter().min().map(|(.., key)| key)))
}

/// Returns the pause of a workload, or of its Workload of Kueue. The inner error is a sentence
/// about a record that Tenure doesn't follow, or about a pause by another program. None: the workload
/// isn't paused.
async fn pause(
    snapshot: &Snapshot,
    namespace: &str,
    NamedObject { reference: of, object }: &NamedObject,
) -> Result<Option<Result<PauseReport, String>>> {
    let known = PausedObject { object: reference(of, Some(namespace)), workload: None };
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let of = OwnerReference { uid: uid.to_owned(), ..of.clone() };
    let mut reports = Vec::from_iter(PauseReport::read(object, &of, &known, &snapshot.table));
    let is_asked = !uid.is_empty() && reports.iter().all(Result::is_err);
    if let Some(lookup) = kueue::of_owner(&of, &snapshot.table).filter(|_| is_asked) {
        let found = snapshot.workloads(namespace, lookup).await?;
        // users may write others beside the Workload by which Kueue runs the job
        let chosen = kueue::chosen(&found, uid).map(|workload| vec![workload]);
        let workloads = chosen.unwrap_or_else(|| kueue::owned(&found, uid)).into_iter();
        reports.extend(workloads.filter_map(|workload| {
            let of = kueue::refer_to(OwnerObject(workload));
            let known = PausedObject { workload: Some(of.name.clone()), ..known.clone() };
            PauseReport::read(workload, &of, &known, &snapshot.table)
        }));
    }
    // a record that Tenure follows counts first
    reports.sort_by_key(Result::is_err);
    if let Some(report) = reports.into_iter().next() {
        return Ok(Some(report));
    }
    let rule = snapshot.table.rules(&of).find(|rule| OwnerObject(object).is_paused(rule));
    Ok(rule.map(|PauseRule { field, .. }| {
        let value = shown(OwnerObject(object).at(field));
        Err(format!("its {field} is {value}, which something else than Tenure has set"))
    }))
}

impl WorkloadExplanation {
    /// Returns the answer in paragraphs of sentences.
    fn text(&self, now: Timestamp) -> String {
        let mut sentences = self.paused.as_ref().map(PauseReport::sentences).unwrap_or_default();
        sentences.extend(self.note.clone());
        sentences.push(match self.pods {
            0 if self.paused.is_some() => "none of its pods is left in a queue".into(),
            0 => "no live pod of it is in a queue: no ceiling applies".into(),
            1 => "one pod of it is in a queue".into(),
            many => format!("{many} pods of it are in a queue; this is the one whose run ends first"),
        });
        sentences.extend(self.queue_access.iter().map(QueueAccess::sentence));
        let workload = paragraph(&self.workload, &sentences);
        let pod = self.first_pod.as_ref().map(|pod| format!("\n{}", pod::sentences(pod, now)));
        workload + &pod.unwrap_or_default()
    }
}
