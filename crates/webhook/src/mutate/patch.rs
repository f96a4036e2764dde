//! Changes of objects, as JSON patches. The functions return operations for `mutate.rs` and
//! `pod_group.rs`, which know the object that the operations are valid for.

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, jsonptr::PointerBuf};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};

/// The change of an object.
#[derive(Debug)]
pub struct Mutation {
    /// The result in one word, for the metrics.
    pub result: &'static str,
    /// The change. None: the object stays as it is.
    pub patch: Option<Patch>,
    pub warnings: Vec<String>,
}

impl Mutation {
    /// Admits the object as it is.
    pub const fn admitted(warnings: Vec<String>) -> Self {
        Self { result: "Admitted", patch: None, warnings }
    }
}

#[derive(Deserialize)]
struct PatchedObject {
    metadata: PatchedMetadata,
}

#[derive(Deserialize)]
struct PatchedMetadata {
    annotations: Option<IgnoredAny>,
}

/// Returns the patch that sets annotations, and removes those without a value, which the object
/// must have.
pub fn annotations(
    object: &RawValue,
    wanted: impl IntoIterator<Item = (impl Into<String>, Option<String>)>,
) -> Patch {
    let wanted = wanted.into_iter().map(|(key, value)| (key.into(), value.map(Value::String)));
    let object: Option<PatchedObject> = serde_json::from_str(object.get()).ok();
    if object.is_some_and(|object| object.metadata.annotations.is_some()) {
        let annotation = |(key, value): (String, _)| change(&["metadata", "annotations", &key], value);
        return Patch(wanted.map(annotation).collect());
    }
    // nothing can be added to a map that doesn't exist
    let all: Value = wanted.filter_map(|(key, value)| Some((key, value?))).collect();
    Patch(vec![change(&["metadata", "annotations"], Some(all))])
}

/// Returns the operation that sets `spec.queue`. None: removes the field, which the object must
/// then have.
pub fn queue(queue: Option<Value>, has_spec: bool) -> PatchOperation {
    match queue {
        Some(queue) if !has_spec => change(&["spec"], Some(json!({"queue": queue}))),
        queue => change(&["spec", "queue"], queue),
    }
}

/// Returns the operation that sets `spec.requestedBy`. The object must have a spec.
pub fn requested_by(user: &str) -> PatchOperation {
    change(&["spec", "requestedBy"], Some(user.into()))
}

/// Returns the operation that adds or replaces a value. None: removes the value.
fn change(path: &[&str], value: Option<Value>) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().copied());
    match value {
        Some(value) => PatchOperation::Add(AddOperation { path, value }),
        None => PatchOperation::Remove(RemoveOperation { path }),
    }
}
