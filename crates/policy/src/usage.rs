//! The resources that runs have used, and the end of each run. Only evidence counts here: facts
//! that no tenant may write.
//!
//! The index applies these rules to each pod that ends, and the keeper stores the totals. The
//! plugin's simulation reads pods as [`PodRun`] does.

mod totals;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenure_types::{
    projection::{Pod, PodCondition},
    usage_record::UsageEnd,
};

use crate::{
    deletion::DeletionTimes,
    ready::since,
    start::{second_down, second_up},
};

pub use totals::UsageTotals;

/// The most resources that the configuration may have counted.
pub const MOST_RESOURCES: usize = 16;

/// The resource that counts if the configuration names none.
pub const DEFAULT_RESOURCE: &str = "nvidia.com/gpu";

/// The precision of a condition's time and of a deletion's: they are cut to the second.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The time for which a note that the keeper is ending a pod counts. The owner's controller deletes
/// the pod within this time.
const NOTE_COUNTS: SignedDuration = SignedDuration::from_mins(10);

/// The names of the resources whose use is counted.
pub type UsageResources = BTreeSet<String>;

/// The facts about the run of a pod that is or was on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRun {
    /// The time at which the pod was bound.
    pub started: Timestamp,
    /// The end by the pod's phase. None: the phase isn't final.
    pub finished: Option<UsageEnd>,
    /// The time at which the pod stopped. None: its status doesn't show it.
    pub stopped: Option<Timestamp>,
    /// The deletion of the pod. None: it wasn't requested.
    pub deletion: Option<DeletionTimes>,
    /// True if a scheduler has marked the pod as preempted.
    pub preempted: bool,
}

impl PodRun {
    /// Reads a pod whose containers all stopped at `stopped`. None: the pod isn't bound.
    pub fn of(pod: &Pod, stopped: Option<Timestamp>) -> Option<Self> {
        let started = pod.scheduled_at()?.0;
        let finished = match pod.status.phase.as_deref() {
            Some("Succeeded") => Some(UsageEnd::Succeeded),
            Some("Failed") => Some(UsageEnd::Failed),
            _ => None,
        };
        // a pod that its node killed before a container ran has no other time
        let changed = || pod.status.conditions.iter().filter_map(since).max();
        let stopped = stopped.or_else(|| finished.and_then(|_| changed()));
        let preempted = pod.status.conditions.iter().any(is_preemption);
        Some(Self { started, finished, stopped, deletion: DeletionTimes::of(&pod.metadata), preempted })
    }
}

/// True for the condition that kube-scheduler sets on a victim, and KAI-Scheduler with
/// `--update-pod-eviction-condition`.
fn is_preemption(condition: &PodCondition) -> bool {
    condition.type_ == "DisruptionTarget"
        && condition.status == "True"
        && condition.reason.as_deref() == Some("PreemptionByScheduler")
}

/// A note of the keeper that it was ending a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndNote {
    /// The time of the note.
    pub at: Timestamp,
    /// The end that the keeper was causing.
    pub end: UsageEnd,
}

impl EndNote {
    /// True if the note explains a deletion that was requested at `asked`. A later deletion has
    /// another cause.
    pub fn counts_at(self, asked: Timestamp) -> bool {
        self.at.saturating_add(NOTE_COUNTS).is_ok_and(|until| asked <= until)
    }
}

/// The evidence about a run that its pod doesn't show any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndEvidence {
    /// The note that Tenure was ending the run.
    pub act: Option<EndNote>,
    /// The time at which the run reached its ceiling. None: Tenure doesn't act on the run.
    pub deadline: Option<Timestamp>,
    /// The time by which the run had to be ready. None: it was ready, or Tenure doesn't act on it.
    pub ready_until: Option<Timestamp>,
    /// The latest end of a grace period that was seen. The kubelet's final deletion of a pod
    /// shortens the grace period again.
    pub terminating_until: Option<Timestamp>,
}

/// The time at which a change was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenAt {
    /// The time of the change itself, as precisely as it is known.
    pub change: Timestamp,
    /// The present time by the API server's clock.
    pub now: Timestamp,
}

impl SeenAt {
    /// Creates the time of a change that is seen as it happens.
    pub const fn live(now: Timestamp) -> Self {
        Self { change: now, now }
    }
}

