//! The values of a text: YAML documents, and JSON values one after the other.

use serde_json::Value;
use serde_saphyr::{Error, MessageFormatter, Options, UserMessageFormatter, budget::BudgetBreach};

use super::value::Unambiguous;

/// The deepest nesting, as in JSON.
const DEEPEST: usize = 128;

/// The most bytes of text that aliases may add to a document.
const COPIED: usize = 64 << 20;

/// The most values that aliases may stand for, all together.
const REPEATED: usize = 100_000;

/// The line, counted from 1, of a text that can't be read, and the reason.
pub type ReadError = (usize, String);

/// All values with the lines in which they begin. Nulls are left out.
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

/// Reads JSON or YAML. A text that begins like JSON may still be YAML; if it is neither, the error is that of JSON.
fn of_document(text: &str) -> Result<Vec<(usize, Value)>, ReadError> {
    let of_yaml = || yaml(text).map(|value| vec![(1, value)]);
    if text.trim_start().starts_with('{') {
        return json(text).or_else(|error| of_yaml().map_err(|_| error));
    }
    of_yaml()
}

/// Documents between markers, each from its first line that is neither empty nor a comment, with the number of that line.
///
/// A marker at the beginning of a line separates documents wherever it is: neither YAML nor JSON has a place for one
/// inside a document.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let (mut documents, mut begin, mut at) = (Vec::new(), None, 0usize);
    let document =
        |(number, begin): (usize, usize), end: usize| text.get(begin..end).map(|document| (number, document));
    for (number, line) in (1usize..).zip(text.split_inclusive('\n')) {
        let marker = if is_marker(line) { MARKER } else { 0 };
        if marker > 0 {
            documents.extend(begin.take().and_then(|begin| document(begin, at)));
        }
        // what follows a marker on its line is a part of the document
        if begin.is_none() && says_something(line.get(marker..).unwrap_or_default()) {
            begin = Some((number, at.saturating_add(marker)));
        }
        at = at.saturating_add(line.len());
    }
    documents.extend(begin.and_then(|begin| document(begin, at)));
    documents
}

const MARKER: usize = 3;

fn is_marker(line: &str) -> bool {
    let after = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    after.is_some_and(|after| after.is_empty() || after.starts_with([' ', '\t', '\r', '\n']))
}

fn says_something(line: &str) -> bool {
    let is_directive = line.starts_with('%');
    let line = line.trim_start();
    !(line.is_empty() || line.starts_with('#') || is_directive)
}

/// Reads JSON values; each may have several lines.
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

fn yaml(text: &str) -> Result<Value, ReadError> {
    let read = serde_saphyr::from_str_with_options(text, options(text.len()));
    read.map(|Unambiguous(value)| value).map_err(|error| {
        let line = error.location().and_then(|at| usize::try_from(at.line()).ok());
        (line.unwrap_or(1), explain(error.without_snippet()))
    })
}

/// A document may be as long as it likes. A few lines may not stand for any number of values.
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
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("key {key:?} is there twice"),
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            format!("it is nested deeper than {DEEPEST} levels")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "its aliases stand for too much: write some of it out".into()
        }
        Error::AliasError { error, .. } => explain(error),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}

#[cfg(test)]
mod tests;
