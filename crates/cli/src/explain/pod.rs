//! `kubectl tenure explain pod`: the protection of a pod, and the end of its run.

mod print;

pub use print::sentences;

use anyhow::Result;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;
use tenure_index::{CeilingIndex, Standing};
use tenure_policy::{
    ceiling::for_people,
    climb::Action,
    expiry::{Exemption, Family, Scope, claimed, exemption, own_ceiling},
    floor::Floor,
    gang::{Progress, progress},
    notice::NoticePoints,
    pause,
    preemption::{PreemptionKind, protected_until},
    toleration::{ClassState, PreemptorClaim, Toleration, judge},
    tree::QueueId,
};
use tenure_types::{keys::MAX_DURATION_ANNOTATION, projection::Pod, runai::v3alpha1::OnReversal};

use super::{key, pod_name, reference, shown};
use crate::{
    age::go,
    connect::ConnectArgs,
    floors::{FloorArgs, Sourced},
    input::InputArgs,
    output::OutputArgs,
    run::Run,
    snapshot::{NamedWorkload, NamespacedName, Snapshot, SnapshotSource, Wanted, workload},
};

/// Explain a pod: the end of its protection, the end of its run, and the action then
///
/// Protection is shown against preemptors of the same leaf queue, against others below each of the queue's ancestors,
/// and against those of each other top-level queue. The end of the run is computed by the keeper's own code.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PodArgs {
    /// The pod
    #[arg(value_name = "NAMESPACE/POD", value_parser = pod_name)]
    pod: NamespacedName,

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
        let (pods, t9k_system_namespace) = (std::slice::from_ref(&key), Some(t9k_system_namespace.as_str()));
        let wanted = Wanted { pods, namespace: None, t9k_system_namespace, floors: &args };
        let (mut snapshot, source) = Snapshot::read(input, connect, wanted).await?;
        let answer = answer(&mut snapshot, &source, &key, args.node_pool.as_deref()).await?;
        output.show(&answer, || sentences(&answer, snapshot.now))
    }
}

/// Answers the floors and the ceiling of a pod that was read.
pub async fn answer(
    snapshot: &mut Snapshot,
    source: &SnapshotSource,
    key: &NamespacedName,
    pool: Option<&str>,
) -> Result<PodExplanation> {
    let pod = snapshot.pod(key)?.clone();
    snapshot.warn_of_missing_group(&pod);
    let action = snapshot.climb(source, &key.0, pod.controller()).await?;
    let workload = workload(source, &snapshot.table, (&key.0, &pod), &action).await?;
    let standing = snapshot.index.standing(&pod);
    let rules = standing.as_ref().map_or_else(Rules::default, |of| Rules::of(&mut snapshot.index, of));
    let without_effect = without_effect(snapshot, &pod, &action, standing.as_ref());
    let pool = pool.or_else(|| snapshot.pool(&pod));
    let question = Question { snapshot, pool, key, pod: &pod, rules, without_effect };
    Ok(question.answer((&action, workload.as_ref()), standing))
}

/// The rules of a pod's queue for the end of its run, if a ceiling applies.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    /// None for a time slice.
    on_reversal: Option<OnReversal>,
    /// The notices before the end.
    notice: NoticePoints,
    /// The time from the end of a time slice until it comes back.
    slice_delay: Option<SignedDuration>,
}

impl Rules {
    fn of(index: &mut CeilingIndex, standing: &Standing) -> Self {
        let family = standing.expires.map(|(_, family)| family);
        let queue = family.and_then(|family| Some((family, standing.queue(family)?)));
        let Some((family, queue)) = queue else { return Self::default() };
        let slice_delay = index.slice_delay(family, queue);
        Self {
            on_reversal: slice_delay.is_none().then(|| index.on_reversal(family, queue)),
            notice: index.notice(family, queue),
            slice_delay,
        }
    }
}

/// The answer for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    pod: String,
    /// `PodGroup ns/name`, or `pod ns/name`.
    workload: String,
    /// The queue of the run.ai family.
    queue: Option<String>,
    /// The path from the root to the queue; empty if there is none.
    path: Vec<String>,
    /// The queue of the tensorstack family.
    tensorstack_queue: Option<String>,
    started_at: Option<Timestamp>,
    started_at_from: &'static str,
    /// True if the workload may lose pods at any time, except the pods that it needs to run while it is protected.
    elastic: bool,
    /// Empty once the pod has ended, or is terminating.
    protected: Vec<Protection>,
    preemption_toleration: Option<TolerationAnswer>,
    /// The reason why its toleration isn't known.
    priority_class_trouble: Option<String>,
    /// The end of its run, counted from `ceiling_since`.
    expires_at: Option<Timestamp>,
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
    /// Why it is never touched.
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
    /// The same queue.
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

