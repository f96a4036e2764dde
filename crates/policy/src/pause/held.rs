//! Fields that a pause holds at another value, so that the pause destroys nothing that a resume
//! needs.
//!
//! [`record`](super::record) notes them in the record of the pause. The resume sets back those that
//! still hold the value of the pause.

use serde_json::{Map, Value};
use tenure_types::paused::{HeldField, PausedRecord};

use super::{nested, owner::OwnerObject};
use crate::naming::group_of;

/// Group, kind, path of the field, the value with which a pause would destroy something, and the
/// value during the pause.
type HeldRow = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// A StatefulSet with this value deletes the `PersistentVolumeClaim`s of its pods when it is scaled
/// to 0.
const ROWS: [HeldRow; 1] =
    [("apps", "StatefulSet", "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Delete", "Retain")];

fn rows_of(group: &str, kind: &str) -> impl Iterator<Item = HeldRow> {
    ROWS.into_iter().filter(move |(of_group, of_kind, ..)| (*of_group, *of_kind) == (group, kind))
}

fn rows(owner: OwnerObject<'_>) -> impl Iterator<Item = HeldRow> {
    let text = |path| owner.at(path).as_str().unwrap_or_default();
    rows_of(group_of(text("apiVersion")), text("kind"))
}

/// Returns the paths of the fields that a pause of this kind may hold. `make docs` lists them in
/// the chart's `files/owners.yaml`.
pub fn held_fields(group: &str, kind: &str) -> impl Iterator<Item = &'static str> {
    rows_of(group, kind).map(|(_, _, field, ..)| field)
}

fn of_row((_, _, field, harmful, safe): HeldRow) -> HeldField {
    HeldField { field: field.into(), value: safe.into(), previous_value: harmful.into() }
}

/// Returns the fields that a pause of an owner holds, including those that an earlier pause still
/// holds.
pub(super) fn to_hold(owner: OwnerObject<'_>) -> Vec<HeldField> {
    let still = owner.record().map(|record| to_restore(owner, &record)).unwrap_or_default();
    let harmful = rows(owner).filter(|(_, _, field, harmful, _)| owner.at(field) == harmful);
    harmful.map(of_row).chain(still).collect()
}

/// Returns the fields to set back: those in the record that still hold the value of the pause. A
/// field that has no row here is ignored, since users may write records.
pub(super) fn to_restore(owner: OwnerObject<'_>, record: &PausedRecord) -> Vec<HeldField> {
    let rows = rows(owner).filter(|(_, _, field, _, safe)| owner.at(field) == safe);
    rows.map(of_row).filter(|held| record.held.contains(held)).collect()
}

/// Adds fields, given by path, to a merge patch.
pub(super) fn set(
    mut patch: Map<String, Value>,
    fields: impl IntoIterator<Item = (String, Value)>,
) -> Map<String, Value> {
    for (field, value) in fields {
        merge(&mut patch, nested(&field, value));
    }
    patch
}

/// Merges one JSON object into another. Where both have a value that isn't an object, the value of
/// `from` wins.
pub(super) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (_, value) => _ = into.insert(key, value),
        }
    }
}

#[cfg(test)]
mod tests;
