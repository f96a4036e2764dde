//! YAML as a tree in which every value knows its line.
//!
//! The other modules of this configuration read files with [`YamlNode::parse`]. What aliases stand
//! for is bounded, so a small file can't take much memory.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::problem::{ConfigError, Problem};

/// The most values that all aliases of a file together may stand for. A few lines must not keep a
/// server busy.
const REPEATED: usize = 10_000;

/// A value and its line, from 1. The line of a block of text is the line of its first word.
#[derive(Clone, Debug)]
pub struct YamlNode {
    pub line: u64,
    pub tree: YamlValue,
}

#[derive(Clone, Debug)]
pub enum YamlValue {
    /// Null, a boolean, a number or a text.
    Scalar(Value),
    List(Vec<YamlNode>),
    /// The entries in the order of the file.
    Map(Vec<YamlEntry>),
}

/// A key of a map with its line, and the value.
#[derive(Clone, Debug)]
pub struct YamlEntry {
    pub line: u64,
    pub key: String,
    pub value: YamlNode,
}

impl YamlNode {
    /// Reads a file. A file that has only empty lines and comments is null. An error has one
    /// problem.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let says_nothing = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if text.lines().all(says_nothing) {
            return Ok(Self { line: 1, tree: YamlValue::Scalar(Value::Null) });
        }
        let options = serde_saphyr::options! {
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: REPEATED,
            },
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| unreadable(&error))
    }

    pub fn is_null(&self) -> bool {
        matches!(self.tree, YamlValue::Scalar(Value::Null))
    }

    /// Returns the value of a key. None: this isn't a map, or has no such key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let YamlValue::Map(entries) = &self.tree else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the items of a list. Anything else has no items.
    pub fn items(&self) -> &[Self] {
        if let YamlValue::List(items) = &self.tree { items } else { &[] }
    }

    /// Returns a text. None: this isn't a text.
    pub fn as_str(&self) -> Option<&str> {
        if let YamlValue::Scalar(value) = &self.tree { value.as_str() } else { None }
    }

    /// Converts a value to JSON, without the lines and without keys whose value is null.
    pub fn to_json(&self) -> Value {
        match &self.tree {
            YamlValue::Scalar(value) => value.clone(),
            YamlValue::List(items) => items.iter().map(Self::to_json).collect(),
            YamlValue::Map(entries) => {
                // a key without a value counts as absent
                let set = entries.iter().filter(|entry| !entry.value.is_null());
                let pairs = set.map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns the value at a path such as `nodePools[0].name`. None: the file has no such path.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split(['.', '[']).try_fold(self, |node, part| match part.strip_suffix(']') {
            Some(index) => node.items().get(index.parse::<usize>().ok()?),
            None => node.get(part),
        })
    }
}

/// Returns the problem for an error of the parser: its message in one line, without advice about
/// the parser's interface.
fn unreadable(error: &serde_saphyr::Error) -> ConfigError {
    let line = error.location().map_or(1, |location| location.line());
    let error = error.without_snippet();
    if stands_for_too_much(error) {
        let text = format!("its aliases stand for more than {REPEATED} values: write the values out");
        return ConfigError { problems: vec![Problem { line, text }] };
    }
    let text = error.to_string();
    let text = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let text = match text.rsplit_once(" at line ") {
        // the rest is for users of the parser
        Some((text, _)) => {
            let text = text.split("; use ").next().unwrap_or(text);
            text.split(", set ").next().unwrap_or(text).to_owned()
        }
        None => text,
    };
    ConfigError { problems: vec![Problem { line, text }] }
}

/// True if the error is that aliases stand for too many values.
fn stands_for_too_much(error: &serde_saphyr::Error) -> bool {
    match error {
        serde_saphyr::Error::AliasReplayLimitExceeded { .. } => true,
        serde_saphyr::Error::AliasError { error, .. } => stands_for_too_much(error.without_snippet()),
        _ => false,
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<YamlValue>::deserialize(deserializer)?;
        Ok(Self { line: referenced.line(), tree: value })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Trees)
    }
}

/// Builds a tree of any YAML value.
struct Trees;

impl<'de> Visitor<'de> for Trees {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(YamlValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlValue, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, YamlNode>()? {
            map.push(YamlEntry { line: key.referenced.line(), key: key.value, value });
        }
        Ok(YamlValue::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_knows_its_line() {
        let node = YamlNode::parse("a: 1\nb:\n- x: true\n  y: 0s\n- null\nc: |\n  one\n  two\n").unwrap();
        assert_eq!(node.to_json(), json!({"a": 1, "b": [{"x": true, "y": "0s"}, null], "c": "one\ntwo\n"}));
        let list = node.get("b").unwrap();
        assert_eq!(list.items()[0].get("y").unwrap().line, 4);
        assert_eq!(list.items()[1].line, 5);
        assert_eq!(node.get("c").unwrap().line, 7, "that of its first word");
    }

    #[test]
    fn a_file_without_a_word_is_null() {
        for text in ["", "\n", "# nothing\n", "---\n", "~", "# a\n---\n# b\n"] {
            assert!(YamlNode::parse(text).unwrap().is_null(), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_line() {
        for (text, line) in [("a: 1\na: 2\n", 2), ("a: [\n", 1), ("a: 1\n  b: 2\n", 2), ("a: *b\n", 1)] {
            let ConfigError { problems } = YamlNode::parse(text).unwrap_err();
            assert_eq!((problems.len(), problems[0].line), (1, line), "{text:?}: {problems:?}");
            assert!(!problems[0].text.contains('\n'), "{problems:?}");
        }
    }
}
