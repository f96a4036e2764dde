//! The reasons behind a ruling, as sentences. The plugin's `explain` prints them.

use jiff::{SignedDuration, Timestamp};
use tenure_types::duration::for_people;

use super::{CountedMembers, PodProgress, PreemptionKind, Preemptor, QueuePlace, RemainingMembers, Ruling};
use crate::{expiry::SYSTEM_CRITICAL_PRIORITY, floor::Source};

impl PreemptionKind {
    /// Returns the name of the kind in API responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::Reclaim => "reclaim",
        }
    }

    /// Returns the field of a queue that counts for this kind.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Preempt => "preemptMinRuntime",
            Self::Reclaim => "reclaimMinRuntime",
        }
    }
}

impl Ruling<'_> {
    /// Returns the reasons of a ruling, in the order in which they were found. `victim` is the
    /// place of the victim.
    pub fn because(&self, preemptor: &Preemptor<'_>, victim: &QueuePlace<'_>, now: Timestamp) -> Vec<String> {
        // all fields are listed, so that a rule that is added is explained here
        let Self { rule: _, until: _, start: _, kind, floor, floor_until, left, toleration, progress } = self;
        if *progress == PodProgress::Gone {
            return vec!["it has ended, or is terminating: it has nothing to lose".into()];
        }
        let mut sentences = vec![self.place(&preemptor.place, victim)];
        sentences.extend(missing(&preemptor.place, "the preemptor counts as one of another tree"));
        sentences.extend(missing(victim, "the default floor counts"));
        if let Some(floor) = floor {
            let from = match floor.from {
                Source::Default => "by default".into(),
                source => format!("from {source}"),
            };
            sentences.push(format!("{} is {}, {from}", kind.field(), floor.value));
            sentences.push(self.floor_sentence(floor.value.to_signed(), now));
            sentences.extend(left.map(|left| elastic(left, floor_until.is_some())));
        }
        sentences.push(toleration.to_string());
        if preemptor.claim.priority >= SYSTEM_CRITICAL_PRIORITY && floor_until.is_some() {
            sentences.push("no floor holds against it".into());
        }
        sentences
    }

    fn place(&self, preemptor: &QueuePlace<'_>, victim: &QueuePlace<'_>) -> String {
        match (self.kind, victim.name) {
            (PreemptionKind::Preempt, Some(queue)) => {
                format!("preemptor and victim are both in queue {queue:?}: preemptMinRuntime counts")
            }
            (_, None) => "it is in no queue: no floor counts".into(),
            (PreemptionKind::Reclaim, Some(queue)) => {
                let other = preemptor.name.map_or("no queue".into(), |name| format!("queue {name:?}"));
                format!("it is in queue {queue:?}, and the preemptor in {other}: reclaimMinRuntime counts")
            }
        }
    }

    fn floor_sentence(&self, floor: SignedDuration, now: Timestamp) -> String {
        let Some(start) = self.start else {
            return "its workload has no start time: it is not protected".into();
        };
        if floor.is_zero() {
            return "a floor of 0s protects no workload".into();
        }
        let since = if start > now {
            format!("its workload's start time, {start}, lies in the future and counts as now")
        } else {
            format!("its workload started at {start}, {} ago", shown(now.duration_since(start)))
        };
        match self.floor_until {
            Some(until) => {
                let left = shown(until.duration_since(now));
                format!("{since}: the floor lasts until {until}, for another {left}")
            }
            None => format!("{since}: the floor is over"),
        }
    }
}

/// Returns the sentence about a queue that doesn't exist. None: the queue exists, or the pod names
/// none.
fn missing(place: &QueuePlace<'_>, consequence: &str) -> Option<String> {
    let name = place.name.filter(|_| place.queue.is_none())?;
    Some(format!("queue {name:?} doesn't exist: {consequence}"))
}

/// Returns the sentence about the pods that an elastic workload has left. `within_floor`: its floor
/// isn't over.
fn elastic(left: RemainingMembers, within_floor: bool) -> String {
    let RemainingMembers { of, running, evicted, min } = left;
    let rest = running.saturating_sub(evicted);
    let verdict = match (left.is_enough(), within_floor) {
        (true, _) => "enough",
        (false, true) => "too few while the floor lasts",
        (false, false) => "too few, but no floor lasts",
    };
    let what = match of {
        CountedMembers::Workload => "running pods of it",
        CountedMembers::Subgroup => "running pods of its subgroup",
        CountedMembers::OtherSubgroup => "running pods of another subgroup",
        CountedMembers::Subgroups => "subgroups that have their minimum",
    };
    format!(
        "its workload is elastic: {evicted} of {running} {what} would go and {rest} stay; at least {min} must stay: {verdict}"
    )
}

/// Returns a duration for people, to the second.
fn shown(duration: SignedDuration) -> String {
    for_people(SignedDuration::from_secs(duration.as_secs()))
}
