//! The object of a change, Tenure's records on it, and the patch.
//!
//! The commands that change workloads judge a [`ChangeSubject`] and return an [`ObjectChange`]. A
//! record is an annotation that tenants can write, so a command restores only fields that Tenure
//! itself pauses by.

use std::fmt;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use tenure_policy::{
    kueue,
    owner_table::{OwnerTable, PauseRule},
    pause::{self, OwnerObject, Return, UnfollowedRecord},
};
use tenure_types::{keys::PAUSED_ANNOTATION, paused::PausedRecord};

use crate::{
    cluster::{Clock, ResourceKind},
    print::printable,
};

/// The kind, name and namespace of an object. Its text is `deployment.apps/test`.
#[derive(Clone, Copy, Debug)]
pub struct ObjectName<'o> {
    pub kind: &'o ResourceKind,
    pub name: &'o str,
    /// The namespace of the command. Has no meaning for a kind that isn't namespaced.
    pub namespace: &'o str,
}

impl ObjectName<'_> {
    /// Returns the namespace of the object. None: its kind isn't namespaced.
    pub fn namespaced(&self) -> Option<&str> {
        self.kind.namespaced.then_some(self.namespace)
    }

    /// Returns the namespace after `before`. Empty if the kind isn't namespaced.
    pub fn place(&self, before: &str) -> String {
        self.namespaced().map_or_else(String::new, |name| format!("{before}{name}"))
    }

    /// Returns a command line of this plugin for the object:
    /// `kubectl tenure resume deployment.apps/test -n team`.
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

/// Refuses an object if Tenure pauses the owner above it in its place.
pub fn not_below(above: Option<&OwnerReference>, object: impl fmt::Display, verb: &str) -> Result<()> {
    let Some(above) = above else { return Ok(()) };
    let (kind, name) = (above.kind.to_lowercase(), printable(&above.name));
    bail!("{object} is controlled by {kind}/{name}, which Tenure pauses instead: {verb} that")
}

/// Returns a value as YAML would show it. Null is `unset`.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "unset".into(),
        value => value.as_str().map_or_else(|| value.to_string(), printable),
    }
}

/// The state of a paused workload, for the commands that end the pause.
pub enum PauseState {
    /// The workload stays paused until it is activated.
    Deactivated,
    /// The workload comes back by itself at this time.
    Returns(Timestamp),
    /// The workload stays paused until it is resumed.
    Stays,
}

/// An object in its present state, and the other inputs of a decision about it.
#[derive(Clone, Copy, Debug)]
pub struct ChangeSubject<'o> {
    pub object: ObjectName<'o>,
    /// The object as it was just read.
    pub found: OwnerObject<'o>,
    pub metadata: &'o ObjectMeta,
    pub table: &'o OwnerTable,
    /// The API server's clock, for the times of records.
    pub clock: Clock,
    /// The verb of the command, for messages.
    pub verb: &'static str,
}

