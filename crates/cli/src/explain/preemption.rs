//! `kubectl tenure explain preemption`: whether a pod may preempt others, and why.
//!
//! The judgement is that of the scheduler extender, `tenure_policy::preemption`. A queue or a
//! priority class that the user may not read is an error here, because the verdict could be wrong.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, ensure};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use tenure_policy::{
    gang::progress,
    preemption::{PreemptionKind, Preemptor, QueuePlace, Rule, Rules, Ruling, Victim},
    toleration::PreemptorClaim,
};
use tenure_types::projection::Pod;

use super::text::{from_now, key, paragraph, pod_name, shown};
use crate::{
    cluster::ConnectArgs,
    floors::FloorArgs,
    input::InputArgs,
    print::OutputArgs,
    snapshot::{ExplanationScope, NamedWorkload, NamespacedName, Snapshot},
};

/// Explain whether a pod may preempt others, and the rule that protects each victim
///
/// Judges by the floors of queues (preemptMinRuntime within a leaf queue, reclaimMinRuntime across queues), the minimum
/// of elastic workloads, and the tolerations of the victims' priority classes. It doesn't judge whether a scheduler would
/// choose these victims: whether their priority is lower, or whether they free enough room.
///
/// A kube-scheduler that asks Tenure (docs/kube-scheduler.md) gets the same answer.
///
/// JSON: {"allowed", "kind": "preempt"|"reclaim", "victims": [{"pod", "protected", "rule": "preemptMinRuntime"|
/// "reclaimMinRuntime"|"preemptionToleration"|"minAvailable"|null, "until": TIME|null, "because": [SENTENCE...]}]}.
/// If several rules protect a victim, the rule that does so for longest is named.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure explain preemption --preemptor team/big-0 --victim prod/train-0 --victim prod/train-1
  kubectl tenure explain preemption -f cluster.yaml --now 2026-01-02T03:04:05Z --preemptor a/p --victim b/v -o json")]
pub struct PreemptionArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    output: OutputArgs,

    /// The pod that wants room
    #[arg(long, value_name = "NAMESPACE/POD", value_parser = pod_name)]
    preemptor: NamespacedName,

    /// A pod that is to make room. Can be repeated: all of them together are one scenario
    #[arg(long = "victim", value_name = "NAMESPACE/POD", value_parser = pod_name, required = true)]
    victims: Vec<NamespacedName>,

    #[command(flatten)]
    floors: FloorArgs,
}

/// The verdict on the whole preemption: it is allowed if no rule protects any victim.
#[derive(Debug, Serialize)]
struct PreemptionExplanation {
    allowed: bool,
    /// `preempt` or `reclaim`.
    kind: &'static str,
    victims: Vec<VictimAnswer>,
}

/// The verdict on one victim.
#[derive(Debug, Serialize)]
struct VictimAnswer {
    pod: String,
    /// The rule that protects the victim for the longest time. Null: the victim isn't protected.
    protected: bool,
    /// The end of the protection. Null: not protected, or no end is known.
    rule: Option<&'static str>,
    /// Sentences that give the reasons.
    until: Option<Timestamp>,
    because: Vec<String>,
}

impl PreemptionArgs {
    /// Reads the pods and prints the verdict. A pod that is named twice, or preempts itself, is an
    /// error.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { input, output, preemptor, victims, floors: args } = self;
        let namespace = connect.namespace(!input.filename.is_empty()).await?;
        let preemptor = key(preemptor, &namespace);
        let victims: Vec<NamespacedName> =
            victims.into_iter().map(|victim| key(victim, &namespace)).collect();
        let mut named = HashSet::new();
        for victim in &victims {
            ensure!(*victim != preemptor, "--victim {}: a pod can't preempt itself", shown(victim));
            ensure!(named.insert(victim), "--victim {}: named twice", shown(victim));
        }
        let pods: Vec<NamespacedName> = std::iter::once(&preemptor).chain(&victims).cloned().collect();
        let wanted = ExplanationScope {
            pods: &pods,
            namespace: None,
            t9k_system_namespace: None,
            floors: &args,
            // a verdict would be wrong, and not only incomplete
            may_lack_queues: false,
        };
        let snapshot = Snapshot::read(&input, connect, wanted).await?;
        let answer = answer(&snapshot, &preemptor, &victims)?;
        output.show(&answer, || text(&answer, &shown(&preemptor), snapshot.now))
    }
}

