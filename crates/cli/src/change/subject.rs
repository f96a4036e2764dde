//! The object of a change, Tenure's records on it, and the patch.

use std::fmt;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use tenure_policy::{
    kueue,
    owners::{OwnerTable, PauseRule},
    pause::{self, OwnerObject, Return},
};
use tenure_types::{keys::PAUSED_ANNOTATION, paused::PausedRecord};

use crate::{
    cluster::{Clock, ResourceKind},
    print::printable,
};

#[derive(Clone, Copy, Debug)]
pub struct ObjectName<'o> {
    pub kind: &'o ResourceKind,
    pub name: &'o str,
    /// The namespace of the object, if its kind is namespaced.
    pub namespace: &'o str,
}

impl ObjectName<'_> {
    pub fn namespaced(&self) -> Option<&str> {
        self.kind.namespaced.then_some(self.namespace)
    }

    /// Its namespace after other words; nothing if it has none.
    pub fn place(&self, before: &str) -> String {
        self.namespaced().map_or_else(String::new, |name| format!("{before}{name}"))
    }

    /// A command of this plugin that is about it.
    pub fn command(&self, verb: &str) -> String {
        format!("kubectl tenure {verb} {self}{}", self.place(" -n "))
    }
}

/// `deployment.apps/test`
impl fmt::Display for ObjectName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.singular(), self.name)
    }
}

/// Refuses to do something with an object if an owner above it is what Tenure pauses.
pub fn not_below(above: Option<&OwnerReference>, object: impl fmt::Display, verb: &str) -> Result<()> {
    let Some(above) = above else { return Ok(()) };
    let (kind, name) = (above.kind.to_lowercase(), printable(&above.name));
    bail!("{object} is controlled by {kind}/{name}, which is what Tenure pauses: {verb} that")
}

/// A value as YAML would show it.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "unset".into(),
        value => value.as_str().map_or_else(|| value.to_string(), printable),
    }
}

/// The state of a paused workload, for the commands that end it.
pub enum PauseState {
    /// It stays paused until it is activated.
    Deactivated,
    /// It comes back by itself at this time.
    Returns(Timestamp),
    /// It stays paused until it is resumed.
    Stays,
}

/// An object in its present state, and the other input of a decision about it.
#[derive(Clone, Copy, Debug)]
pub struct ChangeSubject<'o> {
    pub object: ObjectName<'o>,
    pub found: OwnerObject<'o>,
    pub metadata: &'o ObjectMeta,
    pub table: &'o OwnerTable,
    pub clock: Clock,
    pub verb: &'static str,
}

