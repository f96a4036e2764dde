//! Disruption budgets, and the pods that they select.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ptr,
};

use arcstr::ArcStr;
use tenure_policy::victims::Budget as Selecting;
use tenure_types::{
    projection::{BudgetStatus, PodDisruptionBudget},
    selector::{self, Selector},
};

use crate::names::Names;

/// The labels of a pod, by key. Their texts are shared: keys are few, and the pods of a workload have most values in
/// common.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct PodLabels(Box<[(ArcStr, ArcStr)]>);

impl PodLabels {
    pub fn read(labels: Option<&BTreeMap<String, String>>, names: &mut Names) -> Self {
        let pairs = labels.into_iter().flatten();
        Self(pairs.map(|(key, value)| (names.shared(key), names.shared(value))).collect())
    }
}

impl selector::Labels for PodLabels {
    fn label(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(of, _)| of.as_str().cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| value.as_str())
    }
}

/// All `PodDisruptionBudget`s, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<ArcStr, BTreeMap<Box<str>, Budget>>);

#[derive(Debug)]
struct Budget {
    /// It isn't empty.
    selector: Selector,
    allowed: u32,
    /// The names of pods whose disruption is counted already, in order.
    disrupted: Box<[Box<str>]>,
}

impl Budgets {
    /// Adds or updates a budget. One whose selector is empty or can't be read selects nothing, as for the scheduler.
    pub fn apply(&mut self, budget: &PodDisruptionBudget, names: &mut Names) {
        let (namespace, name) = (budget.metadata.namespace.as_deref(), budget.metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let selector = budget.spec.selector.as_ref().and_then(Selector::read);
        let Some(selector) = selector.filter(|of| !of.is_empty()) else {
            self.delete(namespace, name);
            return;
        };
        let BudgetStatus { disruptions_allowed, disrupted_pods } = &budget.status;
        let allowed = disruptions_allowed.and_then(|allowed| allowed.try_into().ok()).unwrap_or(0);
        let disrupted = disrupted_pods.iter().flat_map(BTreeMap::keys);
        let disrupted = disrupted.map(|name| name.as_str().into()).collect();
        let budget = Budget { selector, allowed, disrupted };
        self.0.entry(names.shared(namespace)).or_default().insert(name.into(), budget);
    }

    /// Forgets a budget.
    pub fn delete(&mut self, namespace: &str, name: &str) {
        if let Some(here) = self.0.get_mut(namespace) {
            here.remove(name);
            if here.is_empty() {
                self.0.remove(namespace);
            }
        }
    }

    /// The budgets that count the disruption of a pod. Their numbers are valid until the next change. None selects a
    /// pod without labels.
    pub fn of(&self, namespace: &str, name: &str, labels: &PodLabels) -> Vec<Selecting> {
        let here = self.0.get(namespace).filter(|_| !labels.0.is_empty());
        let here = here.into_iter().flat_map(BTreeMap::values);
        let selecting = here.filter(|budget| {
            budget.selector.selects(labels)
                && budget.disrupted.binary_search_by(|of| (**of).cmp(name)).is_err()
        });
        let number = |budget: &Budget| ptr::from_ref(budget).addr();
        selecting.map(|budget| Selecting { number: number(budget), allowed: budget.allowed }).collect()
    }

    /// Forgets all but these, by namespace and name.
    pub fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.0.retain(|namespace, here| {
            here.retain(|name, _| keys.contains(&(namespace.to_string(), name.to_string())));
            !here.is_empty()
        });
    }
}
