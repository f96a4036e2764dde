//! The decisions about a preemptor and its victims, with all that led to them.

use jiff::Timestamp;

use super::{going::RemainingMembers, place::PreemptionKind};
use crate::{floor::Floor, gang::PodProgress, toleration::Judgement};

/// A rule that protects a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The floor against preemptors of the same leaf queue.
    PreemptMinRuntime,
    /// The floor against preemptors of other leaf queues.
    ReclaimMinRuntime,
    /// The annotations of its `PriorityClass`.
    PreemptionToleration,
    /// The minimum of an elastic workload: within its floor, it would have fewer pods than that.
    MinAvailable,
}

impl Rule {
    /// Returns the name of the rule in API responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreemptMinRuntime => "preemptMinRuntime",
            Self::ReclaimMinRuntime => "reclaimMinRuntime",
            Self::PreemptionToleration => "preemptionToleration",
            Self::MinAvailable => "minAvailable",
        }
    }

    /// True if the rule holds only as long as the floor of the victim.
    pub const fn is_of_floor(self) -> bool {
        !matches!(self, Self::PreemptionToleration)
    }
}

/// The decision about one victim, with its reasons.
#[derive(Clone, Copy, Debug)]
pub struct Ruling<'t> {
    /// The rule that protects the victim: of several, the one that protects for longest. None: the
    /// preemptor may have the victim.
    pub rule: Option<Rule>,
    /// The end of the protection. None: the victim isn't protected, or the end isn't known.
    pub until: Option<Timestamp>,
    /// The kind, by the places of the victim and of the preemptor.
    pub kind: PreemptionKind,
    /// The floor of the victim. None: it is in no queue.
    pub floor: Option<Floor<'t>>,
    /// The start of the victim's workload. None: it isn't known, or the workload doesn't run. A
    /// start in the future counts as now.
    pub start: Option<Timestamp>,
    /// The end of the floor. None: the floor is over, or doesn't apply.
    pub floor_until: Option<Timestamp>,
    /// The rest of the workload without the victims. None: the workload isn't elastic.
    pub left: Option<RemainingMembers>,
    /// The toleration of the victim's class.
    pub toleration: Judgement,
    /// The progress of the victim.
    pub progress: PodProgress,
}

impl Ruling<'_> {
    /// Returns a key by which rulings are ordered: the longer the protection, the greater. An
    /// unknown end is the longest.
    pub(super) fn lasts(&self) -> (bool, bool, Option<Timestamp>) {
        let protects = self.rule.is_some();
        (protects, protects && self.until.is_none(), self.until)
    }

    /// Returns the rule that protects for longest, and the end of its protection if that is known.
    pub(super) fn strongest(&self) -> (Option<Rule>, Option<Timestamp>) {
        let floor = self.floor_until.and_then(|until| Some((self.floor_rule()?, until)));
        strongest(floor, &self.toleration)
    }

    /// Returns the rule of a floor that isn't over. None: an elastic workload keeps enough pods.
    fn floor_rule(&self) -> Option<Rule> {
        match self.left {
            Some(left) => (!left.is_enough()).then_some(Rule::MinAvailable),
            None => Some(self.kind.rule()),
        }
    }
}

impl PreemptionKind {
    /// Returns the rule of the floor that counts for this kind.
    pub(super) const fn rule(self) -> Rule {
        match self {
            Self::Preempt => Rule::PreemptMinRuntime,
            Self::Reclaim => Rule::ReclaimMinRuntime,
        }
    }
}

/// Returns the rule that protects for longest, and the end of its protection if that is known.
/// `floor` has the rule of a floor that isn't over, and its end.
pub(super) fn strongest(
    floor: Option<(Rule, Timestamp)>,
    toleration: &Judgement,
) -> (Option<Rule>, Option<Timestamp>) {
    if !toleration.is_exempt() {
        return (floor.map(|(rule, _)| rule), floor.map(|(_, until)| until));
    }
    match (floor, toleration.until()) {
        (Some((rule, floor)), Some(tolerated)) if floor >= tolerated => (Some(rule), Some(floor)),
        (_, until) => (Some(Rule::PreemptionToleration), until),
    }
}

/// The decision about a preemptor and all of its victims.
#[derive(Clone, Debug)]
pub struct PreemptionVerdict<'t> {
    /// True if no victim is protected.
    pub allowed: bool,
    /// [`PreemptionKind::Reclaim`] if any victim is in another queue than the preemptor.
    pub kind: PreemptionKind,
    /// The rulings, one for each victim, in the order of the victims.
    pub rulings: Vec<Ruling<'t>>,
}
