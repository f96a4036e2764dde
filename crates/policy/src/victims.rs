//! Chooses the pods of a node that make room for a preemptor: those that its scheduler offers or,
//! where some of these are protected, others in their place. The index calls this for each node
//! about which kube-scheduler asks the extender.
//!
//! kube-scheduler prefers the youngest pods as victims, exactly those that floors protect: to drop
//! every node with a protected pod would block far too much. So the search is for other pods whose
//! requests, taken together, are at least those of the offered pods. Where the offered pods make
//! enough room, so do these. Other needs than room must not depend on the exchange.

mod budgets;
mod exchange;
mod requests;
mod wait;

use std::{cmp::Reverse, collections::BTreeMap, ptr};

use jiff::Timestamp;

use crate::{
    gang::PodProgress,
    preemption::{Preemptor, Rule, Rules, Victim, VictimsByWorkload, Workload},
};

pub use budgets::MatchingBudget;
use budgets::violating;
pub use exchange::Neighbor;
use exchange::VictimExchange;
pub use requests::{Requests, ResourceName};
pub use wait::{PreemptibleFrom, RoomOverTime};

/// A pod of a node.
#[derive(Clone, Copy, Debug)]
pub struct VictimCandidate<'a> {
    /// The pod as a victim.
    pub victim: Victim<'a>,
    /// The priority of the pod.
    pub priority: i32,
    /// The requests that become free when the pod goes.
    pub requests: &'a Requests,
    /// The relations of the pod to other pods of its node.
    pub neighbor: Neighbor<'a>,
    /// True if the place of the pod is free when it goes, and its scheduler knows the pod. Other
    /// pods are no substitutes.
    pub frees: bool,
}

impl VictimCandidate<'_> {
    /// True if the pod has ended or is terminating.
    fn is_gone(&self) -> bool {
        self.victim.progress == PodProgress::Gone
    }
}

/// Pods that go in place of the offered ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacements {
    /// The places of these pods among the pods of the node, the most important first. At least one.
    pub victims: Vec<usize>,
    /// The number of these pods whose eviction violates a disruption budget.
    pub budget_violations: usize,
}

/// The reason why a node is dropped from the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeProtection {
    /// The rule that protects the first protected pod among the offered victims.
    pub rule: Rule,
    /// The end of the last protection of an offered victim. None: one of the protections has no
    /// known end.
    ///
    /// The index replaces this time by the time from which other pods make enough room, if that is
    /// earlier.
    pub until: Option<Timestamp>,
}

/// The search for the victims of a preemptor at a node.
#[derive(Clone, Copy)]
pub struct VictimSearch<'s, 't> {
    /// The rules that decide.
    pub rules: &'s Rules<'t>,
    /// The pod that wants room.
    pub preemptor: &'s Preemptor<'s>,
    /// The needs of the preemptor besides room.
    pub neighbor: Neighbor<'s>,
    /// True if the node has a limit for attached volumes.
    pub limits_volumes: bool,
    /// Returns the disruption budgets that select the pod at a place. Asked of few pods, since
    /// comparing labels is slow.
    pub budgets: &'s dyn Fn(usize) -> Vec<MatchingBudget>,
}

/// Returns the reason why these victims can't be had together. None: the preemptor may have them.
pub fn protected<'v>(
    rules: &Rules<'_>,
    preemptor: &Preemptor<'_>,
    victims: impl Iterator<Item = Victim<'v>> + Clone,
) -> Option<NodeProtection> {
    let rulings = rules.rulings(preemptor, victims);
    NodeProtection::of(rulings.map(|ruling| (ruling.rule, ruling.until)))
}

impl NodeProtection {
    /// Reads the rules that protect the offered victims, and the ends of their protections. None:
    /// none is protected.
    pub fn of(ruled: impl Iterator<Item = (Option<Rule>, Option<Timestamp>)>) -> Option<Self> {
        let mut protected = ruled.filter_map(|(rule, until)| Some((rule?, until)));
        let (rule, first) = protected.next()?;
        let until =
            first.and_then(|first| protected.try_fold(first, |last, (_, until)| Some(last.max(until?))));
        Some(Self { rule, until })
    }
}