impl<'o> ChangeSubject<'o> {
    pub fn rules(self) -> Vec<&'o PauseRule> {
        self.table.rules(&self.object.kind.reference(self.object.name)).collect()
    }

    /// The rule by which it looks paused.
    pub fn paused_by(self) -> Option<&'o PauseRule> {
        self.rules().into_iter().find(|rule| self.found.is_paused(rule))
    }

    /// The record of a pause that may be taken back. Only fields of the table and `fields` may be restored: otherwise a
    /// user who may write annotations could have a user with more rights set any field.
    pub fn paused(self, fields: &[String]) -> Result<PausedRecord> {
        let Self { object, found, .. } = self;
        let Some(text) = self.record_text() else {
            let Some(PauseRule { field, .. }) = self.paused_by() else {
                bail!("{object} isn't paused: it has no annotation {PAUSED_ANNOTATION}");
            };
            bail!(
                "{object} was not paused by Tenure: it has no annotation {PAUSED_ANNOTATION}, though its {field} is {}: set by another user or controller",
                shown(found.at(field))
            );
        };
        self.not_copied()?;
        let Some(record) = found.record() else {
            bail!(
                "{object}: annotation {PAUSED_ANNOTATION} can't be read: {}\nTo resume by hand: {}",
                printable(text.as_str().unwrap_or_default()),
                self.resumption_by_hand()
            );
        };
        if !fields.contains(&record.field) && !self.rules().iter().any(|rule| rule.field == record.field) {
            let (field, before) = (printable(&record.field), shown(&record.previous_value));
            bail!(
                "{object}: annotation {PAUSED_ANNOTATION} names {field}, which Tenure doesn't set for this kind: kubectl tenure resume takes --field {field}, if your keeper is configured to set it, and {before} is what it should be set back to"
            );
        }
        Ok(record)
    }

    /// The text of the record of a pause, even if it can't be read.
    pub fn record_text(self) -> Option<&'o Value> {
        self.found.0.pointer("/metadata/annotations")?.get(PAUSED_ANNOTATION)
    }

    /// Refuses an object whose controller Tenure would pause in its place: a Deployment's annotations live on in its
    /// `ReplicaSet`s.
    pub fn not_copied(self) -> Result<()> {
        let Self { object, table, verb, .. } = self;
        let above = kueue::paused_in_place(&object.kind.reference(object.name), self.metadata, table);
        not_below(above, object, verb)
    }

    /// The state in which a pause with this record keeps the object.
    pub fn state(self, record: &PausedRecord) -> PauseState {
        match Return::of(record, self.metadata) {
            Return::Requeue(at) => PauseState::Returns(at),
            _ if pause::is_deactivation(record) || self.found.is_inactive() => PauseState::Deactivated,
            Return::Never | Return::Reactivate | Return::Deactivate => PauseState::Stays,
        }
    }

    /// The note about a wait that ends early.
    pub fn keeps_count(self, at: Timestamp) -> String {
        let (object, count) = (self.object, self.found.requeue_state().count);
        format!("{object} would have come back by itself at {at}. It keeps its count of returns, {count}.")
    }

    /// A command that removes the annotation, and sets the field that looks paused back to its likeliest value.
    fn resumption_by_hand(self) -> String {
        let mut patch = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: null}}});
        if let (Some(rule), Value::Object(patch)) = (self.paused_by(), &mut patch) {
            let running = match &rule.value {
                Value::Bool(paused) => json!(!paused),
                Value::Number(_) => json!(1),
                _ => Value::Null,
            };
            if rule.command.is_none() {
                patch.extend(pause::nested(&rule.field, running));
            }
        }
        let (kinds, name, place) = (self.object.kind.plural(), self.object.name, self.object.place(" -n "));
        format!("kubectl patch {kinds} {name}{place} --type merge -p '{patch}'")
    }

    /// Takes back the pause that has this record. `word` is the state of the workload then: `resumed`.
    pub fn resumption(self, record: PausedRecord, word: &'static str, note: Option<String>) -> ObjectChange {
        let Self { object, found, .. } = self;
        // else only the record goes
        let restores = pause::is_ours(found, &record);
        let ceiling = || format!("New pods of {object} get a full ceiling of queue {}.", record.queue);
        let ceiling = (!record.queue.is_empty()).then(ceiling);
        let notes: Vec<String> = ceiling.into_iter().chain(note).filter(|_| restores).collect();
        let (patch, name) = (pause::resume(found, &record), object.to_string());
        let rule = self.rules().into_iter().find(|rule| rule.field == record.field);
        let resume = rule.and_then(|rule| Some(rule.command.as_ref()?.resume.clone()));
        let before = resume.as_ref().map(|action| pause::command(found, action));
        let told = move |now: &Value| {
            let field = &record.field;
            let value = OwnerObject(now).at(field);
            let shown = shown(value);
            if !restores {
                return Ok(format!(
                    "{word} ({field}: {shown}, which was set after the pause; only the record of the pause was removed)"
                ));
            }
            if let Some(resume) = &resume {
                return Ok(format!("{word} (Command {resume})"));
            }
            if *value == record.value && *value != record.previous_value {
                bail!(
                    "{name}: the record is gone, but {field} is {shown} still: something on the server keeps it so"
                );
            }
            Ok(format!("{word} ({field}: {shown})"))
        };
        let note = (!notes.is_empty()).then(|| notes.join("\n"));
        ObjectChange { before, ..ObjectChange::new(patch, told, note) }
    }
}

/// Returns the message about a change, by the object after it.
type Told = Box<dyn Fn(&Value) -> Result<String> + Send + Sync>;

pub struct ObjectChange {
    pub patch: Value,
    /// Patches that are tried one after the other if the API server doesn't know a field of the first.
    pub otherwise: Vec<Value>,
    /// A Command of Volcano that is sent before the patch, and one that is sent after it.
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub told: Told,
    pub note: Option<String>,
}

impl ObjectChange {
    pub fn new(
        patch: Value,
        told: impl Fn(&Value) -> Result<String> + Send + Sync + 'static,
        note: Option<String>,
    ) -> Self {
        Self { patch, otherwise: Vec::new(), before: None, after: None, told: Box::new(told), note }
    }
}
