//! Label selectors, in a form that is small to keep. The placement index keeps those of budgets and
//! pods; the command line reads those of `--selector`.

use std::{collections::BTreeMap, fmt::Debug, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use thiserror::Error;

/// The labels of a pod.
pub trait Labels: Debug + Sync {
    /// Returns the value of a label. None: no such label is known.
    fn label(&self, key: &str) -> Option<&str>;

    /// True if all labels are known. False: the pod may have other labels, or any value of these.
    fn are_known(&self) -> bool {
        true
    }
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// A label selector: all of its requirements must hold, so one without any selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector(Box<[Requirement]>);

/// A part of a selector that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "must be a label selector such as app=web,tier!=test, 'env in (dev, ci)' or '!legacy': can't read {0:?}"
)]
pub struct UnreadableSelector(String);

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirement {
    key: Box<str>,
    /// The values, of which the label must have one. None: any value.
    values: Option<Box<[Box<str>]>>,
    /// True if the requirement is the opposite: a label without these values, or no such label.
    is_negated: bool,
}

impl Selector {
    /// Reads a selector. None: the selector has an unknown operator.
    pub fn read(selector: &LabelSelector) -> Option<Self> {
        let equal = |(key, value): (&String, &String)| {
            Some(Requirement::one_of(key.as_str().into(), [value.as_str().into()]))
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
    pub fn bytes(&self) -> usize {
        let bytes = |of: &Requirement| {
            let values = of.values.iter().flatten();
            let values = values.map(|value| value.len().saturating_add(size_of::<Box<str>>()));
            values.fold(of.key.len(), usize::saturating_add)
        };
        let all = self.0.iter().map(|of| bytes(of).saturating_add(size_of::<Requirement>()));
        all.fold(0, usize::saturating_add)
    }
}

/// Reads a selector as kubectl takes it after `--selector`. An empty text selects everything. The
/// error names the part that can't be read.
impl FromStr for Selector {
    type Err = UnreadableSelector;

    fn from_str(text: &str) -> Result<Self, UnreadableSelector> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut depth = 0u32;
        let is_end = |c: char| {
            match c {
                '(' => depth = depth.saturating_add(1),
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        };
        let read =
            |part: &str| Requirement::parse(part.trim()).ok_or_else(|| UnreadableSelector(part.into()));
        text.split(is_end).map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl Requirement {
    fn one_of(key: Box<str>, values: impl IntoIterator<Item = Box<str>>) -> Self {
        Self { key, values: Some(values.into_iter().collect()), is_negated: false }
    }

    const fn exists(key: Box<str>) -> Self {
        Self { key, values: None, is_negated: false }
    }

    fn not(self) -> Self {
        Self { is_negated: true, ..self }
    }

    /// Reads one part, such as `a=1` or `a in (1,2)`. None: the part has no known form.
    fn parse(text: &str) -> Option<Self> {
        if let Some(key) = text.strip_prefix('!') {
            return Some(Self::exists(key_of(key)?).not());
        }
        if let Some(of) = text.strip_suffix(')') {
            let (before, values) = of.split_once('(')?;
            let values: Option<Box<[_]>> = values.split(',').map(value_of).collect();
            let (key, operator) = before.trim_end().rsplit_once(char::is_whitespace)?;
            let one_of = Self::one_of(key_of(key)?, values?);
            return match operator {
                "in" => Some(one_of),
                "notin" => Some(one_of.not()),
                _ => None,
            };
        }
        let Some((key, value)) = text.split_once('=') else { return Some(Self::exists(key_of(text)?)) };
        if let Some(key) = key.strip_suffix('!') {
            return Some(Self::one_of(key_of(key)?, [value_of(value)?]).not());
        }
        let value = value.strip_prefix('=').unwrap_or(value);
        Some(Self::one_of(key_of(key)?, [value_of(value)?]))
    }

    /// Reads an expression. None: the operator is unknown.
    fn read(expression: &LabelSelectorRequirement) -> Option<Self> {
        let key = expression.key.as_str().into();
        let values = expression.values.iter().flatten().map(|value| value.as_str().into());
        Some(match expression.operator.as_str() {
            "In" => Self::one_of(key, values),
            "NotIn" => Self::one_of(key, values).not(),
            "Exists" => Self::exists(key),
            "DoesNotExist" => Self::exists(key).not(),
            _ => return None,
        })
    }

    /// True if the labels meet the requirement.
    fn holds(&self, labels: &dyn Labels) -> bool {
        let is_one = |of: &str| self.values.as_ref().is_none_or(|all| all.iter().any(|value| **value == *of));
        labels.label(&self.key).is_some_and(is_one) != self.is_negated
    }
}

/// Returns the key without spaces around it. None: the text can't be a key.
fn key_of(text: &str) -> Option<Box<str>> {
    let key = text.trim();
    let is_key = !key.is_empty() && key.chars().all(|c| is_of_value(c) || c == '/');
    is_key.then(|| key.into())
}

/// Returns the value without spaces around it, which may be empty. None: the text can't be a value.
fn value_of(text: &str) -> Option<Box<str>> {
    let value = text.trim();
    value.chars().all(is_of_value).then(|| value.into())
}

/// True for a character that values may have.
const fn is_of_value(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
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

    #[test]
    fn a_selector_is_read_as_kubectl_takes_it() {
        let read = |text: &str| text.parse::<Selector>();
        let of = |selector: Value| Ok(Selector::read(&serde_json::from_value(selector).unwrap()).unwrap());
        let one = |key: &str, operator: &str, values: Value| {
            of(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert_eq!(read(""), Ok(Selector::default()));
        for text in ["a=1", "a==1", " a = 1 "] {
            assert_eq!(read(text), of(json!({"matchLabels": {"a": "1"}})), "{text}");
        }
        assert_eq!(read("a!=1"), one("a", "NotIn", json!(["1"])));
        assert_eq!(read("x.io/a in (1, 2)"), one("x.io/a", "In", json!(["1", "2"])));
        assert_eq!(read("a notin (1,2)"), one("a", "NotIn", json!(["1", "2"])));
        assert_eq!(read("a"), one("a", "Exists", json!(null)));
        assert_eq!(read("!a"), one("a", "DoesNotExist", json!(null)));
        assert_eq!(read("a="), of(json!({"matchLabels": {"a": ""}})));
        assert_eq!(read("a in (1,2),b=3,!c").unwrap().0.len(), 3);
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_an_error_that_names_the_part() {
        for part in
            ["=1", "!", "a b", "a>1", "a=1 2", "a in 1", "in (1)", "a like (1)", "a=(", "a in (1,2", "ä=1"]
        {
            let error = format!("b=2,{part}").parse::<Selector>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("can't read {part:?}")), "{error}");
        }
        assert!("a=1,,b=2".parse::<Selector>().is_err());
    }
}