/// The importance of a pod: its priority. Of pods with the same priority, the younger is less
/// important.
type Rank = (i32, Reverse<Option<Timestamp>>);

/// A pod that may be taken in place of an offered one.
struct ReplacementCandidate<'p, 'a> {
    /// The place of the pod among the pods of the node.
    place: usize,
    pod: &'p VictimCandidate<'a>,
    /// The place of the first pod of its rigid workload, whose pods go together. None: the pod may
    /// go alone.
    with: Option<usize>,
    /// The importance of the pod, or that of the most important pod of its rigid workload.
    rank: Rank,
}

/// The pods of a rigid workload on a node that may be taken: the first place, their number, and the
/// greatest importance.
struct RigidWorkload {
    first: usize,
    pods: u32,
    rank: Rank,
}

impl VictimSearch<'_, '_> {
    /// Finds pods that may be preempted in place of the protected ones, and that free as much.
    /// `pods` are all pods of the node, and `offered` the places of those that the scheduler would
    /// evict. Offered pods that are terminating stay among the victims, and need no substitute.
    ///
    /// # Errors
    ///
    /// The error is the time before which there are no such pods. None: no such time is known.
    pub fn others(
        &self,
        pods: &[VictimCandidate<'_>],
        offered: &[usize],
    ) -> Result<Replacements, Option<Timestamp>> {
        let offered_pods = || offered.iter().filter_map(|place| Some((*place, pods.get(*place)?)));
        let staying = || offered_pods().filter(|(_, pod)| !pod.is_gone()).map(|(_, pod)| pod);
        let mut exchange =
            VictimExchange::new(self.neighbor, pods, offered, self.limits_volumes).ok_or(None)?;
        let may_go = pods.iter().enumerate().map(|(place, pod)| {
            let is_free = exchange.may_go(&pod.neighbor) || offered.contains(&place);
            if is_free { self.may_go(pod) } else { PreemptibleFrom::Never }
        });
        let may_go: Vec<PreemptibleFrom> = may_go.collect();
        let taken = self.takeable(pods, offered, &may_go);
        if !exchange.must_go.iter().all(|place| taken.iter().any(|of| of.place == *place)) {
            return Err(None);
        }
        let needed = Requests::sum(staying().map(|pod| pod.requests));
        let others = self.least(&taken, &needed, &mut exchange);
        let mut others = others.ok_or_else(|| {
            let mut room = RoomOverTime::default();
            pods.iter().zip(&may_go).for_each(|(pod, from)| room.add(*from, pod.requests));
            room.enough_from(&needed)
        })?;
        others.victims.extend(offered_pods().filter(|(_, pod)| pod.is_gone()).map(|(place, _)| place));
        others.victims.sort_by_key(|place| Reverse(pods.get(*place).map(|pod| pod.priority)));
        Ok(others)
    }

    /// Returns the fewest and least important of the pods `taken` that free `needed`. None: all
    /// together don't free enough, or the preemptor wouldn't fit for another reason.
    fn least(
        &self,
        taken: &[ReplacementCandidate<'_, '_>],
        needed: &Requests,
        exchange: &mut VictimExchange<'_>,
    ) -> Option<Replacements> {
        let mut freed = Requests::sum(taken.iter().map(|of| of.pod.requests));
        for of in taken {
            exchange.take(of.place);
        }
        if !freed.covers(needed) || !exchange.holds() {
            return None;
        }
        let budgets: Vec<Vec<MatchingBudget>> = taken.iter().map(|of| (self.budgets)(of.place)).collect();
        // spared in the scheduler's order: first pods whose eviction would violate a budget, then
        // the most important
        let kept_by_budgets = violating(budgets.iter().map(Vec::as_slice));
        let mut first = 0_usize;
        let units = taken.chunk_by(|one, other| one.with.is_some() && one.with == other.with).map(|unit| {
            let places = first..first.saturating_add(unit.len());
            first = places.end;
            let is_kept = places.clone().any(|place| kept_by_budgets.contains(&place));
            (unit, places, is_kept)
        });
        let mut units: Vec<_> = units.collect();
        units.reverse();
        units.sort_by_key(|(_, _, is_kept)| !is_kept);
        let mut spared = vec![false; taken.len()];
        for (unit, places, _) in units {
            let sum = (unit.len() > 1).then(|| Requests::sum(unit.iter().map(|of| of.pod.requests)));
            let Some(requests) = sum.as_ref().or_else(|| Some(unit.first()?.pod.requests)) else { continue };
            if freed.covers_without(requests, needed) && exchange.spare(unit.iter().map(|of| of.place)) {
                freed.subtract(requests);
                spared.get_mut(places).into_iter().flatten().for_each(|spared| *spared = true);
            }
        }
        let left = || spared.iter().enumerate().filter(|(_, spared)| !**spared).map(|(place, _)| place);
        let of_left = left().filter_map(|place| budgets.get(place).map(Vec::as_slice));
        let budget_violations = violating(of_left).len();
        let victims: Vec<usize> = left().rev().filter_map(|place| Some(taken.get(place)?.place)).collect();
        (!victims.is_empty()).then_some(Replacements { victims, budget_violations })
    }

    /// Returns all pods that may be taken at once, the least important first, and the pods of a
    /// rigid workload side by side. These are all its running pods, or the offered ones, as its
    /// scheduler has chosen.
    fn takeable<'p, 'a>(
        &self,
        pods: &'p [VictimCandidate<'a>],
        offered: &[usize],
        may_go: &[PreemptibleFrom],
    ) -> Vec<ReplacementCandidate<'p, 'a>> {
        let free = pods.iter().zip(may_go).enumerate().filter(|(_, (_, may))| **may == PreemptibleFrom::Now);
        let mut sorted: Vec<ReplacementCandidate<'p, 'a>> = Vec::with_capacity(pods.len());
        let mut rigid: BTreeMap<*const Workload<'_>, RigidWorkload> = BTreeMap::new();
        for (place, (pod, _)) in free {
            let rank = (pod.priority, Reverse(pod.victim.scheduled_at));
            let unit = pod.victim.unit();
            let mut with = None;
            if unit.pods.is_rigid() {
                let new = RigidWorkload { first: place, pods: 0, rank };
                let all = rigid.entry(ptr::from_ref(unit)).or_insert(new);
                (all.pods, all.rank) = (all.pods.saturating_add(1), all.rank.max(rank));
                with = Some(all.first);
            }
            sorted.push(ReplacementCandidate { place, pod, with, rank });
        }
        sorted.retain_mut(|of| {
            let unit = of.pod.victim.unit();
            let Some(all) = rigid.get(&ptr::from_ref(unit)) else { return true };
            of.rank = all.rank;
            all.pods == unit.pods.running().total() || offered.contains(&of.place)
        });
        sorted.sort_by_key(|of| (of.rank, of.with));
        let mut going = VictimsByWorkload::default();
        // a part that goes as a whole is a loss to its workload
        let whole = sorted.iter().filter(|of| !of.pod.victim.unit().is_elastic());
        whole.for_each(|of| going.add(&of.pod.victim));
        // members may name different queues: pods that no floor protects go first, and leave the
        // others enough
        for are_free in [true, false] {
            sorted.retain(|of| {
                let victim = &of.pod.victim;
                let is_free = || self.own(victim).0.is_none();
                if !victim.unit().is_elastic() || is_free() != are_free {
                    return true;
                }
                going.add_if(victim, |going| self.rules.may_take(self.preemptor, victim, going))
            });
        }
        sorted
    }
}

#[cfg(test)]
mod tests;
