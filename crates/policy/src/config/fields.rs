//! Fields of a file, read one by one. Their errors are collected.

use std::fmt::Display;

use tenure_types::{DurationError, ExtendedDuration};

use super::{
    problem::{ConfigError, Problem},
    tree::{Entry, YamlNode, YamlValue},
};
use crate::{field::FieldError, notice::NoticePoints};

/// The rule for a duration, as in messages.
pub const DURATION: &str = "must be a duration such as 10m, 1h30m or 1d";

/// The rule for the points before the end of a run, as in messages.
const POINTS: &str = "must be a duration such as 10m, 1h30m or 1d, or up to 8 of them, such as 1h,10m";

/// A name that is less like another isn't taken for it.
const ALIKE: f64 = 0.85;

/// The errors found so far.
#[derive(Debug, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub fn add(&mut self, line: u64, text: impl Display) {
        self.0.push(Problem { line, text: text.to_string() });
    }

    /// Returns the error with all of them, in the order of the lines.
    pub fn in_order(self) -> ConfigError {
        let mut problems = self.0;
        problems.sort_by_key(|problem| problem.line);
        ConfigError { problems }
    }
}

/// A value and its path: `nodePools[0].name`. The path of the whole file is empty.
#[derive(Clone, Debug)]
pub struct Field<'n> {
    pub path: String,
    pub node: &'n YamlNode,
}

impl<'n> Field<'n> {
    pub fn refuse(&self, detail: impl Into<String>, problems: &mut Problems) {
        let path = if self.path.is_empty() { "the file" } else { &self.path };
        problems.add(self.node.line, FieldError::invalid(path, self.node.to_json(), detail));
    }

    pub fn text(&self, expected: &str, problems: &mut Problems) -> Option<&'n str> {
        let text = self.node.as_str();
        if text.is_none() {
            self.refuse(expected, problems);
        }
        text
    }

    pub fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        let value = self.node.to_json().as_bool();
        if value.is_none() {
            self.refuse("must be true or false", problems);
        }
        value
    }

    pub fn duration(&self, problems: &mut Problems) -> Option<ExtendedDuration> {
        let text = self.text(DURATION, problems)?;
        text.parse()
            .map_err(|error: DurationError| self.refuse(format!("{DURATION}: {error}"), problems))
            .ok()
    }

    pub fn points(&self, problems: &mut Problems) -> Option<NoticePoints> {
        let text = self.text(POINTS, problems)?;
        text.parse().map_err(|error: DurationError| self.refuse(format!("{POINTS}: {error}"), problems)).ok()
    }

    pub fn list(&self, problems: &mut Problems) -> Vec<Self> {
        if !matches!(self.node.tree, YamlValue::List(_)) {
            self.refuse("must be a list", problems);
        }
        let item = |(index, node)| Field { path: format!("{}[{index}]", self.path), node };
        self.node.items().iter().enumerate().map(item).collect()
    }

    /// The fields of a map.
    pub fn fields(&self, problems: &mut Problems) -> Option<Fields<'n>> {
        match &self.node.tree {
            YamlValue::Map(entries) => {
                let rest = entries.iter().collect();
                Some(Fields { path: self.path.clone(), line: self.node.line, rest, known: Vec::new() })
            }
            YamlValue::Scalar(_) | YamlValue::List(_) => {
                self.refuse("must be a map of fields", problems);
                None
            }
        }
    }
}

/// The fields of a map that haven't been read yet.
#[derive(Debug)]
pub struct Fields<'n> {
    path: String,
    line: u64,
    rest: Vec<&'n Entry>,
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The field of a name; none if it isn't there, or is null.
    pub fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.known.push(name);
        let place = self.rest.iter().position(|entry| entry.key == name)?;
        let node = &self.rest.remove(place).value;
        (!node.is_null()).then(|| Field { path: self.path_of(name), node })
    }

    /// The same of a field that must be there.
    pub fn require(&mut self, name: &'static str, problems: &mut Problems) -> Option<Field<'n>> {
        let field = self.take(name);
        if field.is_none() {
            problems.add(self.line, format!("{}: Required value", self.path_of(name)));
        }
        field
    }

    /// Reports the fields that weren't read: they are unknown.
    pub fn end(self, problems: &mut Problems) {
        for entry in &self.rest {
            let help = match nearest(&entry.key, &self.known) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            problems.add(entry.line, format!("{}: Unknown field: {help}", self.path_of(&entry.key)));
        }
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }
}

/// The known name that was probably meant.
pub fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let likeness = |name: &str| strsim::jaro_winkler(&written.to_lowercase(), &name.to_lowercase());
    let best = known.iter().map(|name| (likeness(name), *name)).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, name)| name)
}
