//! Disruption budgets, and the pods that they select. The search for other victims asks which
//! budgets count a pod, so as to count the evictions that violate a budget.

use std::{collections::BTreeMap, ptr};

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

/// All `PodDisruptionBudget`s that select pods, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets(pub BTreeMap<(String, String), DisruptionBudget>);

#[derive(Debug)]
pub struct DisruptionBudget {
    /// Empty: the budget's own selector is too large to be kept, and may select any pod.
    selector: Selector,
    /// `status.disruptionsAllowed`; 0 if the status doesn't say, or if the value is negative.
    allowed: u32,
    /// The names of pods whose disruption is counted already, in alphabetical order.
    disrupted: Box<[Box<str>]>,
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
        Some(Self { selector, allowed, disrupted: disrupted.collect() })
    }
}

impl Budgets {
    /// Returns the budgets that count the disruption of a pod. Their numbers are valid until the
    /// next change. A pod without labels has none, and a pod whose labels aren't known has all of
    /// its namespace.
    pub fn of(&self, namespace: &str, name: &str, labels: &PodLabels) -> Vec<Selecting> {
        if labels.0.as_ref().is_some_and(|labels| labels.is_empty()) {
            return Vec::new();
        }
        let here = self.0.range((namespace.to_owned(), String::new())..);
        let here = here.take_while(|((of, _), _)| of == namespace).map(|(_, budget)| budget);
        let selecting = here.filter(|budget| {
            (!labels.are_known() || budget.selector.selects(labels))
                && budget.disrupted.binary_search_by(|of| (**of).cmp(name)).is_err()
        });
        let number = |budget: &DisruptionBudget| ptr::from_ref(budget).addr();
        selecting.map(|budget| Selecting { number: number(budget), allowed: budget.allowed }).collect()
    }
}
