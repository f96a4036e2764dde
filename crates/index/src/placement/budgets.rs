//! Disruption budgets, and the pods that they select. The search for other victims asks which
//! budgets count a pod, so as to count the evictions that violate a budget.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ptr,
};

use arcstr::ArcStr;
use tenure_policy::victims::MatchingBudget as Selecting;
use tenure_types::{
    projection::{BudgetStatus, PodDisruptionBudget},
    selector::{Labels, Selector},
};

use crate::names::Names;

/// The most bytes that are kept of a pod's labels, and of a budget's selector, since tenants write
/// both. Well-meant ones are smaller: Kubernetes bounds each label, but not their number.
const MOST_BYTES: usize = 8 * 1024;

/// The most bytes of a namespace's budgets: some 500 well-meant ones. Each pod of a search is
/// compared with all of them.
const MOST_BYTES_OF_NAMESPACE: usize = 64 * 1024;

/// The labels of a pod, by key. None: the labels take more bytes than are kept, and nothing is
/// known of them. The texts of labels are shared: keys are few, and the pods of a workload have
/// most values in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PodLabels(Option<Box<[(ArcStr, ArcStr)]>>);

impl PodLabels {
    /// Reads the labels of a pod. A pod without labels has an empty list.
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

/// All `PodDisruptionBudget`s that select pods, by namespace.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<String, NamespaceBudgets>);

/// The budgets of a namespace. If they have more bytes than a search may compare, they all count as
/// one budget that selects every pod and allows no disruption.
#[derive(Debug, Default)]
struct NamespaceBudgets {
    by_name: BTreeMap<String, DisruptionBudget>,
    /// The bytes of all budgets, with the selectors that weren't kept.
    bytes: usize,
}

impl NamespaceBudgets {
    const fn are_too_many(&self) -> bool {
        self.bytes > MOST_BYTES_OF_NAMESPACE
    }
}

#[derive(Debug)]
pub struct DisruptionBudget {
    /// Empty: the budget's own selector wasn't kept, and may select any pod.
    selector: Selector,
    /// `status.disruptionsAllowed`; 0 if the status doesn't say, or if the value is negative.
    allowed: u32,
    /// The names of pods whose disruption is counted already, in alphabetical order.
    disrupted: Box<[Box<str>]>,
    /// The bytes of the record with the selector as it was read.
    bytes: usize,
}

impl DisruptionBudget {
    /// Returns the record of a budget. None: the selector is empty or can't be read, and selects
    /// nothing, as for the scheduler.
    ///
    /// A budget whose selector is too large to be kept counts for every pod of its namespace. So no
    /// pod is wrongly considered free to go, and a tenant gains nothing: such a budget could be
    /// written in any case.
    pub fn read(budget: PodDisruptionBudget) -> Option<Self> {
        let selector = budget.spec.selector.as_ref().and_then(Selector::read).filter(|of| !of.is_empty())?;
        let selector = if selector.bytes() <= MOST_BYTES { selector } else { Selector::default() };
        let BudgetStatus { disruptions_allowed, disrupted_pods } = budget.status;
        let allowed = disruptions_allowed.and_then(|allowed| allowed.try_into().ok()).unwrap_or(0);
        let disrupted = disrupted_pods.into_iter().flat_map(BTreeMap::into_keys).map(String::into_boxed_str);
        let bytes = size_of::<Self>().saturating_add(selector.bytes());
        Some(Self { selector, allowed, disrupted: disrupted.collect(), bytes })
    }
}

impl Budgets {
    /// Replaces a budget. None: there is no such budget, or it selects nothing.
    ///
    /// While a namespace has too many budgets, new ones are kept without their selectors, so that
    /// they take little memory. Once it has fewer again, such a budget counts for every pod until it
    /// is next seen.
    pub fn put(&mut self, (namespace, name): (String, String), budget: Option<DisruptionBudget>) {
        let here = self.0.entry(namespace.clone()).or_default();
        let old = here.by_name.remove(&name).map_or(0, |old| old.bytes);
        let new = budget.as_ref().map_or(0, |new| new.bytes);
        here.bytes = here.bytes.saturating_sub(old).saturating_add(new);
        if let Some(mut budget) = budget {
            if here.are_too_many() {
                budget.selector = Selector::default();
            }
            here.by_name.insert(name, budget);
        } else if here.by_name.is_empty() {
            self.0.remove(&namespace);
        }
    }

