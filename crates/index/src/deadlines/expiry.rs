//! The time at which the ceiling of a pod is reached, and the time by which its workload must be ready.

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{
    expiry::{Family, PolicyChange},
    notice::NoticePoints,
    ready::Cause,
};
use tenure_types::projection::Pod;

use super::order::{Lane, Slot, Step};
use crate::times::{Milliseconds, NEVER, PodReadiness, milliseconds, milliseconds_up, time};

/// The time at which a pod's ceiling is reached, the queue that sets it, and the notices before it.
#[derive(Clone, Debug)]
pub struct Ceiling {
    pub at: Timestamp,
    /// The beginning of the run that it counts.
    pub since: Option<Timestamp>,
    pub family: Family,
    pub queue: Option<ArcStr>,
    pub notice: NoticePoints,
}

/// The progress of a pod's expiry.
#[derive(Debug)]
pub struct Expiry {
    /// The time at which the ceiling is reached, rounded up; [`NEVER`] if there is none.
    pub at: i64,
    /// The queue whose ceiling counts.
    pub queue: Option<ArcStr>,
    pub step: Step,
    /// Not before this, since a change of queues came so late; [`NEVER`] if the pod is new, and none has been computed.
    earliest: i64,
    /// The time of that change, if it has moved the end.
    graced_since: Option<Milliseconds>,
}

/// The evidence that a pod was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyNote {
    /// The pod has none, and needs none: its conditions show it, or it has not been ready.
    None,
    /// It was ready, and nothing else says so.
    Lacking,
    /// It is on the pod.
    Noted,
}

impl ReadyNote {
    /// `readiness` is that of the pod as it was seen so far, and `is_noted` true if the pod has the evidence.
    pub fn of(pod: &Pod, readiness: PodReadiness, is_noted: bool) -> Self {
        match readiness.get() {
            _ if is_noted => Self::Noted,
            readiness if readiness.is_forgotten(pod) => Self::Lacking,
            _ => Self::None,
        }
    }
}

impl Default for Expiry {
    fn default() -> Self {
        Self { at: NEVER, queue: None, step: Step::default(), earliest: NEVER, graced_since: None }
    }
}

impl Expiry {
    /// Sets the ceiling that applies now. The queue of the last one is kept: a notice that is withdrawn names it.
    pub fn plan(&mut self, ceiling: Option<Ceiling>) {
        self.at = ceiling.as_ref().map_or(NEVER, |ceiling| milliseconds_up(ceiling.at));
        if let Some(ceiling) = ceiling {
            self.queue = ceiling.queue;
        }
    }

    /// Returns the ceiling after a change of queues, or after the last one: it is reached no earlier than the time that the
    /// change has granted. Returns, too, the end that was past when a queue went missing, as long as the pod lacks one: if
    /// the queue comes back, that is no change which the run is granted time for.
    pub fn granted(
        &mut self,
        ceiling: Option<Ceiling>,
        change: Option<PolicyChange>,
        mut lost: Option<i64>,
        lacks_queue: bool,
    ) -> (Option<Ceiling>, Option<i64>) {
        let is_new = self.earliest == NEVER;
        if is_new {
            self.earliest = i64::MIN;
        } else if let Some(change) = change {
            let before = lost.into_iter().chain((self.at != NEVER).then_some(self.at)).min();
            lost = before.filter(|before| lacks_queue && *before < change.at.as_millisecond());
            let after = ceiling.as_ref().map(|ceiling| time(milliseconds_up(ceiling.at)));
            let has_notice = ceiling.as_ref().is_some_and(|ceiling| !ceiling.notice.is_empty());
            let since = ceiling.as_ref().and_then(|ceiling| ceiling.since);
            let earliest = change.earliest_end(since, before.map(time), after, has_notice);
            let earliest = earliest.map_or(i64::MIN, milliseconds_up);
            // another change may leave the end that an earlier one has granted
            if earliest != self.earliest {
                let is_moved = earliest != i64::MIN && Some(earliest) != before;
                self.graced_since = milliseconds(change.at).filter(|_| is_moved);
                self.earliest = earliest;
            }
        }
        let bounded = ceiling.map(|mut ceiling| {
            if milliseconds_up(ceiling.at) < self.earliest {
                ceiling.at = time(self.earliest);
                ceiling.notice = self.points(ceiling.notice, self.earliest);
            }
            ceiling
        });
        (bounded, lost)
    }

    /// Returns the points of notices before an end: one alone if a change of queues has granted it.
    pub fn points(&self, points: NoticePoints, end: i64) -> NoticePoints {
        let since = self.graced_since.filter(|_| end == self.earliest);
        since.map_or(points, |since| points.of_grace(time(end).duration_since(time(since.get()))))
    }

    /// The time of the next task.
    pub fn next(&self) -> Slot {
        Slot::new(self.step.tries.lane(), self.at.max(self.step.tries.not_before()))
    }
}

/// The time by which a pod's workload must be ready, the cause why it isn't, and the queue that sets the time.
#[derive(Clone, Debug)]
pub struct ReadyUntil {
    pub at: Timestamp,
    pub cause: Cause,
    pub family: Family,
    pub queue: ArcStr,
}

/// The progress of the eviction of a pod whose workload isn't ready. Most workloads are.
#[derive(Debug, Default)]
pub struct Unready {
    /// None if its workload may take any time.
    pub until: Option<ReadyUntil>,
    /// Its workload was paused for it.
    pub paused: bool,
    pub step: Step,
}

impl Unready {
    /// Sets the time by which it must be ready, and keeps the tries so far.
    pub fn plan(known: Option<Box<Self>>, until: Option<ReadyUntil>) -> Option<Box<Self>> {
        let mut unready = if until.is_some() { known.unwrap_or_default() } else { known? };
        unready.until = until;
        Some(unready)
    }

    /// The time of the next task.
    pub fn next(&self) -> Slot {
        let at = self.until.as_ref().map(|until| milliseconds_up(until.at));
        at.map_or(Slot::NONE, |at| Slot::new(Lane::First, at.max(self.step.tries.not_before())))
    }
}
