//! The parts of an object under review, read without its other fields.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use serde_path_to_error::{Path, Segment};
use tenure_types::{
    runai::{QueueVersion, conversion::convert, v2},
    text::BorrowedText,
};

use super::{LARGEST_VALUE, OBJECT};
use crate::field::FieldError;

/// The parts of a custom resource that a review needs.
#[derive(Deserialize)]
pub(crate) struct Resource<'b> {
    #[serde(default)]
    pub metadata: Metadata,
    /// The spec as raw JSON. None: it is absent. A null is `Some`.
    #[serde(borrow, default, deserialize_with = "present")]
    pub spec: Option<&'b RawValue>,
}

/// Reads a field so that null differs from an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

/// The parts of metadata that a review needs; empty where absent.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub name: String,
    pub namespace: String,
    /// The annotations whose keys begin with one of `READ`.
    #[serde(deserialize_with = "known_annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// The beginnings of the keys that Tenure reads. Other annotations can be much longer than all the
/// rest.
const READ: [&str; 2] = ["tenure.dev/", "preemption-toleration.scheduling."];

/// Reads the annotations that Tenure needs, and skips the others without storing them.
fn known_annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    struct AnnotationsVisitor;

    impl<'de> Visitor<'de> for AnnotationsVisitor {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_map(self)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut known = BTreeMap::new();
            while let Some(BorrowedText(key)) = map.next_key()? {
                if READ.iter().any(|prefix| key.starts_with(prefix)) {
                    known.insert(key.into_owned(), map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(known)
        }
    }

    deserializer.deserialize_option(AnnotationsVisitor)
}

#[derive(Deserialize)]
pub(super) struct PriorityClass {
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default)]
    pub value: i32,
}

/// Reads metadata and spec of a custom resource. A missing spec is the default. An error names the
/// field.
pub(super) fn resource<S: DeserializeOwned + Default>(
    object: &RawValue,
) -> Result<(Metadata, S), FieldError> {
    let Resource { metadata, spec } = decode(OBJECT, object)?;
    let spec = spec.map(|spec| decode("spec", spec)).transpose()?;
    Ok((metadata, spec.unwrap_or_default()))
}

/// Returns the spec of a v3alpha1 queue as clients of v2 will see it. None: the object can't be
/// converted.
pub(super) fn in_v2(object: &RawValue) -> Option<v2::QueueSpec> {
    let object = to_raw_value(&convert(object, QueueVersion::V2).ok()?).ok()?;
    resource(&object).ok().map(|(_, spec)| spec)
}

/// Returns the parts of an object that can be a reason to refuse it: its spec, and the annotations
/// with these keys. None: the object can't be read, or its spec is too large.
pub(super) fn reasons(object: &RawValue, keys: &[&str]) -> Option<(Value, Vec<Option<String>>)> {
    let Resource { metadata, spec } = serde_json::from_str(object.get()).ok()?;
    let annotations = keys.iter().map(|key| metadata.annotations.get(*key).cloned()).collect();
    Some((spec.map_or(Some(Value::Null), value)?, annotations))
}

/// Decodes the object at the path `root`. The error names the field and its value.
pub(super) fn decode<'b, T: Deserialize<'b>>(root: &str, raw: &'b RawValue) -> Result<T, FieldError> {
    // serde would read an array as well, field by field
    if !raw.get().starts_with('{') {
        return Err(FieldError::invalid_json(root, raw.get(), "must be an object"));
    }
    // to follow the path costs more than to decode
    if let Ok(decoded) = serde_json::from_str(raw.get()) {
        return Ok(decoded);
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

/// Reads JSON as a tree of values. None for values too large or too deep to parse.
pub(crate) fn value(raw: &RawValue) -> Option<Value> {
    (raw.get().len() <= LARGEST_VALUE).then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

/// Returns the value at a path in an object. None: there is none, or the object is too large.
fn value_at(raw: &RawValue, path: &Path) -> Option<Value> {
    let object = value(raw)?;
    let found = path.iter().try_fold(&object, |value, segment| match segment {
        Segment::Map { key } => value.get(key),
        Segment::Seq { index } => value.get(index),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    });
    found.cloned()
}
