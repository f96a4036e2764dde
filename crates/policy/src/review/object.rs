//! The parts of an object under review, read without its other fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use serde_path_to_error::{Path, Segment};
use tenure_types::runai::{QueueVersion, conversion::convert, v2};

use super::{LARGEST_VALUE, OBJECT};
use crate::field::FieldError;

/// The parts of a custom resource that a review needs.
#[derive(Deserialize)]
pub(crate) struct Resource<'b> {
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(borrow, default, deserialize_with = "present")]
    pub spec: Option<&'b RawValue>,
}

/// Reads a field so that null differs from an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub name: String,
    pub namespace: String,
    pub annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
pub(super) struct PriorityClass {
    #[serde(default)]
    pub metadata: Annotated,
    #[serde(default)]
    pub value: i32,
}

#[derive(Default, Deserialize)]
pub(super) struct Annotated {
    pub annotations: Option<BTreeMap<String, String>>,
}

pub(super) fn resource<S: DeserializeOwned + Default>(
    object: &RawValue,
) -> Result<(Metadata, S), FieldError> {
    let Resource { metadata, spec } = decode(OBJECT, object)?;
    let spec = spec.map(|spec| decode("spec", spec)).transpose()?;
    Ok((metadata, spec.unwrap_or_default()))
}

/// A v3alpha1 queue as clients of v2 will see it.
pub(super) fn in_v2(object: &RawValue) -> Option<v2::QueueSpec> {
    let object = to_raw_value(&convert(object, QueueVersion::V2).ok()?).ok()?;
    resource(&object).ok().map(|(_, spec)| spec)
}

/// Returns the parts of an object that can be a reason to refuse it: its spec, and the annotations with these keys.
pub(super) fn reasons(object: &RawValue, keys: &[&str]) -> Option<(Value, Vec<Option<String>>)> {
    let Resource { metadata, spec } = serde_json::from_str(object.get()).ok()?;
    let annotations = metadata.annotations.unwrap_or_default();
    let annotations = keys.iter().map(|key| annotations.get(*key).cloned()).collect();
    Some((spec.map_or(Some(Value::Null), value)?, annotations))
}

/// Decodes the object at `root`, and names the field if it doesn't.
pub(super) fn decode<'b, T: Deserialize<'b>>(root: &str, raw: &'b RawValue) -> Result<T, FieldError> {
    // serde would read an array as well, field by field
    if !raw.get().starts_with('{') {
        return Err(FieldError::invalid_json(root, raw.get(), "must be an object"));
    }
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => root.into(),
            path if root == OBJECT => path,
            path => format!("{root}.{path}"),
        };
        let value = value_at(raw, error.path());
        let text = error.into_inner().to_string();
        let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
        match value {
            Some(value) => FieldError::invalid(field, value, detail),
            None => FieldError::invalid_json(field, raw.get(), detail),
        }
    })
}

/// None if it can't be told, being nested too deep or so large that looking would cost more than it tells.
pub(crate) fn value(raw: &RawValue) -> Option<Value> {
    (raw.get().len() <= LARGEST_VALUE).then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

fn value_at(raw: &RawValue, path: &Path) -> Option<Value> {
    let object = value(raw)?;
    let found = path.iter().try_fold(&object, |value, segment| match segment {
        Segment::Map { key } => value.get(key),
        Segment::Seq { index } => value.get(index),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    });
    found.cloned()
}
