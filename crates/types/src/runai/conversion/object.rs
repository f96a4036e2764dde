//! A Queue as JSON, of which only the maps are opened that conversion touches. Everything else
//! stays the text that was read, however large, and is written as it was.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{ConversionError, json::Json};
use crate::text::BorrowedText;

/// The maps of a Queue that are opened. Everything else stays text.
const QUEUE: OpenedMap = OpenedMap(&[
    ("metadata", OpenedMap(&[("annotations", OpenedMap(&[]))])),
    ("spec", OpenedMap(&[])),
    ("status", OpenedMap(&[])),
]);

/// The requirement on the fields that are opened.
const MUST_BE_A_MAP: &str = "must be a map";

/// A map to be opened, with those of its values that are maps to be opened too, by key.
#[derive(Clone, Copy)]
struct OpenedMap(&'static [(&'static str, Self)]);

/// A map, in the order in which it is written. Of a key that appears twice the last counts, as in
/// Go.
#[derive(Debug)]
pub(super) struct ObjectFields<'b>(Vec<(Cow<'b, str>, FieldValue<'b>)>);

/// A value in a map.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum FieldValue<'b> {
    /// A value as it was read.
    Raw(&'b RawValue),
    /// A map that was opened.
    Fields(ObjectFields<'b>),
    /// Null, in place of a map that could have been opened.
    Null,
    /// A value that conversion has written.
    New(Json),
}

impl<'b> ObjectFields<'b> {
    /// Returns the value at a key. Of a key that appears twice the last counts.
    pub(super) fn get(&self, key: &str) -> Option<&FieldValue<'b>> {
        self.0.iter().rfind(|(known, _)| known == key).map(|(_, node)| node)
    }

    /// Returns all keys and values, as they are written.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &FieldValue<'b>)> {
        self.0.iter().map(|(key, node)| (&**key, node))
    }

    /// Sets the value at a key, in the place of the old one or at the end.
    pub(super) fn set(&mut self, key: &'static str, node: FieldValue<'b>) {
        match self.0.iter_mut().rfind(|(known, _)| known == key) {
            Some((_, old)) => *old = node,
            None => self.0.push((key.into(), node)),
        }
    }

    /// Keeps the keys that `keep` is true for.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(key, _)| keep(key));
    }

    /// Returns the map at a key. Another value there, or none, is replaced by an empty map.
    pub(super) fn open(&mut self, key: &'static str) -> Option<&mut Self> {
        if !matches!(self.get(key), Some(FieldValue::Fields(_))) {
            self.set(key, FieldValue::Fields(Self(Vec::new())));
        }
        self.0.iter_mut().rfind(|(known, _)| known == key).and_then(|(_, node)| match node {
            FieldValue::Fields(fields) => Some(fields),
            _ => None,
        })
    }

    /// Returns the string at a key. None: the value is absent, or isn't a string.
    pub(super) fn text(&self, key: &str) -> Option<Cow<'b, str>> {
        match self.get(key) {
            Some(FieldValue::Raw(raw)) => {
                serde_json::from_str::<BorrowedText<'b>>(raw.get()).ok().map(|text| text.0)
            }
            _ => None,
        }
    }

    /// Returns the name of the Queue. Empty: it has none.
    fn name(&self) -> String {
        match self.get("metadata") {
            Some(FieldValue::Fields(metadata)) => metadata.text("name").unwrap_or_default().into_owned(),
            _ => String::new(),
        }
    }

    /// Creates the error for a bad field of this Queue.
    pub(super) fn invalid(&self, field: &str, must: &'static str) -> ConversionError {
        self.wrong(field, self.get(field), must)
    }

    /// Creates the error for a value of this Queue. None: the value is absent.
    fn wrong(&self, field: &str, node: Option<&FieldValue<'b>>, must: &'static str) -> ConversionError {
        let value = node.map_or("null", |node| match node {
            FieldValue::Raw(raw) => raw.get(),
            _ => "null",
        });
        ConversionError::field(&self.name(), field, value, must)
    }
}

/// Reads a Queue, of any version. Fails unless the object and its metadata are maps, `spec`,
/// `status` and annotations are maps or null, and each annotation is a string.
pub(super) fn read(object: &RawValue) -> Result<ObjectFields<'_>, ConversionError> {
    let mut text = serde_json::Deserializer::from_str(object.get());
    let queue = QUEUE.deserialize(&mut text).map_err(|error| diagnosis(object, error))?;
    let FieldValue::Fields(queue) = queue else { return Err(ConversionError::NotAMap) };
    let Some(FieldValue::Fields(metadata)) = queue.get("metadata") else {
        return Err(queue.invalid("metadata", MUST_BE_A_MAP));
    };
    if let Some(FieldValue::Fields(annotations)) = metadata.get("annotations") {
        for (key, node) in annotations.iter() {
            if !matches!(node, FieldValue::Raw(raw) if raw.get().starts_with('"')) {
                let field = format!("metadata.annotations[{key}]");
                return Err(queue.wrong(&field, Some(node), "must be a string"));
            }
        }
    }
    Ok(queue)
}

/// Returns the error of an object that can't be read: it names the field that should have been a
/// map.
fn diagnosis(object: &RawValue, error: serde_json::Error) -> ConversionError {
    let Some(fields) = map(object) else {
        return ConversionError::NotAMap;
    };
    let metadata = fields.get("metadata").and_then(|metadata| map(metadata)).unwrap_or_default();
    let name = metadata.get("name").and_then(|name| serde_json::from_str(name.get()).ok());
    let queue: String = name.unwrap_or_default();
    let opened = [
        ("metadata", fields.get("metadata")),
        ("metadata.annotations", metadata.get("annotations")),
        ("spec", fields.get("spec")),
        ("status", fields.get("status")),
    ];
    for (field, raw) in opened {
        if let Some(raw) = raw.filter(|raw| !raw.get().starts_with(['{', 'n'])) {
            return ConversionError::field(&queue, field, raw.get(), MUST_BE_A_MAP);
        }
    }
    ConversionError::json(&queue, error)
}

/// Reads a map. None: the value isn't one.
fn map(raw: &RawValue) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

/// A map, or null in its place.
impl<'de> DeserializeSeed<'de> for OpenedMap {
    type Value = FieldValue<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldValue<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OpenedMap {
    type Value = FieldValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map or null")
    }

    fn visit_unit<E>(self) -> Result<FieldValue<'de>, E> {
        Ok(FieldValue::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue<'de>, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some(BorrowedText(key)) = map.next_key()? {
            let node = match self.0.iter().find(|(known, _)| *known == key) {
                Some((_, opened)) => map.next_value_seed(*opened)?,
                None => FieldValue::Raw(map.next_value()?),
            };
            fields.push((key, node));
        }
        Ok(FieldValue::Fields(ObjectFields(fields)))
    }
}

impl Serialize for ObjectFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
