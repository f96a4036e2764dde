//! Label selectors, in a form that is small to keep.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// The labels of a pod.
pub trait Labels: Debug + Sync {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// A label selector: all of its requirements must hold, so one without any selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector(Box<[Requirement]>);

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Requirement {
    In(Box<str>, Box<[Box<str>]>),
    NotIn(Box<str>, Box<[Box<str>]>),
    Exists(Box<str>),
    DoesNotExist(Box<str>),
}

impl Selector {
    /// Reads a selector; none if it has an unknown operator.
    pub fn read(selector: &LabelSelector) -> Option<Self> {
        let equal = |(key, value): (&String, &String)| {
            Some(Requirement::In(key.as_str().into(), Box::new([value.as_str().into()])))
        };
        let labels = selector.match_labels.iter().flatten().map(equal);
        let expressions = selector.match_expressions.iter().flatten().map(Requirement::read);
        labels.chain(expressions).collect::<Option<_>>().map(Self)
    }

    /// True if the selector selects everything.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the selector selects a pod with these labels.
    pub fn selects(&self, labels: &dyn Labels) -> bool {
        self.0.iter().all(|of| of.holds(labels))
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |of: &Requirement| match of {
            Requirement::In(key, values) | Requirement::NotIn(key, values) => {
                let values = values.iter().map(|value| value.len().saturating_add(size_of::<Box<str>>()));
                values.fold(key.len(), usize::saturating_add)
            }
            Requirement::Exists(key) | Requirement::DoesNotExist(key) => key.len(),
        };
        let all = self.0.iter().map(|of| bytes(of).saturating_add(size_of::<Requirement>()));
        all.fold(0, usize::saturating_add)
    }
}

impl Requirement {
    fn read(expression: &LabelSelectorRequirement) -> Option<Self> {
        let key = expression.key.as_str().into();
        let values = || expression.values.iter().flatten().map(|value| value.as_str().into()).collect();
        Some(match expression.operator.as_str() {
            "In" => Self::In(key, values()),
            "NotIn" => Self::NotIn(key, values()),
            "Exists" => Self::Exists(key),
            "DoesNotExist" => Self::DoesNotExist(key),
            _ => return None,
        })
    }

    fn holds(&self, labels: &dyn Labels) -> bool {
        let is_one = |values: &[Box<str>], of: &str| values.iter().any(|value| **value == *of);
        match self {
            Self::In(key, values) => labels.label(key).is_some_and(|of| is_one(values, of)),
            Self::NotIn(key, values) => labels.label(key).is_none_or(|of| !is_one(values, of)),
            Self::Exists(key) => labels.label(key).is_some(),
            Self::DoesNotExist(key) => labels.label(key).is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
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
            let own = Selector::read(&selector).unwrap();
            let selector = kube::core::Selector::try_from(selector).unwrap();
            for labels in &labels {
                let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap();
                assert_eq!(own.selects(&labels), selector.matches(&labels), "{selector} {labels:?}");
            }
        }
    }

    #[test]
    fn a_selector_with_an_unknown_operator_is_not_read() {
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["x"]}]});
        assert_eq!(Selector::read(&serde_json::from_value(selector).unwrap()), None);
    }
}