struct Question<'s> {
    snapshot: &'s Snapshot,
    pool: Option<&'s str>,
    key: &'s NamespacedName,
    pod: &'s Pod,
    rules: Rules,
    without_effect: Vec<String>,
}

impl Question<'_> {
    fn answer(
        &self,
        (action, workload): (&Action, Option<&OwnerReference>),
        standing: Option<Standing>,
    ) -> PodExplanation {
        let Self { snapshot, pod, key, .. } = self;
        let (gang, tree) = (snapshot.gang(pod), snapshot.tree());
        let of_owner = || claimed(pod).filter(|_| *action == Action::Exempt);
        let exempt = exemption(pod, &Scope::default()).or_else(of_owner);
        let is_gone = progress(pod) == Progress::Gone;
        let run = standing.map(|standing| Run::of(standing, exempt));
        let run = run.as_ref();
        let expiring = run.filter(|run| run.expires().is_some());
        let path = gang.workload.place.queue().and_then(|queue| tree.path(queue).ok()).unwrap_or_default();
        let (preemption_toleration, trouble) = match self.toleration() {
            Ok(toleration) => (toleration, None),
            Err(trouble) => (None, Some(trouble)),
        };
        PodExplanation {
            pod: shown(key),
            queue: gang.workload.place.name().map(str::to_owned),
            path: path.iter().rev().map(|id| tree.name(*id).to_owned()).collect(),
            tensorstack_queue: run
                .and_then(|run| run.standing.queue(Family::Tensorstack))
                .map(ToString::to_string),
            started_at: gang.workload.start,
            started_at_from: gang.start_from,
            elastic: gang.workload.is_elastic(),
            protected: if is_gone { Vec::new() } else { self.protections(&gang, &path) },
            preemption_toleration,
            priority_class_trouble: trouble,
            expires_at: expiring.and_then(Run::expires),
            notices_at: expiring.and_then(Run::expires).map_or_else(Vec::new, |at| {
                self.rules.notice.iter().filter_map(|point| at.checked_sub(point).ok()).collect()
            }),
            ceiling_since: expiring.and_then(Run::since),
            ceiling_since_from: expiring.map(Run::since_from),
            max_duration: run.and_then(|run| run.ceiling(tree)).map(ceiling),
            extension: expiring.map(|run| run.standing.extension).filter(SignedDuration::is_positive).map(go),
            without_effect: self.without_effect.clone(),
            would: exempt.is_none().then(|| self.would(action, workload)),
            exempt: exempt.map(why),
            workload: gang.name,
        }
    }

    /// `path` leads from its queue to the root.
    fn protections(&self, gang: &NamedWorkload<'_>, path: &[QueueId]) -> Vec<Protection> {
        let Self { snapshot, pool, .. } = *self;
        let (tree, floors, place) = (snapshot.tree(), &snapshot.floors, &gang.workload.place);
        let (Some(name), queue) = (place.name(), place.queue()) else { return Vec::new() };
        let against = |name: &str, preemptor, kind: PreemptionKind, floor: Floor<'_>| Protection {
            preemptor_queue: name.to_owned(),
            preemptor,
            kind: kind.name(),
            until: protected_until(gang.workload.start, &floor, snapshot.now),
            floor: floor.into(),
        };
        let reclaim = |preemptor: QueueId, relation| {
            let floor = floors.reclaim(tree, Some(preemptor), queue, pool);
            against(tree.name(preemptor), relation, PreemptionKind::Reclaim, floor)
        };
        let preempt = floors.preempt(tree, queue, pool);
        let mut protections = vec![against(name, Relation::Same, PreemptionKind::Preempt, preempt)];
        protections.extend(path.iter().skip(1).map(|above| reclaim(*above, Relation::Below)));
        let mut others: Vec<&str> = tree.queues().map(|(name, _)| name).collect();
        others.sort_unstable();
        let others = others.into_iter().filter_map(|name| tree.find(name));
        let others = others.filter(|id| tree.parent(*id).is_none() && path.last() != Some(id));
        protections.extend(others.map(|top| reclaim(top, Relation::OtherTree)));
        protections
    }

    /// The toleration of its class, or the reason why it isn't known.
    fn toleration(&self) -> Result<Option<TolerationAnswer>, String> {
        let name = self.pod.spec.priority_class_name.as_deref().unwrap_or_default();
        let trouble = |what| Err(format!("its PriorityClass {name:?} {what}"));
        let state = self.snapshot.class_state(self.pod);
        let Toleration { minimum_preemptable_priority, seconds } = match state {
            ClassState::Known(toleration) => toleration,
            ClassState::None => return Ok(None),
            ClassState::Missing => {
                return trouble(
                    "doesn't exist: until it does, only system-critical pods may preempt the pod",
                );
            }
            ClassState::Unreadable => {
                return trouble("has a toleration that can't be read: it tolerates nothing");
            }
        };
        let scheduled_at = self.pod.scheduled_at().map(|at| at.0);
        // the one that is tolerated if any is
        let least = PreemptorClaim { priority: i32::MIN, never_preempts: false };
        Ok(Some(TolerationAnswer {
            priority_class: name.to_owned(),
            minimum_preemptable_priority,
            toleration_seconds: seconds,
            until: judge(state, scheduled_at, &least, self.snapshot.now).until(),
        }))
    }

    fn would(&self, action: &Action, workload: Option<&OwnerReference>) -> Would {
        let (namespace, pod) = self.key;
        let of_pod = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.clone(),
            ..OwnerReference::default()
        };
        let table = &self.snapshot.table;
        let deletes_owner = matches!(action, Action::Pause(owner) if table.deletes(owner));
        let workload = workload.filter(|_| !deletes_owner);
        let kueue_workload_of = workload.map(|_| match action {
            Action::Pause(owner) => format!("{} {namespace}/{}", owner.kind, owner.name),
            _ => format!("Pod {namespace}/{pod}"),
        });
        let known = match action {
            Action::Pause(owner) => owner,
            _ => &of_pod,
        };
        let (action, owner) = match action {
            Action::Pause(owner) if deletes_owner => ("delete", Some(owner)),
            Action::Pause(owner) => ("pause", workload.or(Some(owner))),
            Action::DeletePod if workload.is_some() => ("pause", workload),
            Action::DeletePod => ("delete", None),
            Action::AwaitDeletion(owner) => ("awaitDeletion", Some(owner)),
            Action::Forbidden(owner) => ("forbidden", Some(owner)),
            Action::Exempt => ("nothing", None),
        };
        let paused = owner.filter(|_| action == "pause");
        let mut rules = paused.into_iter().flat_map(|owner| table.rules(owner));
        let rule = rules.next();
        Would {
            action,
            kind: owner.map_or("Pod", |owner| &owner.kind).to_owned(),
            name: format!("{namespace}/{}", owner.map_or(pod, |owner| &owner.name)),
            kueue_workload_of,
            field: rule.map(|rule| rule.field.clone()),
            value: rule.map(|rule| rule.value.clone()),
            or_field: rules.next().map(|rule| rule.field.clone()),
            on_reversal: paused
                .zip(self.rules.on_reversal)
                .map(|(owner, of_queue)| table.on_reversal(owner).unwrap_or(of_queue))
                .filter(|on_reversal| *on_reversal == OnReversal::DeletePods),
            comes_back_after: paused.and(self.rules.slice_delay).map(for_people),
            resume: paused.map(|_| pause::command("resume", &reference(known, namespace))),
        }
    }
}

