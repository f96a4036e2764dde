//! The values of a text: YAML documents, and JSON values one after the other.
//!
//! Called by `input` for each file. No key may occur twice in an object, and neither nesting nor
//! aliases may make a small text use much memory. An error has a line and a reason.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::{Error, MessageFormatter, Options, UserMessageFormatter, budget::BudgetBreach};

/// The deepest nesting of a YAML document, as in JSON.
const DEEPEST: usize = 128;

/// The largest number of bytes of text that aliases may add to a document.
const COPIED: usize = 64 << 20;

/// The largest number of values that aliases may stand for in a document, all together.
const REPEATED: usize = 100_000;

/// The line of a text that can't be read, counted from 1, and the reason.
pub type ReadError = (usize, String);

/// Returns all values, each with the line in which it begins. Nulls are left out.
pub fn values(text: &str) -> Result<Vec<(usize, Value)>, ReadError> {
    let mut values = Vec::new();
    for (first, document) in documents(text) {
        let line = |line: usize| first.saturating_add(line).saturating_sub(1);
        let found = of_document(document).map_err(|(at, message)| (line(at), message))?;
        let found = found.into_iter().filter(|(_, value)| !value.is_null());
        values.extend(found.map(|(at, value)| (line(at), value)));
    }
    Ok(values)
}

/// Reads JSON or YAML. A text that begins like JSON may still be YAML. If the text is neither, the
/// error is that of JSON.
fn of_document(text: &str) -> Result<Vec<(usize, Value)>, ReadError> {
    let of_yaml = || yaml(text).map(|value| vec![(1, value)]);
    if text.trim_start().starts_with('{') {
        return json(text).or_else(|error| of_yaml().map_err(|_| error));
    }
    of_yaml()
}

/// Returns the documents between markers, each from its first line that is neither empty nor a
/// comment, with the number of that line.
///
/// A marker at the beginning of a line separates documents wherever it stands: neither YAML nor
/// JSON has a place for one inside a document.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let (mut documents, mut begin, mut at) = (Vec::new(), None, 0usize);
    let document =
        |(number, begin): (usize, usize), end: usize| text.get(begin..end).map(|document| (number, document));
    for (number, line) in (1usize..).zip(text.split_inclusive('\n')) {
        let marker = if is_marker(line) { MARKER } else { 0 };
        if marker > 0 {
            documents.extend(begin.take().and_then(|begin| document(begin, at)));
        }
        // text after a marker, on the same line, is a part of the document
        if begin.is_none() && says_something(line.get(marker..).unwrap_or_default()) {
            begin = Some((number, at.saturating_add(marker)));
        }
        at = at.saturating_add(line.len());
    }
    documents.extend(begin.and_then(|begin| document(begin, at)));
    documents
}

/// The length of a marker.
const MARKER: usize = 3;

/// True if a line begins with `---` or `...`, alone or followed by a space.
fn is_marker(line: &str) -> bool {
    let after = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    after.is_some_and(|after| after.is_empty() || after.starts_with([' ', '\t', '\r', '\n']))
}

/// True if a line isn't empty, a comment or a directive.
fn says_something(line: &str) -> bool {
    let is_directive = line.starts_with('%');
    let line = line.trim_start();
    !(line.is_empty() || line.starts_with('#') || is_directive)
}

/// Reads JSON values one after the other. Each may have several lines.
fn json(text: &str) -> Result<Vec<(usize, Value)>, ReadError> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Unambiguous>();
    let (mut values, mut line, mut seen) = (Vec::new(), 1usize, 0);
    loop {
        let rest = text.get(stream.byte_offset()..).unwrap_or_default().trim_start();
        let begin = text.len().saturating_sub(rest.len());
        let passed = text.get(seen..begin).unwrap_or_default();
        line = line.saturating_add(passed.bytes().filter(|byte| *byte == b'\n').count());
        seen = begin;
        match stream.next() {
            None => return Ok(values),
            Some(Ok(Unambiguous(value))) => values.push((line, value)),
            Some(Err(error)) => {
                let text = error.to_string();
                let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
                return Err((error.line(), message.into()));
            }
        }
    }
}

/// Reads one YAML document. An empty text is null.
fn yaml(text: &str) -> Result<Value, ReadError> {
    let read = serde_saphyr::from_str_with_options(text, options(text.len()));
    read.map(|Unambiguous(value)| value).map_err(|error| {
        let line = error.location().and_then(|at| usize::try_from(at.line()).ok());
        (line.unwrap_or(1), explain(error.without_snippet()))
    })
}

/// Returns the limits for a document of this length in bytes. The document may be long, but a few
/// lines of aliases may not stand for any number of values.
fn options(length: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEEPEST,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_aliases: usize::MAX,
            max_anchors: usize::MAX,
            max_merge_keys: usize::MAX,
            max_total_scalar_bytes: length.saturating_add(COPIED),
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: REPEATED,
        },
        emit_comments: false,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn explain(error: &Error) -> String {
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("key {key:?} appears twice"),
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            format!("it is nested deeper than {DEEPEST} levels")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "its aliases stand for too many values: write the values out".into()
        }
        Error::AliasError { error, .. } => explain(error),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}

/// Beyond this magnitude, some whole numbers have no floating-point number of their own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value in which no object has a key twice.
pub struct Unambiguous(pub Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

/// Reads any value that JSON has.
struct AnyValue;

/// Visits values that are the same in JSON.
macro_rules! scalars {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: de::Error>(self, value: $type) -> Result<Value, E> {
            Ok(value.into())
        })*
    };
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_str: &str, visit_string: String);

    /// A whole number stays whole, however it is written: `1e3` is 1000.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        #[allow(clippy::cast_possible_truncation, reason = "it is whole, and not too large")]
        let whole = (value.fract() == 0.0 && value.abs() < EXACT).then_some(value as i64);
        Ok(whole.map_or_else(|| value.into(), Value::from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!("key {key:?} appears twice")));
            }
            let Unambiguous(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests;
