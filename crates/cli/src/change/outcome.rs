//! What is written to a workload, and what is said of it.

use std::fmt;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tenure_policy::pause::{self, Owner};
use tenure_types::paused::PausedRecord;

use super::{Subject, shown};

/// Says what was done by what the object then is.
type Told = dyn Fn(&Value) -> Result<String> + Send + Sync;

/// What is to be written.
pub struct Change {
    pub patch: Value,
    /// Patches that are tried one after the other where the API server doesn't know a field of the first.
    pub otherwise: Vec<Value>,
    told: Box<Told>,
    pub note: Option<String>,
}

impl Change {
    /// A merge patch, and what was done by what the object then is.
    pub fn new(patch: Value, told: impl Fn(&Value) -> Result<String> + Send + Sync + 'static) -> Self {
        Self { patch, otherwise: Vec::new(), told: Box::new(told), note: None }
    }

    /// The same with what else is worth knowing when it was done.
    pub fn noting(self, note: impl Into<Option<String>>) -> Self {
        Self { note: note.into(), ..self }
    }

    pub fn told(&self, now: &Value) -> Result<String> {
        (self.told)(now)
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("patch", &self.patch).finish_non_exhaustive()
    }
}

impl Subject<'_> {
    /// A patch of annotations alone. With uid and resourceVersion it can't hit a namesake, nor undo what somebody has
    /// changed since.
    pub fn annotate(self, annotations: &Value) -> Value {
        let (uid, version) = (self.found.at("metadata.uid"), self.found.at("metadata.resourceVersion"));
        json!({"metadata": {"uid": uid, "resourceVersion": version, "annotations": annotations}})
    }

    /// Takes back the pause that has this record. `word` is what the workload then is: `resumed`.
    pub fn resumption(self, record: PausedRecord, word: &'static str, note: Option<String>) -> Change {
        let Self { object, found, .. } = self;
        // else only the record goes
        let restores = pause::is_ours(found, &record);
        let ceiling = || format!("New pods of {object} get a full ceiling of queue {}.", record.queue);
        let ceiling = (!record.queue.is_empty()).then(ceiling);
        let notes: Vec<String> = ceiling.into_iter().chain(note).filter(|_| restores).collect();
        let (patch, name) = (pause::resume(found, &record), object.to_string());
        let told = move |now: &Value| {
            let field = &record.field;
            let value = Owner(now).at(field);
            let shown = shown(value);
            if !restores {
                return Ok(format!(
                    "{word} ({field}: {shown}, which somebody has set since; only the record of the pause was removed)"
                ));
            }
            if *value == record.value && *value != record.previous_value {
                bail!(
                    "{name}: the record is gone, but {field} is {shown} still: something on the server keeps it so"
                );
            }
            Ok(format!("{word} ({field}: {shown})"))
        };
        Change::new(patch, told).noting((!notes.is_empty()).then(|| notes.join("\n")))
    }
}
