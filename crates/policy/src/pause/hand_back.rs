//! Hands the fields that a pause has set back to the field managers that had them before.
//!
//! `metadata.managedFields` is a claim: every user who may update an object may write it. So are
//! the managers that a record or an annotation names. They decide which client meets a conflict at
//! its next server-side apply, and nothing else.
//!
//! A resume sets fields and notes the managers; a second write, by the keeper or the plugin, hands
//! the fields back.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use tenure_types::{
    keys,
    paused::{FieldManager, HandBack, PausedRecord},
};

use super::{
    OwnerObject, is_ours,
    owner::{annotation_on, read},
    preconditioned,
    reversal::{LONGEST_MANAGER, manager, managers_of},
};
use crate::owner_table::keys_of;

/// The field manager of the keeper's writes.
pub const KEEPER_MANAGER: &str = "tenure-keeper";

/// The field manager of the plugin's writes.
pub const PLUGIN_MANAGER: &str = "kubectl-tenure";

/// The field manager of a write that hands fields back. Such a write changes no value, so it
/// manages nothing: the name identifies the write in the audit log of the API server.
pub const HAND_BACK_MANAGER: &str = "tenure-hand-back";

/// The field manager of a write that shows the end of a run without an event: the name identifies
/// the write in the audit log of the API server.
pub const SHOWN_END_MANAGER: &str = "tenure-shown-end";

/// The most managers of one field that a record notes.
const MOST_MANAGERS: usize = 8;

/// The longest name of a subresource that the API server accepts.
const LONGEST_SUBRESOURCE: usize = 256;

/// The managers of each field, by its path.
type Managers = BTreeMap<String, Vec<FieldManager>>;

/// Returns the managers of fields that are about to be set. If Tenure still manages a field, the
/// managers noted by an earlier pause are added.
///
/// Tenure itself isn't among them, nor a manager that the API server would refuse. At most
/// `MOST_MANAGERS` of a field.
pub(super) fn managers_before<'f>(owner: OwnerObject<'_>, fields: impl Iterator<Item = &'f str>) -> Managers {
    let (record, owed) = (owner.last_record(), owed(owner));
    let noted = |field: &str| {
        let of_record = record.as_ref().and_then(|record| record.managers.get(field));
        let noted = of_record.or_else(|| owed.as_ref()?.fields.get(field));
        noted.cloned().unwrap_or_default()
    };
    let before = |field: &str| {
        let managers = managers_of(owner, field).into_iter().map(timeless);
        let (own, mut managers): (Vec<_>, Vec<_>) = managers.partition(is_own);
        if !own.is_empty() {
            managers.extend(noted(field));
        }
        managers.retain(can_manage);
        managers.truncate(MOST_MANAGERS);
        managers
    };
    fields.map(|field| (field.to_owned(), before(field))).collect()
}

/// Returns a manager without the time of its write, by which entries are compared.
fn timeless(manager: FieldManager) -> FieldManager {
    FieldManager { time: None, ..manager }
}

fn is_own(manager: &FieldManager) -> bool {
    [KEEPER_MANAGER, PLUGIN_MANAGER].contains(&manager.manager.as_str())
}

/// False for Tenure itself, and for a manager that the API server would refuse.
fn can_manage(of: &FieldManager) -> bool {
    let is_printable = |c: char| c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric();
    let is_name =
        |text: &str, longest| !text.is_empty() && text.len() <= longest && text.chars().all(is_printable);
    !is_own(of)
        && is_name(&of.manager, LONGEST_MANAGER)
        && ["Apply", "Update"].contains(&of.operation.as_str())
        && of.subresource.as_deref().is_none_or(|of| is_name(of, LONGEST_SUBRESOURCE))
}

/// Returns the note of the fields to hand back: those that this patch sets back, and those of an
/// earlier patch. None: the note stays as it is.
pub(super) fn with(
    owner: OwnerObject<'_>,
    record: &PausedRecord,
    fields: &[(String, Value)],
) -> Option<Value> {
    let uid = owner.at("metadata.uid").as_str().filter(|_| !fields.is_empty())?.to_owned();
    let mut all = owed(owner).map(|owed| owed.fields).unwrap_or_default();
    let managers = |field: &String| record.managers.get(field).cloned().unwrap_or_default();
    all.extend(fields.iter().map(|(field, _)| (field.clone(), managers(field))));
    Some(json!(HandBack { uid, fields: all }).to_string().into())
}

/// Returns the note without the fields that a pause sets again: its record has their managers. Null
/// removes the note. None: the note stays as it is.
pub(super) fn without(owner: OwnerObject<'_>, set: &Managers) -> Option<Value> {
    let mut left = owed(owner)?;
    left.fields.retain(|field, _| !set.contains_key(field));
    Some(if left.fields.is_empty() { Value::Null } else { json!(left).to_string().into() })
}

/// Returns the object's own note of fields to hand back. None: there is none that can be read.
fn owed(owner: OwnerObject<'_>) -> Option<HandBack> {
    own(owner.annotation(keys::HAND_BACK_ANNOTATION)?, owner.at("metadata.uid").as_str())
}

/// True if fields of an object are to be handed back. The index asks this of every owner that a
/// watch reports.
pub fn is_owed(metadata: &ObjectMeta) -> bool {
    let note = annotation_on(metadata, keys::HAND_BACK_ANNOTATION);
    note.is_some_and(|note| own(note, metadata.uid.as_deref()).is_some())
}

