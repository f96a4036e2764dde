//! Decides if a preemptor may have its victims: by floors, minimums of elastic workloads and
//! tolerations together.
//!
//! The `MinRuntime` design document has filters and scenario validators, each for preempt and for
//! reclaim. Here [`Rules::alone`] is the filter, [`Rules::verdict`] and [`Rules::rulings`] are the
//! validator, and the places of preemptor and victim say which of the two kinds it is.
//!
//! The index decides with these rules for the webhook's extender and guard. The plugin's `explain`
//! and `simulate` call them directly.

use jiff::Timestamp;

use crate::{
    expiry::SYSTEM_CRITICAL_PRIORITY,
    floor::{Floor, Floors},
    gang::{GangShape, Headcount, PodProgress},
    toleration::{self, ClassState},
    tree::{QueueId, QueueTree},
};

mod because;
mod going;
mod place;
mod ruling;

pub use going::{CountedMembers, RemainingMembers, VictimsByWorkload, WorkloadVictims};
pub use place::{PreemptionKind, QueuePlace};
use ruling::strongest;
pub use ruling::{PreemptionVerdict, Rule, Ruling};

/// A set of pods that starts and stops as one: a `PodGroup`, or a single pod.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    /// The place of the workload in the tree of queues. A pod of the workload may have another: see
    /// [`Victim::place`].
    pub place: QueuePlace<'a>,
    /// The time since which the workload runs. None: it doesn't run, and no floor protects it.
    pub start: Option<Timestamp>,
    /// The number of pods that the workload needs to run, in all and by subgroup.
    pub shape: &'a GangShape,
    /// The numbers of its pods.
    pub pods: Headcount,
}

impl<'a> Workload<'a> {
    /// Creates the workload of a pod without a group.
    pub fn alone(place: QueuePlace<'a>, start: Option<Timestamp>) -> Self {
        Self { place, start, shape: GangShape::alone(), pods: Headcount::alone() }
    }

    /// True if the workload may lose pods and run on.
    pub const fn is_elastic(&self) -> bool {
        self.pods.is_elastic()
    }
}

/// A pod that is to make room for a preemptor.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    /// The workload of the pod. Victims of one workload share the same reference: pods that go
    /// together are counted by it.
    pub workload: &'a Workload<'a>,
    /// The [part](crate::gang::CountedPods) of an elastic workload that is counted apart when the
    /// victim goes. Victims of one part share the same reference. None: all pods of the workload
    /// are counted.
    pub part: Option<&'a Workload<'a>>,
    /// The place of the pod itself in the tree of queues, which decides on its floor. Pods of one
    /// workload may name different queues.
    pub place: QueuePlace<'a>,
    /// The number of the pod's subgroup in the workload or part.
    pub subgroup: usize,
    /// The progress of the pod: only a running pod counts as a loss to its workload.
    pub progress: PodProgress,
    /// The node pool of the pod's node, which may have floors of its own. None: the node is in no
    /// pool.
    pub pool: Option<&'a str>,
    /// The state of the pod's `PriorityClass`.
    pub class: ClassState,
    /// The time at which the pod was scheduled. None: it wasn't.
    pub scheduled_at: Option<Timestamp>,
}

impl<'a> Victim<'a> {
    /// Creates the only pod of a workload, which runs, in no node pool and without a
    /// `PriorityClass`.
    pub const fn alone(workload: &'a Workload<'a>) -> Self {
        Self {
            workload,
            part: None,
            place: workload.place,
            subgroup: 0,
            progress: PodProgress::Running,
            pool: None,
            class: ClassState::None,
            scheduled_at: workload.start,
        }
    }

    /// Returns the facts that protect the victim no matter which other pods go. `floor` is that of
    /// the victim against its preemptor.
    pub const fn own<'t>(&self, floor: AppliedFloor<'t>) -> OwnProtection<'t> {
        let Self { workload, class, scheduled_at, progress, .. } = *self;
        OwnProtection { start: workload.start, floor, class, scheduled_at, progress }
    }

    /// Returns the sets of pods that must keep their minimum when the victim goes: the workload,
    /// and its part if it has one.
    pub fn counted(&self) -> impl Iterator<Item = &'a Workload<'a>> + use<'a> {
        [Some(self.workload), self.part].into_iter().flatten()
    }

    /// Returns the pods that share the victim's fate: its part, or the whole workload.
    pub fn unit(&self) -> &'a Workload<'a> {
        self.part.unwrap_or(self.workload)
    }
}