    /// Forgets all budgets but these, by namespace and name.
    pub fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.0.retain(|namespace, here| {
            here.by_name.retain(|name, _| keys.contains(&(namespace.clone(), name.clone())));
            here.bytes = here.by_name.values().map(|budget| budget.bytes).fold(0, usize::saturating_add);
            !here.by_name.is_empty()
        });
    }

    /// Returns the budgets that count the disruption of a pod. Their numbers are valid until the
    /// next change. A pod without labels has none, and a pod whose labels aren't known has all of
    /// its namespace.
    pub fn of(&self, namespace: &str, name: &str, labels: &PodLabels) -> Vec<Selecting> {
        if labels.0.as_ref().is_some_and(|labels| labels.is_empty()) {
            return Vec::new();
        }
        let Some(here) = self.0.get(namespace) else { return Vec::new() };
        if here.are_too_many() {
            return vec![Selecting { number: ptr::from_ref(here).addr(), allowed: 0 }];
        }
        let selecting = here.by_name.values().filter(|budget| {
            (!labels.are_known() || budget.selector.selects(labels))
                && budget.disrupted.binary_search_by(|of| (**of).cmp(name)).is_err()
        });
        let number = |budget: &DisruptionBudget| ptr::from_ref(budget).addr();
        selecting.map(|budget| Selecting { number: number(budget), allowed: budget.allowed }).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> (String, String) {
        ("ns".to_owned(), name.to_owned())
    }

    /// A budget that allows a disruption, for pods without this number of values of the label `app`.
    fn budget(values: usize) -> Option<DisruptionBudget> {
        let values: Vec<String> = (0..values).map(|number| format!("{number:064}")).collect();
        let expression = json!({"key": "app", "operator": "NotIn", "values": values});
        let spec = json!({"selector": {"matchExpressions": [expression]}});
        let budget = json!({"spec": spec, "status": {"disruptionsAllowed": 1}});
        DisruptionBudget::read(serde_json::from_value(budget).unwrap())
    }

    /// The number of budgets that count a pod of this namespace, and how many of them allow no disruption. The pod
    /// has the value 0 of the label `app`.
    fn counted(budgets: &Budgets, namespace: &str) -> (usize, usize) {
        let labels = BTreeMap::from([("app".to_owned(), format!("{:064}", 0))]);
        let all = budgets.of(namespace, "pod", &PodLabels::read(Some(&labels), &mut Names::default()));
        (all.len(), all.iter().filter(|of| of.allowed == 0).count())
    }

    fn kept_bytes(budgets: &Budgets) -> usize {
        let kept = budgets.0.values().flat_map(|here| here.by_name.values());
        kept.map(|budget| budget.selector.bytes()).sum()
    }

    #[test]
    fn budgets_of_a_namespace_take_no_more_memory_than_a_search_may_compare() {
        let mut budgets = Budgets::default();
        for number in 0..1_000 {
            budgets.put(key(&number.to_string()), budget(90));
        }
        let most = MOST_BYTES_OF_NAMESPACE;
        assert!((most / 2..=most).contains(&kept_bytes(&budgets)), "{}", kept_bytes(&budgets));
    }

    #[test]
    fn more_budgets_than_a_search_may_compare_count_as_one_that_selects_every_pod() {
        for (values, many) in [(90, 20), (120, 2_000)] {
            let mut budgets = Budgets::default();
            budgets.put(("other".to_owned(), "a".to_owned()), budget(1));
            for number in 0..many {
                budgets.put(key(&number.to_string()), budget(values));
            }
            assert_eq!(counted(&budgets, "ns"), (1, 1), "{many} budgets of {values} values");
            assert_eq!(counted(&budgets, "other"), (0, 0), "another namespace");
        }
    }

    #[test]
    fn a_budget_that_came_when_there_were_too_many_selects_every_pod_until_it_is_seen_again() {
        let mut budgets = Budgets::default();
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        for name in &names {
            budgets.put(key(name), budget(90));
        }
        budgets.put(key("0"), None);
        assert_eq!(counted(&budgets, "ns"), (1, 1), "there are still too many");
        let left = ["1", "19"].map(key);
        budgets.retain(&HashSet::from(left.clone()));
        assert_eq!(counted(&budgets, "ns"), (1, 0), "19 alone");
        budgets.put(key("19"), budget(90));
        assert_eq!(counted(&budgets, "ns"), (0, 0));
        for key in left {
            budgets.put(key, None);
        }
        assert!(budgets.0.is_empty());
    }
}