/// The length and the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// The end of the run.
    pub end: UsageEnd,
    /// The time for which the pod was on its node.
    pub ran: SignedDuration,
}

/// Judges a run whose pod has finished or is gone. The run never ends before it began, nor after
/// `seen.now`, rounded up to a second: the API server's times are whole seconds.
pub fn ended(run: &PodRun, evidence: &EndEvidence, seen: SeenAt) -> EndedRun {
    let at = ended_at(run, evidence, seen);
    let ran = at.min(second_up(seen.now)).max(run.started).duration_since(run.started);
    EndedRun { end: end(run, evidence, at), ran }
}

/// Returns the end of a run, cut to the second: the time at which its containers stopped or, for a
/// deleted pod, the end of its grace period, or else the time of the change.
fn ended_at(run: &PodRun, evidence: &EndEvidence, seen: SeenAt) -> Timestamp {
    let gone = || match run.deletion {
        Some(deletion) => {
            let until = evidence.terminating_until.unwrap_or(Timestamp::MIN);
            deletion.until.max(until.min(seen.change))
        }
        None => seen.change,
    };
    // the time of the binding is cut to the second as well
    second_down(run.stopped.unwrap_or_else(|| if run.finished.is_some() { seen.change } else { gone() }))
}

/// Returns the kind of an end at a time. A run that was deleted before it finished was ended by the
/// deletion.
///
/// The cause of a deletion is, in this order: a note of the keeper, a preemption, a deadline that
/// had passed by then, or else another client.
fn end(run: &PodRun, evidence: &EndEvidence, at: Timestamp) -> UsageEnd {
    let Some(asked) = run.deletion.map(|deletion| deletion.asked).filter(|asked| *asked <= at) else {
        return run.finished.unwrap_or(UsageEnd::Deleted);
    };
    let within = asked.saturating_add(SECOND).unwrap_or(Timestamp::MAX);
    if let Some(note) = evidence.act.filter(|note| note.counts_at(asked)) {
        note.end
    } else if run.preempted {
        preempted(asked.duration_since(run.started))
    } else {
        let [deadline, ready_until] =
            [evidence.deadline, evidence.ready_until].map(|at| at.filter(|at| *at < within));
        match (deadline, ready_until) {
            (Some(deadline), Some(ready_until)) if ready_until < deadline => UsageEnd::EvictedUnready,
            (Some(_), _) => UsageEnd::Cut,
            (None, Some(_)) => UsageEnd::EvictedUnready,
            (None, None) => UsageEnd::Deleted,
        }
    }
}

/// Returns the end of a run that was preempted at this age.
fn preempted(age: SignedDuration) -> UsageEnd {
    match age.as_secs() {
        ..300 => UsageEnd::PreemptedUnder5m,
        300..1_800 => UsageEnd::PreemptedUnder30m,
        1_800..3_600 => UsageEnd::PreemptedUnder1h,
        3_600..21_600 => UsageEnd::PreemptedUnder6h,
        21_600..86_400 => UsageEnd::PreemptedUnder1d,
        _ => UsageEnd::PreemptedLater,
    }
}

/// Returns the amounts that a pod requests of these resources, in millionths of a unit. `requests`
/// has processors in thousandths, and other resources in whole units. Amounts of zero are left out.
pub fn millionths<'r>(
    resources: &'r UsageResources,
    requests: &BTreeMap<String, i64>,
) -> impl Iterator<Item = (&'r str, u128)> {
    resources.iter().filter_map(|resource| {
        // requests of processors are in thousandths
        let scale = if resource == "cpu" { 1_000 } else { 1_000_000 };
        let amount = requests.get(resource).and_then(|amount| u128::try_from(*amount).ok())?;
        Some((resource.as_str(), amount.saturating_mul(scale))).filter(|(_, amount)| *amount > 0)
    })
}

/// Returns the use of an amount, in millionths of a unit, for a time: in millionths of a unit, for
/// one second.
pub fn used(millionths: u128, ran: SignedDuration) -> u128 {
    let milliseconds = u128::try_from(ran.as_millis()).unwrap_or(0);
    millionths.saturating_mul(milliseconds) / 1_000
}

#[cfg(test)]
mod tests;
