//! Which pods of a node are to make room for a preemptor: those that its scheduler offers or, where some of these are
//! protected, others in their place.
//!
//! kube-scheduler prefers the youngest pods as victims, exactly those that floors protect: to drop every node that has
//! one would block far too much. So other pods are looked for whose requests, taken together, are at least what the
//! offered ones request. Where the offered ones make room enough, so do these.

mod budgets;
mod requests;

use std::{cmp::Reverse, collections::HashMap, ptr};

use jiff::Timestamp;

use crate::preemption::{Preemptor, Progress, Rule, Rules, Victim, Workload};

pub use budgets::Budgets;
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
    /// The numbers of the disruption budgets that select it.
    pub budgets: &'a [usize],
    /// Whether its requests are all that it takes away from others. Not so with host ports, volumes and affinities of
    /// its own: what replaces it may not free them.
    pub plain: bool,
}

/// What is to be answered for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The victims that were offered.
    Keep,
    /// These in their place, by their places among the pods of the node: the most important first.
    Instead {
        /// At least one.
        victims: Vec<usize>,
        /// How many of them a disruption budget would rather keep.
        budget_violations: usize,
    },
    /// None: nobody on this node makes room.
    Drop(Protected),
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
#[derive(Clone, Copy, Debug)]
pub struct Search<'s, 't> {
    /// What decisions are taken by.
    pub rules: &'s Rules<'t>,
    /// Who wants room.
    pub preemptor: &'s Preemptor<'s>,
    /// Whether room is all that it needs. Host ports, volumes, affinities and spread constraints are more: then no pod
    /// can be shown to be as good as another.
    pub plain: bool,
    /// All disruption budgets.
    pub budgets: &'s Budgets,
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
    /// What is to be answered for a node: `pods` are all that are on it, of which `offered` are those that its scheduler
    /// would evict.
    pub fn answer(&self, pods: &[Candidate<'_>], offered: &[usize]) -> Answer {
        let chosen: Vec<&Candidate<'_>> = offered.iter().filter_map(|number| pods.get(*number)).collect();
        let victims: Vec<Victim<'_>> = chosen.iter().map(|pod| pod.victim).collect();
        let Some(protected) = protected(self.rules, self.preemptor, &victims) else { return Answer::Keep };
        let instead = || {
            let needed = Requests::sum(chosen.iter().map(|pod| pod.requests));
            (self.plain && chosen.iter().all(|pod| pod.plain)).then(|| self.others(pods, &needed)).flatten()
        };
        instead().unwrap_or(Answer::Drop(protected))
    }

    /// The fewest and least important pods that free as much.
    fn others(&self, pods: &[Candidate<'_>], needed: &Requests) -> Option<Answer> {
        let mut taken = self.takeable(pods);
        let mut freed = Requests::sum(taken.iter().map(|(_, pod)| pod.requests));
        if !freed.covers(needed) {
            return None;
        }
        // spared as the scheduler spares: those first that a budget would rather keep, then the most important
        let violating = self.budgets.violating(taken.iter().map(|(_, pod)| pod.budgets));
        let mut order: Vec<usize> = (0..taken.len()).rev().collect();
        order.sort_by_key(|place| !violating.contains(place));
        let mut spared = vec![false; taken.len()];
        for place in order {
            let Some(((_, pod), spared)) = taken.get(place).zip(spared.get_mut(place)) else { continue };
            if freed.covers_without(pod.requests, needed) {
                freed.subtract(pod.requests);
                *spared = true;
            }
        }
        let mut spared = spared.into_iter();
        taken.retain(|_| !spared.next().unwrap_or_default());
        let budget_violations = self.budgets.violating(taken.iter().map(|(_, pod)| pod.budgets)).len();
        let victims: Vec<usize> = taken.iter().rev().map(|(number, _)| *number).collect();
        (!victims.is_empty()).then_some(Answer::Instead { victims, budget_violations })
    }

    /// All pods that may be taken at once, the least important first.
    fn takeable<'p, 'a>(&self, pods: &'p [Candidate<'a>]) -> Vec<(usize, &'p Candidate<'a>)> {
        let lower = |pod: &Candidate<'_>| pod.priority < self.preemptor.claim.priority;
        let here = |pod: &Candidate<'_>| pod.victim.progress == Progress::Running;
        let mut sorted: Vec<_> = pods.iter().enumerate().filter(|(_, pod)| lower(pod) && here(pod)).collect();
        // of the same priority, the younger is the less important
        sorted.sort_by_key(|(_, pod)| (pod.priority, Reverse(pod.victim.scheduled_at)));
        let mut evicted: HashMap<(*const Workload<'_>, usize), u32> = HashMap::new();
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
