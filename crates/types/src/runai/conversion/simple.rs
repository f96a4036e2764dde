//! Conversion of each field, for all objects but contrived ones. See the table in the
//! [module](super)'s docs.
//!
//! Each function moves one kind of field between its places in the two versions. A field whose
//! value doesn't fit stays where it is. Where the way back would give another object,
//! `bijection.rs` carries the original.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::value::RawValue;

use super::{
    json::{Json, write_map},
    touched::{STATUS, TouchedMap, TouchedParts},
};
use crate::{
    ExtendedDuration, GoDuration,
    keys::QUEUE_STATUS_ANNOTATION,
    runai::{FLOOR_ANNOTATIONS, QueueVersion, SPEC_ANNOTATIONS, own::opens},
    text::BorrowedText,
};

/// Returns the simple image of an object in the other version.
pub(super) fn simple(here: &TouchedParts, to: QueueVersion) -> TouchedParts {
    let mut there = here.clone();
    match to {
        QueueVersion::V3alpha1 => to_v3alpha1(&mut there),
        QueueVersion::V2 => to_v2(&mut there),
    }
    there
}

/// Turns the touched parts of a v2 object into those of v3alpha1.
fn to_v3alpha1(queue: &mut TouchedParts) {
    let had_annotations = queue.annotations.keys().next().is_some();
    for (field, annotation) in SPEC_ANNOTATIONS {
        annotation_to_field(queue, field, annotation);
    }
    for (field, annotation) in FLOOR_ANNOTATIONS {
        floor_as_written(queue, field, annotation);
    }
    annotation_to_status(queue);
    if had_annotations && queue.annotations.is_empty_map() {
        queue.annotations = TouchedMap::Absent;
    }
}

/// Turns the touched parts of a v3alpha1 object into those of v2.
fn to_v2(queue: &mut TouchedParts) {
    for (field, annotation) in SPEC_ANNOTATIONS {
        field_to_annotation(queue, field, annotation);
    }
    for (field, annotation) in FLOOR_ANNOTATIONS {
        floor_in_go(queue, field, annotation);
    }
    status_to_annotation(queue);
}

/// Moves a field of the spec from its annotation. Text that isn't of the field's form stays an
/// annotation.
fn annotation_to_field(queue: &mut TouchedParts, field: &'static str, annotation: &str) {
    let Some(Json::Text(text)) = queue.annotations.get(annotation).cloned() else { return };
    let Some(opens) = opens(field) else {
        queue.spec.set(field, Json::Text(text));
        queue.annotations.remove(annotation);
        return;
    };
    if let Some(json) = Json::nested(&text, opens) {
        // JSON in another layout stays as an annotation, and counts as long as it means the same as
        // the field
        if json.to_json() == *text {
            queue.annotations.remove(annotation);
        }
        queue.spec.set(field, json);
    }
}

/// Moves a field of the spec to its annotation. JSON that the annotation has already keeps its
/// layout.
fn field_to_annotation(queue: &mut TouchedParts, field: &str, annotation: &'static str) {
    let text = match (queue.spec.get(field), opens(field)) {
        (Some(Json::Text(text)), None) => text.clone(),
        (Some(Json::Map(json) | Json::Other(json)), Some(opens)) if json.starts_with(opens) => {
            let is_same =
                |text: &&str| Json::nested(text, opens).is_some_and(|known| known.to_json() == **json);
            queue.annotations.text(annotation).filter(is_same).map_or_else(|| json.clone(), Arc::from)
        }
        _ => return,
    };
    queue.annotations.set(annotation, Json::Text(text));
    queue.spec.remove(field);
}

/// Gives a floor the text that its annotation holds.
fn floor_as_written(queue: &mut TouchedParts, field: &'static str, annotation: &str) {
    let Some(Json::Text(written)) = queue.annotations.get(annotation).cloned() else { return };
    // otherwise a client of v2 has changed the floor
    if queue.spec.text(field).is_some_and(|floor| in_go(&written).as_deref() == Some(floor)) {
        queue.spec.set(field, Json::Text(written));
        queue.annotations.remove(annotation);
    }
}

/// Writes a floor as Go does, and its text into the annotation.
fn floor_in_go(queue: &mut TouchedParts, field: &'static str, annotation: &'static str) {
    let Some(Json::Text(written)) = queue.spec.get(field).cloned() else { return };
    if let Some(floor) = in_go(&written) {
        queue.annotations.set(annotation, Json::Text(written));
        queue.spec.set(field, Json::Text(floor.into()));
    }
}

/// Returns a floor as Go prints it, if v3alpha1's grammar accepts it and Go's doesn't.
fn in_go(text: &str) -> Option<String> {
    if text.parse::<GoDuration>().is_ok() {
        return None;
    }
    text.parse::<ExtendedDuration>().ok().map(|duration| duration.to_go().to_string())
}

/// Moves the fields of the status from their annotation.
fn annotation_to_status(queue: &mut TouchedParts) {
    let Some(fields) = queue.annotations.text(QUEUE_STATUS_ANNOTATION).and_then(status_fields) else {
        return;
    };
    for (field, json) in fields {
        queue.status.set(field, json);
    }
    queue.annotations.remove(QUEUE_STATUS_ANNOTATION);
}

/// Moves the fields of the status to their annotation.
fn status_to_annotation(queue: &mut TouchedParts) {
    let fields = STATUS.into_iter().filter_map(|field| Some((field, queue.status.get(field)?.to_json())));
    let fields: Vec<_> = fields.collect();
    if fields.is_empty() {
        return;
    }
    let text = write_map(fields);
    queue.annotations.set(QUEUE_STATUS_ANNOTATION, Json::Text(text.into()));
    for field in STATUS {
        queue.status.remove(field);
    }
}

/// Returns the fields of the status that an annotation holds. None: it holds no fields, or anything
/// else.
fn status_fields(text: &str) -> Option<Vec<(&'static str, Json)>> {
    let fields: BTreeMap<BorrowedText<'_>, &RawValue> = serde_json::from_str(text).ok()?;
    let known = |key: &BorrowedText<'_>| STATUS.into_iter().find(|field| *field == key.0);
    let fields = fields.iter().map(|(key, raw)| Some((known(key)?, Json::read(raw))));
    fields.collect::<Option<Vec<_>>>().filter(|fields| !fields.is_empty())
}
