//! The object of a change.

use std::fmt;

use serde_json::{Value, json};

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

    /// The flag that names its namespace.
    fn flag(&self) -> String {
        self.namespaced().map_or_else(String::new, |name| format!(" -n {name}"))
    }

    /// A command that a person can run.
    pub fn by_hand(&self, patch: &Value) -> String {
        let place = self.flag();
        format!("kubectl patch {} {}{place} --type merge -p '{patch}'", self.kind.plural(), self.name)
    }

    /// A command of this plugin that is about it.
    pub fn command(&self, verb: &str) -> String {
        format!("kubectl tenure {verb} {self}{}", self.flag())
    }
}

/// `deployment.apps/test`
impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.singular(), self.name)
    }
}

/// A value as YAML would show it.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "unset".into(),
        value => value.as_str().map_or_else(|| value.to_string(), printable),
    }
}

/// A patch of annotations alone. With uid and resourceVersion it can't hit a namesake, nor undo what somebody has
/// changed since.
pub fn annotate(found: &Value, annotations: &Value) -> Value {
    let metadata = |key: &str| found.get("metadata").and_then(|of| of.get(key)).cloned().unwrap_or_default();
    let (uid, version) = (metadata("uid"), metadata("resourceVersion"));
    json!({"metadata": {"uid": uid, "resourceVersion": version, "annotations": annotations}})
}