/// The floor of victims against a preemptor. Those of one queue in one node pool have the same.
#[derive(Clone, Copy, Debug)]
pub struct AppliedFloor<'t> {
    /// The kind of the preemption.
    pub kind: PreemptionKind,
    /// The floor. None: the victims are in no queue.
    pub floor: Option<Floor<'t>>,
}

/// The facts that protect a victim no matter which other pods go. Most answers need no others.
#[derive(Clone, Copy, Debug)]
pub struct OwnProtection<'t> {
    /// The start of the victim's workload. None: the workload doesn't run.
    pub start: Option<Timestamp>,
    /// The floor against the preemptor.
    pub floor: AppliedFloor<'t>,
    /// As in [`Victim`].
    pub class: ClassState,
    /// As in [`Victim`].
    pub scheduled_at: Option<Timestamp>,
    /// As in [`Victim`].
    pub progress: PodProgress,
}

/// A pod that wants room.
#[derive(Clone, Copy, Debug)]
pub struct Preemptor<'a> {
    /// The place of the pod in the tree of queues.
    pub place: QueuePlace<'a>,
    /// The priority and the preemption policy of the pod.
    pub claim: toleration::PreemptorClaim,
}

/// The input of decisions, besides preemptor and victims.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'t> {
    /// The configured floors.
    pub floors: &'t Floors,
    /// All queues of the run.ai family.
    pub tree: &'t QueueTree,
    /// The time by the API server's clock.
    pub now: Timestamp,
}

/// Returns the end of a workload's protection by a floor. None: the workload isn't protected at
/// `now`. A start in the future counts as `now`.
pub fn protected_until(start: Option<Timestamp>, floor: &Floor<'_>, now: Timestamp) -> Option<Timestamp> {
    let until = start?.min(now).checked_add(floor.value.to_signed()).unwrap_or(Timestamp::MAX);
    (now < until).then_some(until)
}

/// True if no rule protects a pod: a system-critical preemptor always gets room, and a pod that ends
/// has no protection.
fn holds_nothing(claim: toleration::PreemptorClaim, victim: PodProgress) -> bool {
    claim.priority >= SYSTEM_CRITICAL_PRIORITY || victim == PodProgress::Gone
}

