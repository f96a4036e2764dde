//! Disruption budgets, and the pods that they select.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ptr,
};

use arcstr::ArcStr;
use tenure_policy::victims::Budget as Selecting;
use tenure_types::{
    projection::{BudgetStatus, PodDisruptionBudget},
    selector::{Labels, Selector},
};

use crate::names::Names;

/// The most bytes that are kept of a pod's labels, and of a budget's selector, since tenants write them. No well-meant
/// one has more: Kubernetes bounds each label, but not their number.
const MOST_BYTES: usize = 8 * 1024;

/// The labels of a pod, by key; none if they take more bytes than are kept, and then nothing is known of them. Their
/// texts are shared: keys are few, and the pods of a workload have most values in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PodLabels(Option<Box<[(ArcStr, ArcStr)]>>);

impl PodLabels {
    pub fn read(labels: Option<&BTreeMap<String, String>>, names: &mut Names) -> Self {
        let pairs = || labels.into_iter().flatten();
        let bytes = pairs().map(|(key, value)| {
            size_of::<(ArcStr, ArcStr)>().saturating_add(key.len()).saturating_add(value.len())
        });
        let is_kept = bytes.fold(0, usize::saturating_add) <= MOST_BYTES;
        let mut shared = |(key, value): (&String, &String)| (names.shared(key), names.shared(value));
        Self(is_kept.then(|| pairs().map(&mut shared).collect()))
    }
}

impl Labels for PodLabels {
    fn label(&self, key: &str) -> Option<&str> {
        let labels = self.0.as_ref()?;
        let place = labels.binary_search_by(|(of, _)| of.as_str().cmp(key)).ok()?;
        labels.get(place).map(|(_, value)| value.as_str())
    }

    fn are_known(&self) -> bool {
        self.0.is_some()
    }
}

/// All `PodDisruptionBudget`s, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<ArcStr, BTreeMap<Box<str>, Budget>>);

#[derive(Debug)]
struct Budget {
    /// An empty one is too large to be kept, and may select any pod.
    selector: Selector,
    allowed: u32,
    /// The names of pods whose disruption is counted already, in order.
    disrupted: Box<[Box<str>]>,
}

impl Budgets {
    /// Adds or updates a budget. One whose selector is empty or can't be read selects nothing, as for the scheduler. One
    /// whose selector is too large to be kept counts for every pod of its namespace: so no pod is taken for one that is
    /// free to go, and a tenant could write such a budget in any case.
    pub fn apply(&mut self, budget: &PodDisruptionBudget, names: &mut Names) {
        let (namespace, name) = (budget.metadata.namespace.as_deref(), budget.metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let selector = budget.spec.selector.as_ref().and_then(Selector::read);
        let Some(selector) = selector.filter(|of| !of.is_empty()) else {
            self.delete(namespace, name);
            return;
        };
        let selector = if selector.bytes() <= MOST_BYTES { selector } else { Selector::default() };
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
    /// pod without labels, and all count one whose labels aren't known.
    pub fn of(&self, namespace: &str, name: &str, labels: &PodLabels) -> Vec<Selecting> {
        let has_labels = labels.0.as_ref().is_none_or(|labels| !labels.is_empty());
        let here = self.0.get(namespace).filter(|_| has_labels);
        let here = here.into_iter().flat_map(BTreeMap::values);
        let selecting = here.filter(|budget| {
            (!labels.are_known() || budget.selector.selects(labels))
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
