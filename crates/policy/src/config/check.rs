//! Compares a file of Tenure's with the table of its keys.
//!
//! `Config` runs this as the first pass over a file. In the second pass, `written` adds the errors
//! that concern several keys. An error doesn't end a pass: all errors are reported together.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    keys::{ConfigKey, Form, KEYS},
    names::nearest,
    problem::{ConfigError, Problem},
    tree::{YamlEntry, YamlNode, YamlValue},
};
use crate::field::FieldError;

/// Stands for the value of a secret in messages.
const HIDDEN: &str = "<not shown>";

/// The detail of the error about an item that is in a list twice.
pub const TWICE: &str = "is in the list already";

/// The keys that a file sets, and the errors found so far.
#[derive(Debug)]
pub struct CheckedConfig<'r> {
    /// The file.
    pub root: &'r YamlNode,
    /// The paths of the keys with a value other than null, without the keys of list items.
    pub set: BTreeSet<&'static str>,
    /// The errors, in the order in which they were found.
    pub problems: Vec<Problem>,
}

impl<'r> CheckedConfig<'r> {
    /// Compares a file with the table of its keys. The file must be a map.
    pub fn of(root: &'r YamlNode) -> Self {
        let mut checked = Self { root, set: BTreeSet::new(), problems: Vec::new() };
        match &root.tree {
            YamlValue::Map(entries) => checked.map(root, entries, "", ""),
            _ => checked.refuse(root, "the file", root.to_json(), "must be a map of fields"),
        }
        checked
    }

    /// Returns the keys that the file sets. An error has all problems, in the order of their lines.
    pub fn end(self) -> Result<BTreeSet<&'static str>, ConfigError> {
        let Self { root: _, set, mut problems } = self;
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() { Ok(set) } else { Err(ConfigError { problems }) }
    }

    /// Adds an error at a line of the file.
    pub fn add(&mut self, line: u64, text: impl Into<String>) {
        self.problems.push(Problem { line, text: text.into() });
    }

    /// Adds the error that a value isn't what `detail` demands. The message has `shown` as the
    /// value.
    fn refuse(&mut self, node: &YamlNode, path: &str, shown: impl Into<Value>, detail: &str) {
        self.add(node.line, FieldError::invalid(path, shown, detail).to_string());
    }

    /// Checks the keys of a map. `path` is its path in the file, `pattern` the same path in the
    /// table.
    fn map(&mut self, node: &YamlNode, entries: &[YamlEntry], path: &str, pattern: &str) {
        let dot = if pattern.is_empty() { "" } else { "." };
        let below = |key: &'static ConfigKey| {
            let name = key.path.strip_prefix(pattern)?.strip_prefix(dot)?;
            (!name.contains(['.', '['])).then_some((name, key))
        };
        let known: Vec<(&str, &ConfigKey)> = KEYS.iter().filter_map(below).collect();
        for YamlEntry { line, key: name, value } in entries {
            let path = format!("{path}{dot}{name}");
            match known.iter().find(|(known, _)| known == name) {
                Some(_) if value.is_null() => {}
                Some((_, key)) => self.value(value, &path, key),
                None => {
                    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                    let help = match nearest(name, &names) {
                        Some(name) => format!("did you mean {name}?"),
                        None => format!("known here: {}", names.join(", ")),
                    };
                    self.add(*line, format!("{path}: Unknown field: {help}"));
                }
            }
        }
        for (name, _) in known.into_iter().filter(|(_, key)| key.is_required) {
            if node.get(name).is_none_or(YamlNode::is_null) {
                self.add(node.line, format!("{path}{dot}{name}: Required value"));
            }
        }
    }

    /// Checks a value by its row in the table. The key counts as set, even if the value is refused.
    fn value(&mut self, node: &YamlNode, path: &str, key: &'static ConfigKey) {
        let ConfigKey { path: pattern, form, expected, is_hidden, .. } = *key;
        self.set.extend((!pattern.contains('[')).then_some(pattern));
        let refused = match (form, &node.tree) {
            (Form::Anything, _) | (Form::Boolean, YamlValue::Scalar(Value::Bool(_))) => return,
            (Form::Map | Form::MapOrName(_), YamlValue::Map(entries)) => {
                return self.map(node, entries, path, pattern);
            }
            (Form::List, YamlValue::List(items)) => return self.list(node, items, path, key),
            (Form::Number, YamlValue::Scalar(Value::Number(number))) => {
                let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
                (!fits).then(|| expected.to_owned())
            }
            (Form::Text(is_good) | Form::MapOrName(is_good), YamlValue::Scalar(Value::String(text))) => {
                (!is_good(text)).then(|| expected.to_owned())
            }
            (Form::Parsed(read), YamlValue::Scalar(Value::String(text))) => {
                read(text).err().map(|error| format!("{expected}: {error}"))
            }
            _ => Some(expected.to_owned()),
        };
        if let Some(detail) = refused {
            // a map or a list in the wrong place may have a secret in it
            let is_above = |key: &ConfigKey| key.is_hidden && pattern.starts_with(key.path);
            let is_whole = !matches!(node.tree, YamlValue::Scalar(_));
            let is_hidden = is_hidden || (is_whole && KEYS.iter().any(is_above));
            let shown = if is_hidden { HIDDEN.into() } else { node.to_json() };
            self.refuse(node, path, shown, &detail);
        }
    }

    /// Checks the number of items, each item, and that no two items share the unique key.
    fn list(&mut self, node: &YamlNode, items: &[YamlNode], path: &str, key: &ConfigKey) {
        if let Some((most, noun)) = key.most.filter(|(most, _)| items.len() > *most) {
            let shown = format!("{} {noun}", items.len());
            self.refuse(node, path, shown, &format!("must have at most {most} {noun}"));
        }
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let is_of_items = |of: &&ConfigKey| of.path.strip_prefix(key.path) == Some("[]");
            if let Some(of_items) = KEYS.iter().find(is_of_items) {
                self.value(item, &path, of_items);
            }
            let Some(unique) = key.unique else { continue };
            let (at, path) = match item.get(unique) {
                Some(at) => (at, format!("{path}.{unique}")),
                None => (item, path),
            };
            if at.as_str().is_some_and(|text| !seen.insert(text)) {
                self.refuse(at, &path, at.to_json(), TWICE);
            }
        }
    }

    /// Refuses the value at a path, at the line of the value. The message has `shown` as the value.
    /// None: the value as written. A path that the file doesn't have stands for the whole file.
    pub fn refuse_at(&mut self, path: &str, shown: Option<&str>, detail: &str) {
        let node = self.root.at(path).unwrap_or(self.root);
        let shown = shown.map_or_else(|| node.to_json(), Into::into);
        self.refuse(node, path, shown, detail);
    }

    /// Adds an error of a later pass at the line of its field. A path that the file doesn't have
    /// stands for the whole file.
    pub fn add_at(&mut self, path: &str, text: impl Into<String>) {
        self.add(self.root.at(path).unwrap_or(self.root).line, text);
    }
}
