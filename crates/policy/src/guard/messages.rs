//! The message of a denial.
//!
//! The API server passes this message to the client whose request was denied. It says which pod is
//! protected, until when and why, and what the user can do.

use jiff::{SignedDuration, Timestamp};
use tenure_types::{duration::for_people, keys};

use super::{GuardedPod, NominatedPod, Operation, RemovalRequest};
use crate::{
    floor::Source,
    preemption::{CountedMembers, Rule, Ruling},
    toleration::Judgement,
};

/// Returns the message: the pod, the reason, the end of the protection, and the remedies.
pub fn message(
    known: &GuardedPod<'_>,
    asked: &RemovalRequest<'_>,
    ruling: &Ruling<'_>,
    preemptor: Option<&NominatedPod<'_>>,
) -> String {
    let RemovalRequest { operation, namespace, name, .. } = asked;
    let act = match operation {
        Operation::Delete => "preempted",
        Operation::Evict => "evicted",
    };
    let whom = preemptor.map(|of| format!(" for pod {}/{}", of.namespace, of.name)).unwrap_or_default();
    let why = match ruling.rule {
        Some(Rule::PreemptionToleration) => tolerated(known, ruling),
        Some(Rule::MinAvailable | Rule::PreemptMinRuntime | Rule::ReclaimMinRuntime) | None => {
            floor(known, ruling)
        }
    };
    let annotation = keys::UNGUARDED_ANNOTATION;
    let (end, remedy) = match ruling.until {
        Some(until) => {
            let left = SignedDuration::from_secs(seconds_left(until, known.rules.now));
            (format!("until {until}, for another {}", for_people(left)), "wait, or")
        }
        None => ("with no end that is known".into(), "if it must go,"),
    };
    format!(
        "tenure: pod {namespace}/{name} is protected from being {act}{whom} {end}: {why}; {remedy} set annotation {annotation}: \"true\" on the pod"
    )
}

/// Returns the reason of a protection by a floor: its field, queue, value and source. For an
/// elastic workload, also the number of pods that run and the minimum.
fn floor(known: &GuardedPod<'_>, ruling: &Ruling<'_>) -> String {
    let field = ruling.kind.field();
    let value = ruling.floor.map(|floor| floor.value).unwrap_or_default();
    let from = match ruling.floor.map(|floor| floor.from) {
        Some(Source::Default) | None => "by default".into(),
        Some(source) => format!("from {source}"),
    };
    let queue = known.victim.place.name.unwrap_or_default();
    let floor = format!("{field} of its queue {queue:?} is {value}, {from}");
    match ruling.left.filter(|_| ruling.rule == Some(Rule::MinAvailable)) {
        Some(left) => {
            let (running, min) = (left.running, left.min);
            let of = if left.of == CountedMembers::Workload { "workload" } else { "workload's subgroup" };
            format!("{floor}, and of its {of} {running} pods run where {min} must")
        }
        None => floor,
    }
}

/// Returns the reason of a protection by the toleration of the pod's priority class.
fn tolerated(known: &GuardedPod<'_>, ruling: &Ruling<'_>) -> String {
    let class = known.class.unwrap_or_default();
    let below =
        |minimum| format!("PriorityClass {class:?} tolerates preemption by priorities below {minimum}");
    match ruling.toleration {
        Judgement::Within { minimum, seconds, .. } => {
            format!("its {} for {seconds}s after it was scheduled", below(minimum))
        }
        Judgement::Forever { minimum } => format!("its {} without a time limit", below(minimum)),
        Judgement::MissingClass => {
            format!("its PriorityClass {class:?} doesn't exist, and what it tolerates isn't known")
        }
        other => other.to_string(),
    }
}

/// Returns the whole seconds that are left, rounded up, so that a retry after them isn't too early.
pub(super) fn seconds_left(until: Timestamp, now: Timestamp) -> i64 {
    let left = until.duration_since(now);
    let begun = i64::from(left > SignedDuration::from_secs(left.as_secs()));
    left.as_secs().saturating_add(begun)
}
