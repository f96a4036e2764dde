//! What is to be done about an object that is to go on.

use std::fmt;

use anyhow::{Result, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use tenure_policy::{
    owners::{OwnerTable, PauseRule},
    pause::{self, Owner},
};
use tenure_types::{keys::PAUSED_ANNOTATION, paused::PausedRecord};

use crate::{kinds::Kind, table::printable};

/// Which object.
#[derive(Clone, Copy, Debug)]
pub struct Object<'o> {
    pub kind: &'o Kind,
    pub name: &'o str,
    /// The one in which it is, if its kind is in namespaces.
    pub namespace: &'o str,
}

impl Object<'_> {
    pub fn namespaced(&self) -> Option<&str> {
        self.kind.namespaced.then_some(self.namespace)
    }

    /// A command that a person can run.
    fn by_hand(&self, patch: &Value) -> String {
        let place = self.namespaced().map_or_else(String::new, |name| format!(" -n {name}"));
        format!("kubectl patch {} {}{place} --type merge -p '{patch}'", self.kind.plural(), self.name)
    }
}

/// `deployment.apps/test`
impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.singular(), self.name)
    }
}

/// What is to be written.
#[derive(Debug)]
pub struct Resumption {
    pub record: PausedRecord,
    pub patch: Value,
    /// Whether the field is set back; else only the record goes.
    pub restores: bool,
}

impl Resumption {
    /// What was done, by what became of the object.
    pub fn told(&self, object: Object<'_>, now: &Value) -> Result<String> {
        let field = &self.record.field;
        let value = Owner(now).field(&rule_of(&self.record));
        let shown = if value.is_null() { "unset".to_owned() } else { shown(value) };
        if !self.restores {
            return Ok(format!(
                "resumed ({field}: {shown}, which somebody has set since; only the record of the pause was removed)"
            ));
        }
        if *value == self.record.value && *value != self.record.previous_value {
            bail!(
                "{object}: the record is gone, but {field} is {shown} still: something on the server keeps it so"
            );
        }
        Ok(format!("resumed ({field}: {shown})"))
    }
}

/// Decides by the object as it is now. `fields` may be restored beside those of the table: whoever may write
/// annotations could else have somebody with more rights set any field for them.
pub fn judge(object: Object<'_>, now: &Value, table: &OwnerTable, fields: &[String]) -> Result<Resumption> {
    let reference = object.kind.reference(object.name);
    let Some(text) = now.pointer("/metadata/annotations").and_then(|all| all.get(PAUSED_ANNOTATION)) else {
        let other = table.rules(&reference).find(|rule| Owner(now).is_paused(rule));
        bail!(
            "{object} was not paused by Tenure: it has no annotation {PAUSED_ANNOTATION}{}",
            by_other(other)
        );
    };
    // a Deployment's annotations live on in its ReplicaSets
    if let Some(above) = controller(now).filter(|above| table.knows(above)) {
        let (kind, name) = (above.kind.to_lowercase(), printable(&above.name));
        bail!("{object} is controlled by {kind}/{name}, which is what Tenure pauses: resume that");
    }
    let rules: Vec<&PauseRule> = table.rules(&reference).collect();
    let Some(record) = Owner(now).record() else {
        bail!(
            "{object}: annotation {PAUSED_ANNOTATION} can't be read: {}\nTo resume by hand: {}",
            printable(text.as_str().unwrap_or_default()),
            object.by_hand(&by_hand(now, &rules))
        );
    };
    if !fields.contains(&record.field) && !rules.iter().any(|rule| rule.field == record.field) {
        bail!(
            "{object}: annotation {PAUSED_ANNOTATION} names {0}, which Tenure doesn't set for this kind: say --field {0} if your keeper is configured to, and {1} is what it should be set back to",
            printable(&record.field),
            shown(&record.previous_value)
        );
    }
    let patch = pause::resume(Owner(now), &record);
    let restores = patch.get("spec").is_some();
    Ok(Resumption { record, patch, restores })
}

fn by_other(rule: Option<&PauseRule>) -> String {
    rule.map_or_else(String::new, |rule| {
        format!(", though its {} is {}, which somebody else has set", rule.field, shown(&rule.value))
    })
}

fn controller(now: &Value) -> Option<OwnerReference> {
    let owners = now.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&json!(true)))?;
    serde_json::from_value(owner.clone()).ok()
}

/// A patch that takes the annotation away and sets back the field that looks paused, to the likeliest value.
fn by_hand(now: &Value, rules: &[&PauseRule]) -> Value {
    let mut patch = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: null}}});
    if let Some(rule) = rules.iter().find(|rule| Owner(now).is_paused(rule)) {
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

/// The field of a record, as the policy asks for it.
fn rule_of(record: &PausedRecord) -> PauseRule {
    PauseRule {
        group: String::new(),
        kind: String::new(),
        field: record.field.clone(),
        value: record.value.clone(),
    }
}

/// As YAML would show it.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), printable)
}

#[cfg(test)]
mod tests;
