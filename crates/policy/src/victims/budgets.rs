//! How many pods disruption budgets would still give away.

use std::collections::HashMap;

/// `status.disruptionsAllowed` of each `PodDisruptionBudget`, by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets(pub Vec<u32>);

impl Budgets {
    /// The places of those pods that a budget would rather keep, if all are evicted in this order: of each pod, the
    /// numbers of its budgets. As in the scheduler, each pod takes one from each of its budgets.
    pub fn violating<'b>(&self, pods: impl Iterator<Item = &'b [usize]>) -> Vec<usize> {
        let mut taken: HashMap<usize, u32> = HashMap::new();
        let mut violating = Vec::new();
        for (place, budgets) in pods.enumerate() {
            let mut fits = true;
            for budget in budgets {
                let taken = taken.entry(*budget).or_default();
                *taken = taken.saturating_add(1);
                fits &= self.0.get(*budget).is_none_or(|allowed| *taken <= *allowed);
            }
            if !fits {
                violating.push(place);
            }
        }
        violating
    }
}
