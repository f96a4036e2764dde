//! The evictions that disruption budgets still allow. They never protect a pod here: kube-scheduler
//! only prefers nodes with fewer violations.

use std::collections::HashMap;

/// A `PodDisruptionBudget` that selects a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchingBudget {
    /// The number that identifies the budget.
    pub number: usize,
    /// Its `status.disruptionsAllowed`.
    pub allowed: u32,
}

/// Returns the places of the pods that would violate a budget if all are evicted.
///
/// `pods` has, for each pod, the budgets that select it, the least important pod first. As in the
/// scheduler, each pod takes one eviction from each of its budgets, the most important pod first.
pub fn violating<'b>(pods: impl Iterator<Item = &'b [MatchingBudget]>) -> Vec<usize> {
    let pods: Vec<&[MatchingBudget]> = pods.collect();
    let mut taken: HashMap<usize, u32> = HashMap::new();
    let mut violating = Vec::new();
    for (place, budgets) in pods.iter().enumerate().rev() {
        let mut fits = true;
        for MatchingBudget { number, allowed } in *budgets {
            let taken = taken.entry(*number).or_default();
            *taken = taken.saturating_add(1);
            fits &= *taken <= *allowed;
        }
        if !fits {
            violating.push(place);
        }
    }
    violating
}
