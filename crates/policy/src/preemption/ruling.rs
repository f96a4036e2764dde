//! The decisions about a preemptor and its victims.

use jiff::Timestamp;

use super::{going::Left, place::PreemptionKind};
use crate::{floor::Floor, gang::Progress, toleration::Judgement};

/// A rule that protects a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Its floor against preemptors of the same leaf queue.
    PreemptMinRuntime,
    /// Its floor against preemptors of other leaf queues.
    ReclaimMinRuntime,
    /// The annotations of its `PriorityClass`.
    PreemptionToleration,
    /// Its workload is elastic and within its floor, and would have fewer pods than its minimum.
    MinAvailable,
}

impl Rule {
    /// Returns the name in API responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreemptMinRuntime => "preemptMinRuntime",
            Self::ReclaimMinRuntime => "reclaimMinRuntime",
            Self::PreemptionToleration => "preemptionToleration",
            Self::MinAvailable => "minAvailable",
        }
    }

    /// True if it holds as long as the floor of the victim.
    pub const fn is_of_floor(self) -> bool {
        !matches!(self, Self::PreemptionToleration)
    }
}

/// The decision about one victim, with its reasons.
#[derive(Clone, Copy, Debug)]
pub struct Ruling<'t> {
    /// The rule that protects it; of several, the one that protects for longest.
    pub rule: Option<Rule>,
    /// The end of its protection; none if it isn't protected, or if the end isn't known.
    pub until: Option<Timestamp>,
    /// The kind, by the places of the victim and of the preemptor.
    pub kind: PreemptionKind,
    /// Its floor; none if it is in no queue.
    pub floor: Option<Floor<'t>>,
    /// The start of its workload, as far as it is known: a start in the future counts as now.
    pub start: Option<Timestamp>,
    /// The end of its floor, if that isn't over.
    pub floor_until: Option<Timestamp>,
    /// The rest of its workload without the victims, if it is elastic.
    pub left: Option<Left>,
    /// The toleration of its class.
    pub toleration: Judgement,
    /// Its progress.
    pub progress: Progress,
}

impl Ruling<'_> {
    /// Orders rulings by how long they protect: without a known end; until some time; not at all.
    pub(super) fn lasts(&self) -> (bool, bool, Option<Timestamp>) {
        let protects = self.rule.is_some();
        (protects, protects && self.until.is_none(), self.until)
    }

    pub(super) fn strongest(&self) -> (Option<Rule>, Option<Timestamp>) {
        let floor = self.floor_until.and_then(|until| Some((self.floor_rule()?, until)));
        if !self.toleration.is_exempt() {
            return (floor.map(|(rule, _)| rule), floor.map(|(_, until)| until));
        }
        match (floor, self.toleration.until()) {
            (Some((rule, floor)), Some(tolerated)) if floor >= tolerated => (Some(rule), Some(floor)),
            (_, until) => (Some(Rule::PreemptionToleration), until),
        }
    }

    /// Returns the rule of a floor that isn't over.
    fn floor_rule(&self) -> Option<Rule> {
        match (self.left, self.kind) {
            (Some(left), _) => (!left.is_enough()).then_some(Rule::MinAvailable),
            (None, PreemptionKind::Preempt) => Some(Rule::PreemptMinRuntime),
            (None, PreemptionKind::Reclaim) => Some(Rule::ReclaimMinRuntime),
        }
    }
}

/// The decision about a preemptor and its victims.
#[derive(Clone, Debug)]
pub struct Verdict<'t> {
    /// True if no victim is protected.
    pub allowed: bool,
    /// [`PreemptionKind::Reclaim`] if any victim is in another queue than the preemptor.
    pub kind: PreemptionKind,
    /// The rulings, one for each victim, in their order.
    pub rulings: Vec<Ruling<'t>>,
}
