//! What runs have used: how much, and how each of them ended. Only evidence counts here: what no tenant may write.

mod totals;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenure_types::{
    projection::{Pod, PodCondition},
    usage::UsageEnd,
};

use crate::{deletion::DeletionTimes, expiry::Family, ready::since};

pub use totals::UsageTotals;

/// The most resources that are counted.
pub const MOST_RESOURCES: usize = 16;

/// The resource that counts if none is named.
pub const DEFAULT_RESOURCE: &str = "nvidia.com/gpu";

/// A condition's time, and a deletion's, are cut to the second.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The time for which a note counts that the keeper is ending a pod. The controller of its owner deletes it meanwhile.
const NOTE_COUNTS: SignedDuration = SignedDuration::from_mins(10);

/// The resources whose use is counted.
pub type UsageResources = BTreeSet<String>;

/// The name of a family in metrics and records.
pub const fn family_label(family: Family) -> &'static str {
    family.row().name
}

/// The facts about the run of a pod that is or was on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRun {
    /// The time at which it was bound.
    pub started: Timestamp,
    /// Its end by its phase, if that is final.
    pub finished: Option<UsageEnd>,
    /// The time at which it stopped, as far as its status tells.
    pub stopped: Option<Timestamp>,
    /// Its deletion, if that was asked for.
    pub deletion: Option<DeletionTimes>,
    /// True if a scheduler says that it preempts it.
    pub preempted: bool,
}

impl PodRun {
    /// Reads a pod whose containers all stopped at `stopped`; none if it isn't bound.
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

/// True for the condition that kube-scheduler sets on a victim, and KAI-Scheduler with `--update-pod-eviction-condition`.
fn is_preemption(condition: &PodCondition) -> bool {
    condition.type_ == "DisruptionTarget"
        && condition.status == "True"
        && condition.reason.as_deref() == Some("PreemptionByScheduler")
}

/// The note of the keeper that it was ending a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndNote {
    /// The time of the note.
    pub at: Timestamp,
    /// How it was ending the pod.
    pub end: UsageEnd,
}

impl EndNote {
    /// True if the note tells of a deletion asked for at a time. A pod that is there for longer was spared.
    pub fn counts_at(self, asked: Timestamp) -> bool {
        self.at.saturating_add(NOTE_COUNTS).is_ok_and(|until| asked <= until)
    }
}

/// The evidence about a run that isn't on its pod any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndEvidence {
    /// The note that Tenure was ending it.
    pub act: Option<EndNote>,
    /// The time at which its ceiling was reached, if Tenure acts on it.
    pub deadline: Option<Timestamp>,
    /// The time by which it had to be ready, if Tenure acts on it and it wasn't.
    pub ready_until: Option<Timestamp>,
    /// The latest end of a grace period that was seen. The last deletion of a pod, by its node, takes that back.
    pub terminating_until: Option<Timestamp>,
}

/// The time at which something was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenAt {
    /// The time of the change itself, as near as it is known.
    pub change: Timestamp,
    /// The API server's clock now.
    pub now: Timestamp,
}

impl SeenAt {
    /// The time of a change that is seen as it happens.
    pub const fn live(now: Timestamp) -> Self {
        Self { change: now, now }
    }
}

/// The length and the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// How it ended.
    pub end: UsageEnd,
    /// How long it was on its node.
    pub ran: SignedDuration,
}

/// Judges a run whose pod has finished or is gone. The change may be of the second after the clock's, which has begun.
pub fn ended(run: &PodRun, evidence: &EndEvidence, seen: SeenAt) -> EndedRun {
    let at = ended_at(run, evidence, seen);
    let second = Timestamp::from_second(seen.now.as_second()).unwrap_or(seen.now);
    let latest = if second < seen.now { second.saturating_add(SECOND).unwrap_or(seen.now) } else { second };
    let ran = at.min(latest).max(run.started).duration_since(run.started);
    EndedRun { end: end(run, evidence, at), ran }
}

fn ended_at(run: &PodRun, evidence: &EndEvidence, seen: SeenAt) -> Timestamp {
    let gone = || match run.deletion {
        Some(deletion) => {
            let until = evidence.terminating_until.unwrap_or(Timestamp::MIN);
            deletion.until.max(until.min(seen.change))
        }
        None => seen.change,
    };
    let at = run.stopped.unwrap_or_else(|| if run.finished.is_some() { seen.change } else { gone() });
    // the binding is cut to the second as well
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

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

/// Returns the amounts that a pod requests of these resources, in millionths of a unit.
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

/// Returns what so many millionths of a unit are for so long: millionths of a unit for a second.
pub fn used(millionths: u128, ran: SignedDuration) -> u128 {
    let milliseconds = u128::try_from(ran.as_millis()).unwrap_or(0);
    millionths.saturating_mul(milliseconds) / 1_000
}

#[cfg(test)]
mod tests;
