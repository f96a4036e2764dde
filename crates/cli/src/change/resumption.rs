//! A pause that is taken back.

use anyhow::{Result, bail};
use serde_json::Value;
use tenure_policy::{
    owners::PauseRule,
    pause::{self, Owner},
};
use tenure_types::paused::PausedRecord;

use super::{Change, Object, shown};

/// What is to be written.
#[derive(Debug)]
pub struct Resumption {
    /// What the workload then is: `resumed`.
    word: &'static str,
    record: PausedRecord,
    patch: Value,
    /// Whether the field is set back; else only the record goes.
    restores: bool,
    note: Option<String>,
}

impl Resumption {
    /// Of an object that has this record.
    pub fn of(found: &Value, record: PausedRecord, word: &'static str) -> Self {
        let restores = pause::is_ours(Owner(found), &record);
        let patch = pause::resume(Owner(found), &record);
        Self { word, record, patch, restores, note: None }
    }

    /// The same with something to know if the workload goes on by it.
    pub fn noting(self, note: Option<String>) -> Self {
        Self { note: note.filter(|_| self.restores), ..self }
    }
}

impl Change for Resumption {
    fn patch(&self) -> &Value {
        &self.patch
    }

    fn told(&self, object: Object<'_>, now: &Value) -> Result<String> {
        let Self { word, record, .. } = self;
        let field = &record.field;
        let value = Owner(now).field(&rule_of(record));
        let shown = shown(value);
        if !self.restores {
            return Ok(format!(
                "{word} ({field}: {shown}, which somebody has set since; only the record of the pause was removed)"
            ));
        }
        if *value == record.value && *value != record.previous_value {
            bail!(
                "{object}: the record is gone, but {field} is {shown} still: something on the server keeps it so"
            );
        }
        Ok(format!("{word} ({field}: {shown})"))
    }

    fn note(&self, object: Object<'_>) -> Option<String> {
        let queue = Some(self.record.queue.as_str()).filter(|queue| self.restores && !queue.is_empty());
        let ceiling = queue.map(|queue| format!("New pods of {object} get a full ceiling of queue {queue}."));
        let notes: Vec<String> = ceiling.into_iter().chain(self.note.clone()).collect();
        (!notes.is_empty()).then(|| notes.join("\n"))
    }
}

/// The field of a record, as the policy asks for it.
fn rule_of(record: &PausedRecord) -> PauseRule {
    PauseRule {
        group: String::new(),
        kind: String::new(),
        field: record.field.clone(),
        value: record.value.clone(),
    }
}
