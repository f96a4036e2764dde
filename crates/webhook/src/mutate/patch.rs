//! Changes of objects, as JSON patches.

use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation,
    jsonptr::{Pointer, PointerBuf},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};

/// The change of an object.
#[derive(Debug)]
pub struct Mutation {
    /// The result in one word, for the metrics.
    pub result: &'static str,
    pub patch: Option<Patch>,
    pub warnings: Vec<String>,
}

impl Mutation {
    pub const fn admitted(warnings: Vec<String>) -> Self {
        Self { result: "admitted", patch: None, warnings }
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Option<IgnoredAny>,
}

/// Sets annotations of an object, and removes the ones without a value, which the object must have.
pub fn annotations<'a>(
    object: &RawValue,
    wanted: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> Patch {
    let map = PointerBuf::from_tokens(["metadata", "annotations"]);
    let object: Option<Object> = serde_json::from_str(object.get()).ok();
    if object.is_some_and(|object| object.metadata.annotations.is_some()) {
        return Patch(wanted.into_iter().map(|(key, value)| annotation(&map, key, value)).collect());
    }
    // nothing can be added to a map that doesn't exist
    let all = wanted.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let value: Value = all.collect();
    Patch(vec![PatchOperation::Add(AddOperation { path: map, value })])
}

/// Sets `spec.queue` of an object back, or removes it, which the object must then have.
pub fn queue(queue: Option<Value>, has_spec: bool) -> PatchOperation {
    let spec = PointerBuf::from_tokens(["spec"]);
    let path = spec.with_trailing_token("queue");
    match queue {
        Some(value) if has_spec => PatchOperation::Add(AddOperation { path, value }),
        Some(queue) => PatchOperation::Add(AddOperation { path: spec, value: json!({"queue": queue}) }),
        None => PatchOperation::Remove(RemoveOperation { path }),
    }
}

/// Sets `spec.requestedBy` of an object, which has a spec.
pub fn requested_by(user: &str) -> PatchOperation {
    let path = PointerBuf::from_tokens(["spec", "requestedBy"]);
    PatchOperation::Add(AddOperation { path, value: user.into() })
}

fn annotation(map: &Pointer, key: &str, value: Option<String>) -> PatchOperation {
    let path = map.with_trailing_token(key);
    match value {
        // an add also replaces
        Some(value) => PatchOperation::Add(AddOperation { path, value: value.into() }),
        None => PatchOperation::Remove(RemoveOperation { path }),
    }
}
