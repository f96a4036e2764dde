//! What Tenure has noted on an object that it has paused.

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_policy::{
    owners::{OwnerTable, PauseRule},
    pause::{Owner, Return},
};
use tenure_types::{keys::PAUSED_ANNOTATION, paused::PausedRecord, projection};

use super::{Object, shown};
use crate::table::printable;

/// The record of a pause that may be taken back. `fields` may be restored beside those of the table: whoever may write
/// annotations could else have somebody with more rights set any field for them.
pub fn paused(
    object: Object<'_>,
    found: &Value,
    table: &OwnerTable,
    fields: &[String],
    verb: &str,
) -> Result<PausedRecord> {
    let reference = object.kind.reference(object.name);
    let Some(text) = record_text(found) else {
        let other = table.rules(&reference).find(|rule| Owner(found).is_paused(rule));
        let other = other.map_or_else(String::new, |rule| {
            format!(", though its {} is {}, which somebody else has set", rule.field, shown(&rule.value))
        });
        bail!("{object} was not paused by Tenure: it has no annotation {PAUSED_ANNOTATION}{other}");
    };
    not_copied(object, found, table, verb)?;
    let rules: Vec<&PauseRule> = table.rules(&reference).collect();
    let Some(record) = Owner(found).record() else {
        bail!(
            "{object}: annotation {PAUSED_ANNOTATION} can't be read: {}\nTo resume by hand: {}",
            printable(text.as_str().unwrap_or_default()),
            object.by_hand(&by_hand(found, &rules))
        );
    };
    if !fields.contains(&record.field) && !rules.iter().any(|rule| rule.field == record.field) {
        bail!(
            "{object}: annotation {PAUSED_ANNOTATION} names {0}, which Tenure doesn't set for this kind: kubectl tenure resume takes --field {0}, if your keeper is configured to set it, and {1} is what it should be set back to",
            printable(&record.field),
            shown(&record.previous_value)
        );
    }
    Ok(record)
}

/// The record of a pause, be it one that can't be read.
pub fn record_text(found: &Value) -> Option<&Value> {
    found.pointer("/metadata/annotations")?.get(PAUSED_ANNOTATION)
}

/// Refuses an object whose controller is what Tenure pauses: a Deployment's annotations live on in its `ReplicaSet`s.
pub fn not_copied(object: Object<'_>, found: &Value, table: &OwnerTable, verb: &str) -> Result<()> {
    let metadata = metadata(found);
    let above = projection::controller(&metadata).filter(|above| table.knows(above));
    let Some(above) = above else { return Ok(()) };
    let (kind, name) = (above.kind.to_lowercase(), printable(&above.name));
    bail!("{object} is controlled by {kind}/{name}, which is what Tenure pauses: {verb} that")
}

/// Whether and when an object comes back by itself that has this record.
pub fn returns(found: &Value, record: &PausedRecord) -> Return {
    Return::of(record, &metadata(found))
}

/// What is told of a wait that ends early.
pub fn keeps_count(object: Object<'_>, found: &Value, at: Timestamp) -> String {
    let count = Owner(found).requeue_state().count;
    format!("{object} would have come back by itself at {at}. It keeps its count of returns, {count}.")
}

fn metadata(found: &Value) -> ObjectMeta {
    found.get("metadata").and_then(|metadata| ObjectMeta::deserialize(metadata).ok()).unwrap_or_default()
}

/// A patch that takes the annotation away and sets back the field that looks paused, to the likeliest value.
fn by_hand(found: &Value, rules: &[&PauseRule]) -> Value {
    let mut patch = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: null}}});
    if let Some(rule) = rules.iter().find(|rule| Owner(found).is_paused(rule)) {
        let running = match &rule.value {
            Value::Bool(paused) => json!(!paused),
            Value::Number(_) => json!(1),
            _ => Value::Null,
        };
        let keys = rule.field.rsplit('.');
        let spec = keys.fold(running, |inner, key| json!({key: inner}));
        if let (Value::Object(patch), Value::Object(spec)) = (&mut patch, spec) {
            patch.extend(spec);
        }
    }
    patch
}
