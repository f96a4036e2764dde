//! JSON values that conversion compares and writes, in canonical form.
//!
//! Equal values have equal texts, so that `bijection.rs` can tell if an object comes back
//! unchanged.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::{Serialize, Serializer, ser::Error};
use serde_json::{Value, value::RawValue};

use crate::text::BorrowedText;

/// The deepest nesting that is read: more than a Queue has. Canonical form takes one more reading
/// for each level.
const DEEPEST: usize = 16;

/// A value in canonical form: no white space, keys in order, numbers as they are written. So two
/// values are equal when their texts are. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Json {
    /// A string, without quotes.
    Text(Arc<str>),
    /// The text of a map.
    Map(Arc<str>),
    /// The text of any other value, and of those without a canonical form: half a surrogate pair,
    /// or nested too deep.
    Other(Arc<str>),
}

impl Json {
    /// Reads a value, and brings it into canonical form if it has one.
    pub(super) fn read(raw: &RawValue) -> Self {
        let text = raw.get();
        if text.starts_with('"') {
            let decoded = serde_json::from_str::<BorrowedText<'_>>(text);
            return decoded
                .map_or_else(|_| Self::Other(text.into()), |BorrowedText(text)| Self::Text(text.into()));
        }
        match canonical(text, DEEPEST) {
            Some(canonical) if canonical.starts_with('{') => Self::Map(canonical.into()),
            Some(canonical) => Self::Other(canonical.into()),
            None => Self::Other(text.into()),
        }
    }

    /// Reads a map or a list from the text of an annotation; its JSON begins with `opens`. None: the
    /// text isn't such JSON.
    pub(super) fn nested(text: &str, opens: char) -> Option<Self> {
        let raw = serde_json::from_str::<&RawValue>(text).ok()?;
        Some(Self::read(raw)).filter(|json| json.to_json().starts_with(opens))
    }

    /// Returns the value as JSON.
    pub(super) fn to_json(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => quoted(text).into(),
            Self::Map(json) | Self::Other(json) => Cow::Borrowed(json),
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Map(json) | Self::Other(json) => {
                serde_json::from_str::<&RawValue>(json).map_err(S::Error::custom)?.serialize(serializer)
            }
        }
    }
}

/// Returns a string as JSON, with quotes.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Writes a map of values that are JSON already.
pub(super) fn write_map<'f>(fields: impl IntoIterator<Item = (&'f str, Cow<'f, str>)>) -> String {
    let fields: Vec<String> =
        fields.into_iter().map(|(key, value)| format!("{}:{value}", quoted(key))).collect();
    format!("{{{}}}", fields.join(","))
}

/// Returns the canonical form of a JSON text. None: it is nested deeper than `levels`, or can't be
/// decoded.
fn canonical(text: &str, levels: usize) -> Option<String> {
    let deeper = |raw: &RawValue| canonical(raw.get(), levels.checked_sub(1)?);
    Some(match text.as_bytes().first()? {
        b'{' => {
            let fields: BTreeMap<BorrowedText<'_>, &RawValue> = serde_json::from_str(text).ok()?;
            let fields = fields.iter().map(|(key, raw)| Some((&*key.0, deeper(raw)?.into())));
            write_map(fields.collect::<Option<Vec<_>>>()?)
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let items: Option<Vec<String>> = items.into_iter().map(deeper).collect();
            format!("[{}]", items?.join(","))
        }
        b'"' => quoted(&serde_json::from_str::<BorrowedText<'_>>(text).ok()?.0),
        _ => text.to_owned(),
    })
}