/// Reads a note. None: it can't be read, or its uid is another object's. Controllers copy
/// annotations to the objects that they make.
fn own(note: &str, uid: Option<&str>) -> Option<HandBack> {
    read(note).filter(|owed: &HandBack| Some(owed.uid.as_str()) == uid)
}

/// Returns the merge patch that hands fields back and removes the note. None: no field is to be
/// handed back.
///
/// The patch changes no value: only then does the API server take `managedFields` as they are
/// written. A field that Tenure no longer manages stays with the manager that has set it since. A
/// field that is paused or held again is skipped.
pub fn hand_back(owner: OwnerObject<'_>) -> Option<Value> {
    let owed = owed(owner)?;
    let record = owner.record();
    let is_set = |field: &str| {
        let is_of = |record: &PausedRecord| {
            record.field == field && is_ours(owner, record)
                || record.held.iter().any(|held| held.field == field)
        };
        record.as_ref().is_some_and(is_of)
    };
    let before = owner.at("metadata.managedFields").as_array();
    let mut entries = before.cloned().unwrap_or_default();
    for (field, managers) in owed.fields.iter().filter(|(field, _)| !is_set(field)) {
        move_field(&mut entries, field, managers);
    }
    let mut metadata = preconditioned(owner, &json!({keys::HAND_BACK_ANNOTATION: null}));
    if before != Some(&entries)
        && before.is_some()
        && let Some(metadata) = metadata.as_object_mut()
    {
        // the API server takes an empty list for that of a client that doesn't know the field
        let entries = if entries.is_empty() { vec![json!({})] } else { entries };
        metadata.insert("managedFields".into(), entries.into());
    }
    Some(json!({"metadata": metadata}))
}

/// Moves a field from the entries of Tenure to those of `managers`. Drops entries of Tenure that
/// have no field left.
fn move_field(entries: &mut Vec<Value>, field: &str, managers: &[FieldManager]) {
    let path: Vec<&str> = keys_of(field).collect();
    let is_ours = |entry: &Value| {
        manager(entry).is_some_and(|of| is_own(&of) && of.operation == "Update" && of.subresource.is_none())
    };
    let mut cut = None;
    for entry in entries.iter_mut().filter(|entry| is_ours(entry)) {
        let depth = entry.get_mut("fieldsV1").and_then(|fields| remove(fields, &path));
        cut = cut.or_else(|| Some((path.get(..depth?)?, entry.clone())));
    }
    let Some((path, from)) = cut else { return };
    for manager in managers.iter().filter(|manager| can_manage(manager)).take(MOST_MANAGERS) {
        give(entries, path, &timeless(manager.clone()), &from);
    }
    entries.retain(|entry| !(is_ours(entry) && is_bare(&entry["fieldsV1"])));
}

/// Removes a field from a set of fields, or a parent that is managed as a whole. Returns the number
/// of steps to the removed entry. None: the set has neither.
fn remove(fields: &mut Value, path: &[&str]) -> Option<usize> {
    let (key, below) = path.split_first()?;
    let (fields, key) = (fields.as_object_mut()?, format!("f:{key}"));
    let inner = fields.get_mut(&key)?;
    let is_leaf = inner.as_object().is_some_and(Map::is_empty);
    let depth = if is_leaf { 0 } else { remove(inner, below)? };
    if is_bare(inner) {
        fields.remove(&key);
    }
    Some(depth.saturating_add(1))
}

/// True for a set without fields. The key `.` stands for the value that has the fields.
fn is_bare(fields: &Value) -> bool {
    fields.as_object().is_some_and(|fields| fields.keys().all(|key| key == "."))
}

/// Adds a field to the entry of a manager. An entry that no longer exists is created again, with
/// the version of `from`, the entry that had the field.
fn give(entries: &mut Vec<Value>, path: &[&str], to: &FieldManager, from: &Value) {
    let is_theirs = |entry: &&mut Value| {
        let is_same = manager(entry).is_some_and(|of| timeless(of) == *to);
        // an apply has one entry for all versions
        is_same && (to.operation == "Apply" || entry["apiVersion"] == from["apiVersion"])
    };
    if let Some(fields) = entries.iter_mut().find(is_theirs).and_then(|entry| entry.get_mut("fieldsV1")) {
        return insert(fields, path);
    }
    let mut fields = json!({});
    insert(&mut fields, path);
    let mut entry = json!({
        "manager": to.manager, "operation": to.operation, "apiVersion": from["apiVersion"],
        "time": from["time"], "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    if let (Some(subresource), Some(entry)) = (&to.subresource, entry.as_object_mut()) {
        entry.insert("subresource".into(), subresource.as_str().into());
    }
    entries.push(entry);
}

fn insert(fields: &mut Value, path: &[&str]) {
    let (Some((key, below)), Some(fields)) = (path.split_first(), fields.as_object_mut()) else { return };
    let inner = fields.entry(format!("f:{key}"));
    let inner = inner.and_modify(|inner| keep_whole(inner, below)).or_insert_with(|| json!({}));
    insert(inner, below);
}

/// Marks a set as standing for a whole value before a part is added: an empty set stands for that
/// without a mark.
fn keep_whole(fields: &mut Value, below: &[&str]) {
    if let Some(fields) = fields.as_object_mut().filter(|fields| fields.is_empty() && !below.is_empty()) {
        fields.insert(".".into(), json!({}));
    }
}

#[cfg(test)]
mod tests;
