//! Disruption budgets, and which pods they select.

use std::collections::{BTreeMap, HashMap, HashSet};

use arcstr::ArcStr;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt};
use tenure_policy::victims::Budgets as Allowed;

use crate::names::Names;

/// All `PodDisruptionBudget`s, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<ArcStr, BTreeMap<String, Budget>>);

#[derive(Debug)]
struct Budget {
    selector: Selector,
    allowed: u32,
}

impl Budgets {
    /// Takes one as the API server has it. One whose selector can't be read selects nothing, as for the scheduler.
    pub fn apply(&mut self, budget: &PodDisruptionBudget, names: &mut Names) {
        let (namespace, name) = (budget.metadata.namespace.as_deref(), budget.metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone()).map(Selector::try_from);
        let Some(Ok(selector)) = selector else {
            self.delete(namespace, name);
            return;
        };
        let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed);
        let allowed = allowed.and_then(|allowed| allowed.try_into().ok()).unwrap_or(0);
        let budget = Budget { selector, allowed };
        self.0.entry(names.shared(namespace)).or_default().insert(name.to_owned(), budget);
    }

    /// Forgets one.
    pub fn delete(&mut self, namespace: &str, name: &str) {
        if let Some(here) = self.0.get_mut(namespace) {
            here.remove(name);
            if here.is_empty() {
                self.0.remove(namespace);
            }
        }
    }

    /// Forgets all but these, by namespace and name.
    pub fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.0.retain(|namespace, here| {
            here.retain(|name, _| keys.contains(&(namespace.to_string(), name.clone())));
            !here.is_empty()
        });
    }
}

/// The budgets that matter for some pods, numbered as they are met.
#[derive(Debug)]
pub struct Numbered<'i> {
    all: &'i Budgets,
    numbers: HashMap<(&'i str, &'i str), usize>,
    allowed: Vec<u32>,
}

impl<'i> Numbered<'i> {
    pub fn new(all: &'i Budgets) -> Self {
        Self { all, numbers: HashMap::new(), allowed: Vec::new() }
    }

    /// Those that select a pod.
    pub fn of(&mut self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<usize> {
        let Some((namespace, here)) = self.all.0.get_key_value(namespace) else { return Vec::new() };
        let selecting = here.iter().filter(|(_, budget)| budget.selector.matches(labels));
        let numbers = selecting.map(|(name, budget)| {
            *self.numbers.entry((namespace, name)).or_insert_with(|| {
                self.allowed.push(budget.allowed);
                self.allowed.len().saturating_sub(1)
            })
        });
        numbers.collect()
    }

    /// How many pods each of them gives away, by number.
    pub fn allowed(self) -> Allowed {
        Allowed(self.allowed)
    }
}