/// Sentences about annotations `tenure.dev/max-duration` of a pod and its owner that have no effect.
fn without_effect(
    snapshot: &mut Snapshot,
    pod: &Pod,
    action: &Action,
    standing: Option<&Standing>,
) -> Vec<String> {
    let owner = match action {
        Action::Pause(owner) | Action::AwaitDeletion(owner) => Some(owner),
        _ => None,
    };
    let of_owner = owner.and_then(|owner| {
        let text = snapshot.owners.max_duration(owner)?;
        Some((format!("{} {}", owner.kind, owner.name), text))
    });
    let of_pod = pod.metadata.annotations.as_ref().and_then(|all| all.get(MAX_DURATION_ANNOTATION));
    let of_pod = of_pod.map(|text| (format!("Pod {}", pod.name_any()), text.as_str()));
    let invalid = of_owner.into_iter().chain(of_pod).filter_map(|(of, text)| {
        let error = own_ceiling(text).err()?;
        Some(format!("{of}: {}", pause::own_invalid(text, &error)))
    });
    let mut sentences: Vec<String> = invalid.collect();
    sentences.extend(standing.and_then(|standing| {
        let own = snapshot.index.ignored_own_ceiling(standing)?;
        Some(pause::own_ignored(own, &snapshot.index.ceiling(standing)?))
    }));
    sentences
}

fn ceiling((value, queue): (SignedDuration, Option<&str>)) -> Sourced {
    let own = || format!("annotation {MAX_DURATION_ANNOTATION}");
    Sourced { value: go(value), from: queue.map_or_else(own, |name| format!("queue {name:?}")) }
}

const fn why(exemption: Exemption) -> &'static str {
    match exemption {
        Exemption::Priority => "its priority is that of the cluster's own pods",
        Exemption::DaemonSet => "a DaemonSet controls it",
        Exemption::StaticPod => "it is a static pod",
        Exemption::Terminating => "it is terminating",
        Exemption::Finished => "it has ended",
        Exemption::Scheduler => "another scheduler places it",
        Exemption::Namespace => "its namespace is exempt",
    }
}
