//! Disruption budgets, and which pods they select.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ptr,
};

use arcstr::ArcStr;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Expression, Selector};
use tenure_policy::victims::Budget as Selecting;

use crate::names::Names;

/// The labels of a pod, by key. Their texts are shared: keys are few, and the pods of a workload have most values in
/// common.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(ArcStr, ArcStr)]>);

impl Labels {
    pub fn read(labels: Option<&BTreeMap<String, String>>, names: &mut Names) -> Self {
        let pairs = labels.into_iter().flatten();
        Self(pairs.map(|(key, value)| (names.shared(key), names.shared(value))).collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(of, _)| of.as_str().cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| value.as_str())
    }

    fn satisfy(&self, expression: &Expression) -> bool {
        match expression {
            Expression::In(key, values) => self.get(key).is_some_and(|value| values.contains(value)),
            Expression::NotIn(key, values) => self.get(key).is_none_or(|value| !values.contains(value)),
            Expression::Equal(key, value) => self.get(key) == Some(value),
            Expression::NotEqual(key, value) => self.get(key) != Some(value),
            Expression::Exists(key) => self.get(key).is_some(),
            Expression::DoesNotExist(key) => self.get(key).is_none(),
        }
    }
}

/// All `PodDisruptionBudget`s, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<ArcStr, BTreeMap<Box<str>, Budget>>);

#[derive(Debug)]
struct Budget {
    /// All must hold.
    selector: Box<[Expression]>,
    allowed: u32,
    /// The names of pods whose disruption is counted already, in order.
    disrupted: Box<[Box<str>]>,
}

impl Budgets {
    /// Takes one as the API server has it. One whose selector is empty or can't be read selects nothing, as for the
    /// scheduler.
    pub fn apply(&mut self, budget: &PodDisruptionBudget, names: &mut Names) {
        let (namespace, name) = (budget.metadata.namespace.as_deref(), budget.metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone()).map(Selector::try_from);
        let selector = selector.and_then(Result::ok).map(|all| all.into_iter().collect::<Box<[_]>>());
        let Some(selector) = selector.filter(|all| !all.is_empty()) else {
            self.delete(namespace, name);
            return;
        };
        let status = budget.status.as_ref();
        let allowed = status.and_then(|status| status.disruptions_allowed);
        let allowed = allowed.and_then(|allowed| allowed.try_into().ok()).unwrap_or(0);
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        let disrupted = disrupted.into_iter().flat_map(BTreeMap::keys);
        let disrupted = disrupted.map(|name| name.as_str().into()).collect();
        let budget = Budget { selector, allowed, disrupted };
        self.0.entry(names.shared(namespace)).or_default().insert(name.into(), budget);
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

    /// Those that count the disruption of a pod. Their numbers are good as long as nothing changes. None selects a pod
    /// without labels.
    pub fn of(&self, namespace: &str, name: &str, labels: &Labels) -> Vec<Selecting> {
        let here = self.0.get(namespace).filter(|_| !labels.0.is_empty());
        let here = here.into_iter().flat_map(BTreeMap::values);
        let selecting = here.filter(|budget| {
            budget.selector.iter().all(|of| labels.satisfy(of))
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

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use kube::core::SelectorExt;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn labels_are_selected_as_the_api_server_does() {
        let of = |operator: &str, key: &str, values: &Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let labels = [json!({}), json!({"a": "1"}), json!({"a": "2", "b": "1"}), json!({"0": "1", "b": ""})];
        for selector in [
            json!({}),
            json!({"matchLabels": {"a": "1"}}),
            json!({"matchLabels": {"a": "2", "b": "1"}}),
            of("In", "a", &json!(["1", "3"])),
            of("NotIn", "a", &json!(["1", "3"])),
            of("Exists", "b", &json!([])),
            of("DoesNotExist", "b", &json!([])),
        ] {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            let selector = Selector::try_from(selector).unwrap();
            for labels in &labels {
                let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap();
                let own = Labels::read(Some(&labels), &mut Names::default());
                let ours = selector.clone().into_iter().all(|of| own.satisfy(&of));
                assert_eq!(ours, selector.matches(&labels), "{selector} {labels:?}");
            }
        }
    }
}
