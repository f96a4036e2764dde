//! The time at which the ceiling of a pod is reached, and the time by which its workload must be
//! ready. `Deadlines` plans both for each pod. A change of queues that shortens a run may grant it
//! a grace, but never a later end than before.

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{
    expiry::{Family, PolicyChange},
    notice::NoticePoints,
    ready::Cause,
};
use tenure_types::projection::Pod;

use super::order::{Lane, OrderSlot, TaskProgress};
use crate::times::{Milliseconds, NEVER, PodReadiness, milliseconds, milliseconds_up, time};

/// The time at which a pod's ceiling is reached, the queue that sets it, and the notices before it.
#[derive(Clone, Debug)]
pub struct Ceiling {
    pub at: Timestamp,
    /// The beginning of the run that the ceiling counts.
    pub since: Option<Timestamp>,
    pub family: Family,
    /// The queue of `family` whose ceiling counts.
    pub queue: Option<ArcStr>,
    pub notice: NoticePoints,
}

/// The progress of a pod's expiry.
#[derive(Debug)]
pub struct Expiry {
    /// The time at which the ceiling is reached, in milliseconds since the epoch, rounded up.
    /// [`NEVER`]: no ceiling applies.
    pub at: i64,
    /// The queue whose ceiling counts, or counted last.
    pub queue: Option<ArcStr>,
    pub step: TaskProgress,
    /// The time before which the run doesn't end, since a change of queues has granted it;
    /// `i64::MIN` if none has. [`NEVER`]: the pod is new, and no end was computed.
    earliest: i64,
    /// The time of the change of queues that has moved the end. None: no change has.
    graced_since: Option<Milliseconds>,
}

/// The evidence that a pod was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyNote {
    /// The pod has no evidence, and needs none: its conditions show that it was ready, or it has
    /// not been ready.
    None,
    /// The pod was ready, and neither its conditions nor its annotations show that.
    Lacking,
    /// The pod bears the evidence.
    Noted,
}

impl ReadyNote {
    /// Compares the readiness of a pod, as seen so far, with what the pod shows. `is_noted`: the
    /// pod bears the evidence.
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
        Self { at: NEVER, queue: None, step: TaskProgress::default(), earliest: NEVER, graced_since: None }
    }
}

impl Expiry {
    /// Sets the ceiling that applies now. The queue of the last ceiling is kept, since the
    /// withdrawal of a notice names it.
    ///
    /// A run that was given more time gets all tries again at its new end. `lost` is the end that
    /// was past when a queue went missing: such a run keeps its tries.
    pub fn plan(&mut self, ceiling: Option<Ceiling>, lost: Option<i64>) {
        self.at = ceiling.as_ref().map_or(NEVER, |ceiling| milliseconds_up(ceiling.at));
        if lost.is_none() {
            self.step.tries.forget_before(self.at);
        }
        if let Some(ceiling) = ceiling {
            self.queue = ceiling.queue;
        }
    }

    /// Returns the ceiling after a change of queues, or after the last change: it is reached no
    /// earlier than the time that the change has granted. `change` is the present change of queues,
    /// if there is one.
    ///
    /// Also returns `lost`, the end that was past when a queue went missing, as long as the pod
    /// lacks a queue. If the queue comes back, that change grants the run no time.
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
            // a later change may leave the end that an earlier one has granted
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

    /// Returns the points of notices before an end. If a change of queues has granted the end, that
    /// is one point, at the beginning of the grace.
    pub fn points(&self, points: NoticePoints, end: i64) -> NoticePoints {
        let since = self.graced_since.filter(|_| end == self.earliest);
        since.map_or(points, |since| points.of_grace(time(end).duration_since(time(since.get()))))
    }

    /// Returns the place of the next try to end the run: at the end, or after the wait since the
    /// last try. A try that waits is no first one, even if the tries before it were forgotten: the
    /// first lane is in the order of the ends.
    pub fn next(&self) -> OrderSlot {
        let (tries, not_before) = (self.step.tries, self.step.tries.not_before());
        let lane = if self.at < not_before { Lane::Again } else { tries.lane() };
        OrderSlot::new(lane, self.at.max(not_before))
    }
}

/// The time by which a pod's workload must be ready, the cause why it isn't, and the queue that
/// sets the time.
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
    /// The time by which the workload must be ready. None: the workload is ready, or may take any
    /// time.
    pub until: Option<ReadyUntil>,
    /// True if the workload was paused since it wasn't ready.
    pub paused: bool,
    pub step: TaskProgress,
}

impl Unready {
    /// Sets the time by which the workload must be ready. A workload that was given more time gets
    /// all tries again. None for `until`: there is no such time.
    pub fn plan(known: Option<Box<Self>>, until: Option<ReadyUntil>) -> Option<Box<Self>> {
        let mut unready = if until.is_some() { known.unwrap_or_default() } else { known? };
        if let Some(until) = &until {
            unready.step.tries.forget_before(milliseconds_up(until.at));
        }
        unready.until = until;
        Some(unready)
    }

    /// Returns the place of the next try to evict the pod. First and repeated tries share the lane.
    pub fn next(&self) -> OrderSlot {
        let at = self.until.as_ref().map(|until| milliseconds_up(until.at));
        at.map_or(OrderSlot::NONE, |at| OrderSlot::new(Lane::First, at.max(self.step.tries.not_before())))
    }
}