impl<'t> Rules<'t> {
    /// Decides on a scenario: whether the preemptor may have all of these victims together.
    pub fn verdict(&self, preemptor: &Preemptor<'_>, victims: &[Victim<'_>]) -> PreemptionVerdict<'t> {
        let rulings: Vec<Ruling<'t>> = self.rulings(preemptor, victims.iter().copied()).collect();
        let reclaims = rulings.iter().any(|ruling| ruling.kind == PreemptionKind::Reclaim);
        PreemptionVerdict {
            allowed: rulings.iter().all(|ruling| ruling.rule.is_none()),
            kind: if reclaims { PreemptionKind::Reclaim } else { PreemptionKind::Preempt },
            rulings,
        }
    }

    /// Returns the decision about each victim of a scenario, in their order. Each decision assumes
    /// that the other victims go as well.
    pub fn rulings<'v>(
        &self,
        preemptor: &Preemptor<'_>,
        victims: impl Iterator<Item = Victim<'v>> + Clone,
    ) -> impl Iterator<Item = Ruling<'t>> {
        let mut going = VictimsByWorkload::default();
        victims.clone().for_each(|victim| going.add(&victim));
        victims.map(move |victim| self.rule(preemptor, &victim, &going))
    }

    /// True if the preemptor may have a victim when the pods in `going` go as well.
    pub fn may_take(
        &self,
        preemptor: &Preemptor<'_>,
        victim: &Victim<'_>,
        going: &VictimsByWorkload,
    ) -> bool {
        self.rule(preemptor, victim, going).rule.is_none()
    }

    /// Returns the rule that protects a victim whose workload can spare no pod, and the end of its
    /// protection if that is known. A victim that no rule protects may go, no matter which other
    /// pods do.
    pub fn own(
        &self,
        preemptor: &Preemptor<'_>,
        victim: &OwnProtection<'_>,
    ) -> (Option<Rule>, Option<Timestamp>) {
        let OwnProtection { start, floor: AppliedFloor { kind, floor }, class, scheduled_at, progress } =
            *victim;
        if holds_nothing(preemptor.claim, progress) {
            return (None, None);
        }
        let until = floor.and_then(|floor| protected_until(start, &floor, self.now));
        let toleration = toleration::judge(class, scheduled_at, &preemptor.claim, self.now);
        strongest(until.map(|until| (kind.rule(), until)), &toleration)
    }

    /// Returns the decision about a victim if no other pod of its workload goes.
    pub fn alone(&self, preemptor: &Preemptor<'_>, victim: &Victim<'_>) -> Ruling<'t> {
        self.rule(preemptor, victim, &VictimsByWorkload::default())
    }

    /// Returns the decision about a victim of this priority against the possible preemptor with the
    /// weakest claim.
    ///
    /// The guard calls this, because it doesn't know the preemptor. The assumed priority is just
    /// above the victim's, and the assumed queue is one against which the victim's floor holds for
    /// longest.
    pub fn against_anybody(&self, victim: &Victim<'_>, priority: i32) -> Ruling<'t> {
        let [_, reclaim] = self.floors.reclaim_range(self.tree, victim.place.queue, victim.pool);
        let [within, across] = self.against_unknown(victim, priority, reclaim);
        if across.lasts() > within.lasts() { across } else { within }
    }

    /// Returns the decision about a victim against a preemptor in the queue against which the
    /// victim's floor holds for shortest. The priority of the preemptor is that of
    /// [`Self::against_anybody`].
    pub fn against_weaker_floor(&self, victim: &Victim<'_>, priority: i32) -> Ruling<'t> {
        let [reclaim, _] = self.floors.reclaim_range(self.tree, victim.place.queue, victim.pool);
        let [within, across] = self.against_unknown(victim, priority, reclaim);
        if across.lasts() < within.lasts() { across } else { within }
    }

    /// Returns the rulings against a preemptor of the victim's queue, and against one of another
    /// queue with this reclaim floor. The preemptor's priority is just above the victim's.
    fn against_unknown(&self, victim: &Victim<'_>, priority: i32, reclaim: Floor<'t>) -> [Ruling<'t>; 2] {
        let claim =
            toleration::PreemptorClaim { priority: priority.saturating_add(1), never_preempts: false };
        let within = self.floor(PreemptionKind::Preempt, None, &victim.place, victim.pool);
        let across = victim.place.name.map(|_| reclaim);
        let mut going = VictimsByWorkload::default();
        going.add(victim);
        [(PreemptionKind::Preempt, within), (PreemptionKind::Reclaim, across)]
            .map(|(kind, floor)| self.ruling(kind, floor, claim, victim, &going))
    }

    fn rule(&self, preemptor: &Preemptor<'_>, victim: &Victim<'_>, going: &VictimsByWorkload) -> Ruling<'t> {
        let AppliedFloor { kind, floor } = self.applied(preemptor, &victim.place, victim.pool);
        self.ruling(kind, floor, preemptor.claim, victim, going)
    }

    /// Returns the floor of the victims at a place, on nodes of a pool, against a preemptor.
    pub fn applied(
        &self,
        preemptor: &Preemptor<'_>,
        victim: &QueuePlace<'_>,
        pool: Option<&str>,
    ) -> AppliedFloor<'t> {
        let kind = victim.kind(&preemptor.place);
        AppliedFloor { kind, floor: self.floor(kind, preemptor.place.queue, victim, pool) }
    }

    fn ruling(
        &self,
        kind: PreemptionKind,
        floor: Option<Floor<'t>>,
        claim: toleration::PreemptorClaim,
        victim: &Victim<'_>,
        going: &VictimsByWorkload,
    ) -> Ruling<'t> {
        let workload = victim.workload;
        let toleration = toleration::judge(victim.class, victim.scheduled_at, &claim, self.now);
        let mut ruling = Ruling {
            rule: None,
            until: None,
            kind,
            floor,
            start: workload.start,
            floor_until: floor.and_then(|floor| protected_until(workload.start, &floor, self.now)),
            left: going.left(victim),
            toleration,
            progress: victim.progress,
        };
        if !holds_nothing(claim, victim.progress) {
            (ruling.rule, ruling.until) = ruling.strongest();
        }
        ruling
    }

    /// Returns the floor that applies between two places. None: the victim is in no queue.
    ///
    /// `preemptor` is the preemptor's queue, which counts only for reclaim. `pool` is the node pool
    /// of the victim's node.
    pub fn floor(
        &self,
        kind: PreemptionKind,
        preemptor: Option<QueueId>,
        victim: &QueuePlace<'_>,
        pool: Option<&str>,
    ) -> Option<Floor<'t>> {
        victim.name?;
        let victim = victim.queue;
        Some(match kind {
            PreemptionKind::Preempt => self.floors.preempt(self.tree, victim, pool),
            PreemptionKind::Reclaim => self.floors.reclaim(self.tree, preemptor, victim, pool),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
