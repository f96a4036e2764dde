//! The readiness of a workload's pods, and the deadline by which they must be ready.
//!
//! A workload must be ready within its queue's `waitForPodsReady.timeout`. The time counts from the
//! scheduling of its first pod, which takes room from then on, or from the creation of that pod, if
//! `countFrom` says so. A workload that was ready and isn't any more must be ready again within
//! `recoveryTimeout`. Both times are read from the conditions of the pods, so that nothing is
//! forgotten when a keeper ends. They are also remembered for a run, since replaced pods take their
//! conditions with them.
//!
//! The index calls these rules for each pod and workload, and hands workloads out to the keeper
//! when a deadline has passed.

use jiff::{SignedDuration, Timestamp};
use tenure_types::{
    ExtendedDuration,
    evidence::Evidence,
    projection::{Pod, PodCondition},
    runai::v3alpha1::{CountFrom, RequeuingTimestamp, WaitForPodsReady},
};

use crate::{
    gang::{AttainedCounts, GangShape, PodProgress, progress},
    requeue::{Backoff, positive},
};

/// The readiness of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The pod is ready.
    Ready,
    /// The pod hasn't been ready yet.
    NotYet,
    /// The pod was ready, and has not been ready since this time.
    Lost(Timestamp),
}

impl Readiness {
    /// Reads the readiness that a pod shows, by its conditions or by
    /// [evidence](Evidence::was_ready).
    pub fn of(pod: &Pod) -> Self {
        Self::NotYet.after(pod)
    }

    /// Reads the readiness of a pod that was seen before, `self` being the readiness then.
    ///
    /// A pod that was ready is never [`Self::NotYet`] again: when its node reboots, its init
    /// containers end another time, after its `Ready` was lost.
    #[must_use]
    pub fn after(self, pod: &Pod) -> Self {
        let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_noted = self == Self::NotYet && Evidence::of(&pod.metadata).was_ready;
        match (if is_noted { Self::Ready } else { self }, Self::shown(pod)) {
            (Self::Lost(at), Self::NotYet) => Self::Lost(at),
            (Self::Ready, Self::NotYet) => {
                let lost = condition(pod, "Ready").and_then(since).or_else(created);
                lost.map_or(Self::NotYet, Self::Lost)
            }
            (_, shown) => shown,
        }
    }

    /// True if `self` says that the pod was ready, and the pod itself no longer shows it.
    pub fn is_forgotten(self, pod: &Pod) -> bool {
        self != Self::NotYet && Self::of(pod) == Self::NotYet
    }

    /// Reads the readiness that the conditions of a pod show. A kubelet sets the condition `Ready`
    /// before its init containers have ended, which is when it sets `Initialized`: a `Ready` that
    /// has changed later was true in between.
    fn shown(pod: &Pod) -> Self {
        let Some(ready) = condition(pod, "Ready") else { return Self::NotYet };
        if ready.status == "True" {
            return Self::Ready;
        }
        let initialized = condition(pod, "Initialized").filter(|of| of.status == "True").and_then(since);
        match since(ready).zip(initialized) {
            Some((lost, initialized)) if lost > initialized => Self::Lost(lost),
            _ => Self::NotYet,
        }
    }
}

fn condition<'p>(pod: &'p Pod, type_: &str) -> Option<&'p PodCondition> {
    pod.status.conditions.iter().find(|of| of.type_ == type_)
}

/// Returns the time at which a condition changed last.
pub(crate) fn since(of: &PodCondition) -> Option<Timestamp> {
    of.last_transition_time.as_ref().map(|time| time.0)
}

/// Returns the time from a pod's scheduling until it was ready. None: the pod isn't ready, or its
/// times contradict each other.
pub fn took(pod: &Pod) -> Option<SignedDuration> {
    let ready = condition(pod, "Ready").filter(|of| of.status == "True").and_then(since)?;
    let took = ready.duration_since(pod.scheduled_at()?.0);
    (!took.is_negative()).then_some(took)
}

/// True if a pod has ended or is being deleted, and its room is free for others. A failed pod may be
/// replaced by its controller. The room of a preempted or evicted pod is taken, or its node has to
/// become empty.
pub fn has_left_room(pod: &Pod) -> bool {
    let is_disrupted = |of: &PodCondition| of.type_ == "DisruptionTarget" && of.status == "True";
    let may_be_replaced = pod.status.phase.as_deref() == Some("Failed") && pod.controller().is_some();
    progress(pod) == PodProgress::Gone && !may_be_replaced && !pod.status.conditions.iter().any(is_disrupted)
}