impl<'o> ChangeSubject<'o> {
    /// Returns the rules of Tenure's own table by which objects of this kind are paused.
    pub fn rules(self) -> Vec<&'o PauseRule> {
        self.table.rules(&self.object.kind.reference(self.object.name)).collect()
    }

    /// Returns the first rule by which the object looks paused, no matter who has paused it.
    pub fn paused_by(self) -> Option<&'o PauseRule> {
        self.rules().into_iter().find(|rule| self.found.is_paused(rule))
    }

    /// Returns the record of a pause that may be undone. The error says why there is none.
    ///
    /// Only fields of the table and of `fields` may be restored. Otherwise a user who may write
    /// annotations could have a user with more rights set any field.
    pub fn paused(self, fields: &[String]) -> Result<PausedRecord> {
        let Self { object, found, .. } = self;
        let Some(text) = self.record_text() else {
            let Some(PauseRule { field, .. }) = self.paused_by() else {
                bail!("{object} isn't paused: it has no annotation {PAUSED_ANNOTATION}");
            };
            bail!(
                "{object} was not paused by Tenure: it has no annotation {PAUSED_ANNOTATION}, though its {field} is {}: set by another user or controller: kubectl get --show-managed-fields -o yaml shows by which",
                shown(found.at(field))
            );
        };
        self.not_copied()?;
        match pause::followed(self.metadata, &object.kind.reference(object.name), self.table) {
            Ok(record) => Ok(record),
            Err(UnfollowedRecord::Field(record)) if fields.contains(&record.field) => Ok(*record),
            Err(UnfollowedRecord::Field(record)) => {
                let (field, before) = (printable(&record.field), shown(&record.previous_value));
                bail!(
                    "{object}: annotation {PAUSED_ANNOTATION} names {field}, which Tenure doesn't set for this kind: if your keeper is configured to set it, and {before} is its former value, add --field {field}"
                )
            }
            Err(why) => bail!(
                "{object}: annotation {PAUSED_ANNOTATION} {why}: {}\nTo resume by hand: {}",
                printable(text.as_str().unwrap_or_default()),
                self.resumption_by_hand()
            ),
        }
    }

    /// Returns the text of the record of a pause, even if the record can't be read.
    pub fn record_text(self) -> Option<&'o Value> {
        self.found.0.pointer("/metadata/annotations")?.get(PAUSED_ANNOTATION)
    }

    /// Refuses an object whose controller Tenure would pause in its place: a Deployment's
    /// annotations, for example, live on in its `ReplicaSet`s.
    pub fn not_copied(self) -> Result<()> {
        let Self { object, table, verb, .. } = self;
        let above = kueue::paused_in_place(&object.kind.reference(object.name), self.metadata, table);
        not_below(above, object, verb)
    }

    /// Returns the state in which a pause with this record keeps the object.
    pub fn state(self, record: &PausedRecord) -> PauseState {
        match Return::of(record, self.metadata) {
            Return::Requeue(at) => PauseState::Returns(at),
            _ if pause::is_deactivation(record) || self.found.is_inactive() => PauseState::Deactivated,
            Return::Never | Return::Reactivate | Return::Deactivate => PauseState::Stays,
        }
    }

    /// Returns the note that a wait ends early, and that the count of returns is kept.
    pub fn keeps_count(self, at: Timestamp) -> String {
        let (object, count) = (self.object, self.found.requeue_state().count);
        format!("{object} would have come back by itself at {at}. It keeps its count of returns, {count}.")
    }

    /// Returns a kubectl command that removes the annotation, and sets the field that looks paused
    /// to its likeliest running value.
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

    /// Returns the change that undoes the pause with this record. `word` is the workload's state
    /// afterwards: `resumed`. If another writer has set the field since the pause, only the record
    /// is removed.
    pub fn resumption(self, record: PausedRecord, word: &'static str, note: Option<String>) -> ObjectChange {
        let Self { object, found, .. } = self;
        // otherwise only the record is removed
        let restores = pause::is_ours(found, &record);
        let ceiling = || format!("New pods of {object} get a full ceiling of queue {}.", record.queue);
        let ceiling = (!record.queue.is_empty()).then(ceiling);
        let notes: Vec<String> = ceiling.into_iter().chain(note).filter(|_| restores).collect();
        let (patch, name) = (pause::resume(found, &record), object.to_string());
        let rule = self.rules().into_iter().find(|rule| rule.field == record.field);
        let resume = rule.and_then(|rule| Some(rule.command.as_ref()?.resume.clone()));
        let before = resume.as_ref().map(|action| pause::command(found, action));
        let message = move |now: &Value| {
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
                    "{name}: the record was removed, but {field} is still {shown}: another program sets it: kubectl get --show-managed-fields -o yaml shows which"
                );
            }
            Ok(format!("{word} ({field}: {shown})"))
        };
        let note = (!notes.is_empty()).then(|| notes.join("\n"));
        ObjectChange { before, ..ObjectChange::new(patch, message, note) }
    }
}

/// Returns the message about a change, by the object after the change. An error: the change had no
/// effect.
type ChangeMessage = Box<dyn Fn(&Value) -> Result<String> + Send + Sync>;

/// The writes that a command has decided on, and the messages about them.
pub struct ObjectChange {
    /// The merge patch of the object.
    pub patch: Value,
    /// Patches that are tried in turn if the API server doesn't know a field of the patch before.
    pub otherwise: Vec<Value>,
    /// The Command of Volcano that is sent before the patch. None: no Command.
    pub before: Option<Value>,
    /// The Command of Volcano that is sent after the patch. None: no Command.
    pub after: Option<Value>,
    /// Makes the message on standard output.
    pub message: ChangeMessage,
    /// A note for standard error, which is printed unless the write is a dry run or one of many.
    pub note: Option<String>,
}

impl ObjectChange {
    /// Returns a change by a single patch, without Commands.
    pub fn new(
        patch: Value,
        message: impl Fn(&Value) -> Result<String> + Send + Sync + 'static,
        note: Option<String>,
    ) -> Self {
        Self { patch, otherwise: Vec::new(), before: None, after: None, message: Box::new(message), note }
    }
}
