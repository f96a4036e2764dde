//! Which pods of a node are to make room for a preemptor: those that its scheduler offers or, where some of these are
//! protected, others in their place.
//!
//! kube-scheduler prefers the youngest pods as victims, exactly those that floors protect: to drop every node that has
//! one would block far too much. So other pods are looked for whose requests, taken together, are at least what the
//! offered ones request. Where the offered ones make room enough, so do these.

mod budgets;
mod requests;
mod wait;

use std::{cmp::Reverse, collections::HashMap, ptr};

use jiff::Timestamp;

use crate::preemption::{Preemptor, Progress, Rule, Rules, Victim, Workload};

pub use budgets::Budget;
use budgets::violating;
pub use requests::{Requests, Resource};

/// A pod of a node.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// As rules see it.
    pub victim: Victim<'a>,
    /// Its priority.
    pub priority: i32,
    /// What it frees when it goes.
    pub requests: &'a Requests,
    /// Whether its requests are all that it takes away from others. Not so with host ports, volumes and affinities of
    /// its own: what replaces it may not free them.
    pub plain: bool,
}

/// Pods that go in place of those that were offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// By their places among the pods of the node, the most important first; at least one.
    pub victims: Vec<usize>,
    /// How many of them a disruption budget would rather keep.
    pub budget_violations: usize,
}

/// Why a node is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// What protects the first of the offered victims that is protected.
    pub rule: Rule,
    /// When the last of their protections ends, as far as it is known.
    pub until: Option<Timestamp>,
}

/// A preemptor at a node.
#[derive(Clone, Copy)]
pub struct Search<'s, 't> {
    /// What decisions are taken by.
    pub rules: &'s Rules<'t>,
    /// Who wants room.
    pub preemptor: &'s Preemptor<'s>,
    /// Whether room is all that it needs. Host ports, volumes, affinities and spread constraints are more: then no pod
    /// can be shown to be as good as another.
    pub plain: bool,
    /// The disruption budgets that select the pod of a place. Few pods are asked for: labels take their time.
    pub budgets: &'s dyn Fn(usize) -> Vec<Budget>,
}

/// Why these victims can't be had; none if they can.
pub fn protected(rules: &Rules<'_>, preemptor: &Preemptor<'_>, victims: &[Victim<'_>]) -> Option<Protected> {
    let verdict = rules.verdict(preemptor, victims);
    let mut protected = verdict.rulings.iter().filter_map(|ruling| Some((ruling.rule?, ruling.until)));
    let (rule, first) = protected.next()?;
    let until = first.and_then(|first| protected.try_fold(first, |last, (_, until)| Some(last.max(until?))));
    Some(Protected { rule, until })
}

impl Search<'_, '_> {
    /// Pods in place of some that are protected, if there are any that may be taken and free as much: `pods` are all that
    /// are on the node, of which `offered` are those that its scheduler would evict.
    pub fn others(&self, pods: &[Candidate<'_>], offered: &[usize]) -> Option<Others> {
        let offered: Vec<&Candidate<'_>> = offered.iter().filter_map(|number| pods.get(*number)).collect();
        let needed = Requests::sum(offered.iter().map(|pod| pod.requests));
        (self.plain && offered.iter().all(|pod| pod.plain)).then(|| self.least(pods, &needed)).flatten()
    }

    /// The fewest and least important pods that free as much.
    fn least(&self, pods: &[Candidate<'_>], needed: &Requests) -> Option<Others> {
        let taken = self.takeable(pods);
        let mut freed = Requests::sum(taken.iter().map(|(_, pod)| pod.requests));
        if !freed.covers(needed) {
            return None;
        }
        let budgets: Vec<Vec<Budget>> = taken.iter().map(|(number, _)| (self.budgets)(*number)).collect();
        // spared as the scheduler spares: those first that a budget would rather keep, then the most important
        let kept_by_budgets = violating(budgets.iter().map(Vec::as_slice));
        let mut order: Vec<usize> = (0..taken.len()).rev().collect();
        order.sort_by_key(|place| !kept_by_budgets.contains(place));
        let mut spared = vec![false; taken.len()];
        for place in order {
            let Some(((_, pod), spared)) = taken.get(place).zip(spared.get_mut(place)) else { continue };
            if freed.covers_without(pod.requests, needed) {
                freed.subtract(pod.requests);
                *spared = true;
            }
        }
        let left = || spared.iter().enumerate().filter(|(_, spared)| !**spared).map(|(place, _)| place);
        let of_left = left().filter_map(|place| budgets.get(place).map(Vec::as_slice));
        let budget_violations = violating(of_left).len();
        let victims = left().rev().filter_map(|place| taken.get(place).map(|(number, _)| *number));
        let victims: Vec<usize> = victims.collect();
        (!victims.is_empty()).then_some(Others { victims, budget_violations })
    }

    /// All pods that may be taken at once, the least important first.
    fn takeable<'p, 'a>(&self, pods: &'p [Candidate<'a>]) -> Vec<(usize, &'p Candidate<'a>)> {
        let lower = |pod: &Candidate<'_>| pod.priority < self.preemptor.claim.priority;
        let here = |pod: &Candidate<'_>| pod.victim.progress == Progress::Running;
        let mut sorted: Vec<_> = pods.iter().enumerate().filter(|(_, pod)| lower(pod) && here(pod)).collect();
        // of the same priority, the younger is the less important
        sorted.sort_by_key(|(_, pod)| (pod.priority, Reverse(pod.victim.scheduled_at)));
        let mut evicted: HashMap<(*const Workload<'_>, usize), u32> = HashMap::with_capacity(sorted.len());
        sorted.retain(|(_, pod)| {
            let so_far =
                evicted.entry((ptr::from_ref(pod.victim.workload), pod.victim.subgroup)).or_default();
            let with_it = so_far.saturating_add(1);
            let may = self.rules.may_take(self.preemptor, &pod.victim, with_it);
            if may {
                *so_far = with_it;
            }
            may
        });
        sorted
    }
}

#[cfg(test)]
mod tests;