/// A pod of a workload that is neither finished nor terminating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePod {
    /// The number of the pod's subgroup.
    pub subgroup: usize,
    /// The time of the pod's creation.
    pub created: Timestamp,
    /// The time of the pod's scheduling. None: it isn't scheduled.
    pub scheduled: Option<Timestamp>,
    /// The readiness of the pod.
    pub readiness: Readiness,
}

/// A workload that has fewer ready pods than it needs to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// The creation of the first of its pods, as far as that is known.
    pub created: Timestamp,
    /// The time since which the workload takes room: the first scheduling, or the start of its run
    /// if that is earlier. None: it takes none.
    pub started: Option<Timestamp>,
    /// The time since which the workload has too few ready pods.
    pub since: Timestamp,
    /// The time since which the workload had too few ready pods when that was first seen in its
    /// run.
    pub first_since: Timestamp,
    /// True if the workload had enough pods before: as many of them have been ready as it needs.
    pub was_ready: bool,
}

/// The readiness of a run, as far as it was seen. The index keeps one per run, and forgets it when
/// the run ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunMemory {
    /// True if the run has had enough ready pods.
    was_ready: bool,
    /// The number of pods that have left without success, and that no other pod has replaced since.
    missed: u32,
    /// The lack of ready pods in the run. None: it has always had enough.
    lacked: Option<Box<ReadinessLapse>>,
}

/// The memory of a run that had too few ready pods. Most runs have always had enough.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReadinessLapse {
    /// The time since which the run had too few when that was first seen.
    first_since: Timestamp,
    /// The earliest time since which the run has had too few, since it last had enough. None: it
    /// has enough.
    since: Option<Timestamp>,
}

impl RunMemory {
    /// Records that a pod has joined the run, in place of a missed one if there is any.
    pub fn join(&mut self) {
        self.missed = self.missed.saturating_sub(1);
    }

    /// Records that a pod has left the run: it has succeeded, failed, or was deleted. A pod that
    /// has succeeded isn't missed.
    pub fn leave(&mut self, has_succeeded: bool) {
        self.missed = self.missed.saturating_add(u32::from(!has_succeeded));
    }

    /// Records the readiness of the run. `is_ready`: as many pods are ready as the workload needs.
    /// `was_ready`: as many are or have been ready. `lacks_none`: as many are ready as the existing
    /// pods can be needed for, which is enough if no pod is missed.
    pub fn note(&mut self, is_ready: bool, was_ready: bool, lacks_none: impl FnOnce() -> bool) {
        self.was_ready |= is_ready || was_ready;
        if is_ready {
            self.missed = 0;
        }
        if let Some(lacked) = &mut self.lacked
            && lacked.since.is_some()
            && (is_ready || (self.missed == 0 && lacks_none()))
        {
            lacked.since = None;
        }
    }

    /// Returns the lack of ready pods that the present pods show, completed by that of earlier pods
    /// of the run. Records it.
    pub fn recall(&mut self, shown: NotReady) -> NotReady {
        let first = || Box::new(ReadinessLapse { first_since: shown.since, since: None });
        let lacked = self.lacked.get_or_insert_with(first);
        let since = lacked.since.map_or(shown.since, |since| since.min(shown.since));
        lacked.since = Some(since);
        self.was_ready |= shown.was_ready;
        NotReady { since, first_since: lacked.first_since, was_ready: self.was_ready, ..shown }
    }
}

/// The reason why a workload isn't ready, a label value of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The workload hasn't been ready in this run.
    WaitForStart,
    /// The workload was ready before.
    WaitForRecovery,
}

impl Cause {
    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WaitForStart => "WaitForStart",
            Self::WaitForRecovery => "WaitForRecovery",
        }
    }
}