/// Judges the preemption of these victims, all of them together, by the preemptor.
fn answer(
    snapshot: &Snapshot,
    preemptor: &NamespacedName,
    victims: &[NamespacedName],
) -> Result<PreemptionExplanation> {
    let aggressor = snapshot.pod(preemptor)?;
    let of_class = || snapshot.class(aggressor)?.preemption_policy.as_deref();
    let policy = aggressor.spec.preemption_policy.as_deref().or_else(of_class);
    let claim = PreemptorClaim { priority: priority(aggressor), never_preempts: policy == Some("Never") };
    let preemptor = Preemptor { place: place(snapshot, aggressor), claim };
    let pods: Vec<&Pod> = victims.iter().map(|victim| snapshot.pod(victim)).collect::<Result<_>>()?;
    let (mut gangs, mut parts) = (HashMap::new(), HashMap::new());
    for pod in &pods {
        snapshot.warn_of_missing_group(pod);
        let (key, mut gang) = (snapshot.gang_key(pod), snapshot.gang(pod));
        let part = gang.part.take().map(|(id, part)| (key.clone(), id, part));
        parts.extend(part.map(|(key, id, part)| ((key, id), part)));
        gangs.entry(key).or_insert(gang);
    }
    // pods of one workload share it
    let gang = |pod| Some((pod, gangs.get(&snapshot.gang_key(pod))?));
    let pods: Vec<(&Pod, &NamedWorkload<'_>)> = pods.into_iter().filter_map(gang).collect();
    let part = |pod| {
        let (id, _) = snapshot.index.workload(pod).part?;
        parts.get(&(snapshot.gang_key(pod), id))
    };
    let judged = pods.iter().map(|&(pod, gang)| Victim {
        workload: &gang.workload,
        part: part(pod),
        place: place(snapshot, pod),
        subgroup: gang.workload.shape.subgroup(pod),
        progress: progress(pod),
        pool: snapshot.pool(pod),
        class: snapshot.class_state(pod),
        scheduled_at: pod.scheduled_at().map(|at| at.0),
    });
    let judged: Vec<Victim<'_>> = judged.collect();
    let rules = Rules { floors: &snapshot.floors, tree: snapshot.tree(), now: snapshot.now };
    let verdict = rules.verdict(&preemptor, &judged);
    let rulings = verdict.rulings.iter().zip(victims).zip(&pods).zip(&judged);
    let victims = rulings.map(|(((ruling, key), &(pod, gang)), victim)| VictimAnswer {
        pod: shown(key),
        protected: ruling.rule.is_some(),
        rule: ruling.rule.map(Rule::name),
        until: ruling.until,
        because: because(ruling, &preemptor, (pod, &victim.place, gang), snapshot.now),
    });
    Ok(PreemptionExplanation {
        allowed: verdict.allowed,
        kind: verdict.kind.name(),
        victims: victims.collect(),
    })
}

/// Returns the place of a pod's workload in the tree of queues.
fn place<'s>(snapshot: &'s Snapshot, pod: &'s Pod) -> QueuePlace<'s> {
    snapshot.index.workload(pod).whole.place
}

/// Returns the reasons of a ruling as sentences.
fn because(
    ruling: &Ruling<'_>,
    preemptor: &Preemptor<'_>,
    (pod, place, gang): (&Pod, &QueuePlace<'_>, &NamedWorkload<'_>),
    now: Timestamp,
) -> Vec<String> {
    let mut because = vec![format!("its workload is {}", gang.name)];
    because.extend(ruling.because(preemptor, place, now));
    if ruling.start.is_some() && ruling.floor.is_some() {
        because.push(format!("the start time is from {}", gang.start_from));
    }
    let (theirs, ours) = (priority(pod), preemptor.claim.priority);
    if ruling.kind == PreemptionKind::Preempt && theirs >= ours {
        because.push(format!(
            "its priority, {theirs}, is not below the preemptor's, {ours}: no scheduler would choose it"
        ));
    }
    if preemptor.claim.never_preempts {
        because.push("the preemptor's preemptionPolicy is Never: kube-scheduler wouldn't ask".into());
    }
    because
}

/// Returns the priority of a pod. A pod without one has 0.
fn priority(pod: &Pod) -> i32 {
    pod.spec.priority.unwrap_or(0)
}

/// Returns the verdict in paragraphs, one for each victim.
fn text(answer: &PreemptionExplanation, preemptor: &str, now: Timestamp) -> String {
    let may = if answer.allowed { "may" } else { "may not" };
    let victim = |victim: &VictimAnswer| {
        let ruling = match (victim.rule, victim.until) {
            (None, _) => "not protected".into(),
            (Some(rule), Some(until)) => format!("protected by {rule} until {}", from_now(until, now)),
            (Some(rule), None) => format!("protected by {rule}, without an end that is known"),
        };
        format!("\n{}", paragraph(&format!("{}: {ruling}", victim.pod), &victim.because))
    };
    let victims: String = answer.victims.iter().map(victim).collect();
    format!("{preemptor} {may} {} what it asks for.\n{victims}", answer.kind)
}