impl NotReady {
    /// Returns the lack of ready pods. None: enough pods of each subgroup are ready, or there are
    /// no pods.
    ///
    /// Pods beyond a minimum may take any time, and pods that were not created can't be waited for.
    /// `start` is the start of the run, as far as it is known: pods that were replaced took room
    /// before the present ones.
    pub fn of(shape: &GangShape, pods: &[LivePod], start: Option<Timestamp>) -> Option<Self> {
        let created = pods.iter().map(|pod| pod.created).min()?;
        let first = pods.iter().filter_map(|pod| pod.scheduled).min();
        let started = first.map(|first| start.map_or(first, |start| start.min(first)));
        let onset = |pod: &LivePod| match pod.readiness {
            Readiness::Ready => None,
            Readiness::NotYet => Some((pod.created, pod.subgroup)),
            Readiness::Lost(at) => Some((at, pod.subgroup)),
        };
        let mut onsets: Vec<(Timestamp, usize)> = pods.iter().filter_map(onset).collect();
        if onsets.is_empty() {
            return None;
        }
        onsets.sort_unstable();
        let count = |counts: fn(Readiness) -> bool| {
            let mut counted = shape.counts(0, |_| 0);
            for pod in pods.iter().filter(|pod| counts(pod.readiness)) {
                counted.add(shape, pod.subgroup);
            }
            counted
        };
        let all = count(|_| true);
        let mut left = AttainedCounts::new(shape, &all, &all);
        let too_few = onsets.into_iter().find(|(_, subgroup)| {
            left.remove(*subgroup);
            !left.are_enough()
        });
        let was_ready = || count(|of| of != Readiness::NotYet).are_enough(shape);
        let (since, _) = too_few?;
        let since = started.map_or(since, |started| since.max(started));
        Some(Self { created, started, since, first_since: since, was_ready: was_ready() })
    }
}

/// The rules for workloads of a queue that don't get ready: its block `waitForPodsReady`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PodsReady {
    /// False: such workloads may take any time.
    pub is_enabled: bool,
    /// The time that such workloads may take, and the delays and the number of their returns.
    pub backoff: Backoff,
    /// The event from which that time counts.
    pub count_from: CountFrom,
    /// The longest time for which a workload that was ready may have too few ready pods. None: no
    /// limit.
    pub recovery: Option<ExtendedDuration>,
    /// The time by which returning workloads of the same priority are ordered.
    pub timestamp: RequeuingTimestamp,
    /// True if a workload comes back earlier when another workload has left.
    pub on_capacity: bool,
}

/// Fields that are left out or can't be read have their defaults.
impl From<&WaitForPodsReady> for PodsReady {
    fn from(wait: &WaitForPodsReady) -> Self {
        let strategy = wait.requeuing_strategy.as_ref();
        Self {
            is_enabled: wait.enable.unwrap_or(true),
            backoff: Backoff::from(wait),
            count_from: wait.count_from.unwrap_or_default(),
            recovery: positive(wait.recovery_timeout.as_ref()),
            timestamp: strategy.and_then(|strategy| strategy.timestamp).unwrap_or_default(),
            on_capacity: strategy.and_then(|strategy| strategy.on_capacity).unwrap_or_default(),
        }
    }
}

impl PodsReady {
    /// Returns the rules of a queue or, if it sets none, the configured rules. None: there are
    /// none, or they are turned off.
    pub fn applying(own: Option<Self>, configured: Option<Self>) -> Option<Self> {
        own.or(configured).filter(|rules| rules.is_enabled)
    }

    /// Returns the time until which a workload may lack ready pods, and the reason for waiting.
    /// None: no limit.
    ///
    /// If a run is first seen with too few pods since a time after its timeout, it was ready
    /// before: otherwise it would have been paused by then.
    pub fn deadline(&self, lacking: NotReady) -> Option<(Timestamp, Cause)> {
        let after = |from: Timestamp, time: ExtendedDuration| {
            from.checked_add(time.to_signed()).unwrap_or(Timestamp::MAX)
        };
        let was_ready = lacking.started.is_some_and(|started| {
            lacking.was_ready || lacking.first_since > after(started, self.backoff.timeout)
        });
        if was_ready {
            return Some((after(lacking.since, self.recovery?), Cause::WaitForRecovery));
        }
        let from = match self.count_from {
            CountFrom::Scheduled => lacking.started?,
            CountFrom::Creation => lacking.created.min(lacking.started.unwrap_or(lacking.created)),
        };
        Some((after(from, self.backoff.timeout), Cause::WaitForStart))
    }
}

#[cfg(test)]
mod tests;
