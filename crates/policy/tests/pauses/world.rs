//! Owners on an API server: what each writer manages, and what its controllers make of it.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use tenure_policy::{
    owner_table::{KINDS, OwnerTable, PauseRule, keys_of},
    pause::{self, OwnerObject, nested},
};

/// A field manager and its operation.
pub type Manager = (&'static str, &'static str);

/// The managers that there are.
const MANAGERS: [Manager; 6] = [
    ("helm", "Apply"),
    ("kubectl", "Update"),
    ("hpa", "Update"),
    (pause::KEEPER_MANAGER, "Update"),
    (pause::PLUGIN_MANAGER, "Update"),
    (pause::HAND_BACK_MANAGER, "Update"),
];

pub const HELM: Manager = MANAGERS[0];
pub const USERS: [Manager; 2] = [MANAGERS[1], MANAGERS[2]];
pub const KEEPER: Manager = MANAGERS[3];
pub const PLUGIN: Manager = MANAGERS[4];
pub const HAND_BACK: Manager = MANAGERS[5];

/// The paths whose managers count.
const RECORD: &str = "metadata.annotations.tenure.dev/paused";
pub const WHEN_SCALED: &str = "spec.persistentVolumeClaimRetentionPolicy.whenScaled";

/// An owner.
#[derive(Clone, Debug)]
pub struct Object {
    pub value: Value,
    /// The rule of its kind.
    pub rule: PauseRule,
}

fn has(fields: &Value, path: &str) -> bool {
    keys_of(path).try_fold(fields, |fields, key| fields.get(format!("f:{key}"))).is_some()
}

impl Object {
    pub fn new(kind: (&str, &str), uid: &str, above: Option<&Self>) -> Self {
        let (group, kind) = kind;
        let row = KINDS.iter().find(|row| row.group == group && row.kinds.contains(&kind)).unwrap();
        let api_version = format!("{group}/{}", row.versions[0]);
        let mut value = json!({
            "apiVersion": api_version, "kind": kind, "spec": {},
            "metadata": {
                "name": uid, "namespace": "ns", "uid": uid, "resourceVersion": "1", "annotations": {}, "managedFields": [],
            },
        });
        if let Some(above) = above {
            value["metadata"]["ownerReferences"] = json!([above.reference()]);
        }
        let reference = OwnerReference { api_version, kind: kind.into(), ..OwnerReference::default() };
        let rule = OwnerTable::default().rules(&reference).next().unwrap().clone();
        Self { value, rule }
    }

    pub const fn owner(&self) -> OwnerObject<'_> {
        OwnerObject(&self.value)
    }

    pub fn reference(&self) -> OwnerReference {
        let text = |path| self.owner().at(path).as_str().unwrap().to_owned();
        OwnerReference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("metadata.name"),
            uid: text("metadata.uid"),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    pub fn field(&self) -> &Value {
        self.owner().at(&self.rule.field)
    }

    pub fn is_paused(&self) -> bool {
        self.owner().is_paused(&self.rule)
    }

    /// True if users set the field. Otherwise a controller shows it.
    pub fn is_set_by_users(&self) -> bool {
        self.rule.command.is_none()
    }

    fn paths(&self) -> [&str; 3] {
        [RECORD, WHEN_SCALED, &self.rule.field]
    }

    /// The managers of a path.
    pub fn managers(&self, path: &str) -> BTreeSet<Manager> {
        let entries = self.owner().at("metadata.managedFields").as_array().unwrap();
        let of = |entry: &&Value| has(&entry["fieldsV1"], path);
        let name = |entry: &Value| {
            let is = |of: &&Manager| entry["manager"] == of.0 && entry["operation"] == of.1;
            *MANAGERS.iter().find(is).unwrap()
        };
        entries.iter().filter(of).map(name).collect()
    }

    fn note(&mut self, managed: &[(String, BTreeSet<Manager>)]) {
        let entry = |manager: &Manager| {
            let mut fields = Map::new();
            for (path, _) in managed.iter().filter(|(_, managers)| managers.contains(manager)) {
                let keys: Vec<_> = keys_of(path).map(|key| format!("f:{key}")).collect();
                let leaf = keys.into_iter().rev().fold(json!({}), |inner, key| json!({key: inner}));
                merge(&mut fields, leaf.as_object().unwrap().clone());
            }
            let entry = json!({
                "manager": manager.0, "operation": manager.1, "fieldsType": "FieldsV1", "fieldsV1": fields,
            });
            (!fields.is_empty()).then_some(entry)
        };
        self.value["metadata"]["managedFields"] = MANAGERS.iter().filter_map(entry).collect();
    }

    /// Applies a merge patch, as the API server does. Panics at a conflict: the object was read a moment ago.
    pub fn patch(&mut self, by: Manager, patch: &Value) {
        let before = self.clone();
        for key in ["uid", "resourceVersion"] {
            let expected = patch["metadata"].get(key).filter(|value| !value.is_null());
            assert!(expected.is_none_or(|value| *value == self.value["metadata"][key]), "{patch}");
        }
        json_patch::merge(&mut self.value, patch);
        // who changes a value manages it, and no other does
        let managed = self.paths().map(|path| {
            let (old, new) = (before.owner().at(path), self.owner().at(path));
            let mut managers = self.managers(path);
            if new.is_null() {
                managers.clear();
            } else if old != new {
                managers = BTreeSet::from([by]);
            }
            (path.to_owned(), managers)
        });
        self.note(&managed);
        let version = self.owner().at("metadata.resourceVersion").as_str().unwrap().parse::<u64>().unwrap();
        self.value["metadata"]["resourceVersion"] = (version + 1).to_string().into();
    }

    /// Sets a field, as a client that updates.
    pub fn set(&mut self, by: Manager, path: &str, value: Value) {
        self.patch(by, &Value::Object(nested(path, value)));
    }

    /// Applies a field by server-side apply. False: another manager has it at another value.
    pub fn apply(&mut self, path: &str, value: &Value, is_forced: bool) -> bool {
        let others = self.managers(path).into_iter().any(|of| of != HELM);
        let differs = self.owner().at(path) != value;
        if others && differs && !is_forced {
            return false;
        }
        self.set(HELM, path, value.clone());
        let managed = self.paths().map(|of| {
            let mut managers = self.managers(of);
            if of == path {
                managers.insert(HELM);
            }
            (of.to_owned(), managers)
        });
        self.note(&managed);
        true
    }

    /// Lets it end. False: its kind never does.
    pub fn end(&mut self) -> bool {
        use tenure_policy::owner_table::EndedWhen::{Condition, Never, Text};
        let reference = self.reference();
        let (group, kind) = (reference.api_version.split('/').next().unwrap(), reference.kind.as_str());
        let row = KINDS.iter().find(|row| row.group == group && row.kinds.contains(&kind)).unwrap();
        match row.ended {
            Never => return false,
            Condition(types) => {
                self.value["status"] = json!({"conditions": [{"type": types[0], "status": "True"}]});
            }
            Text(path, texts) => {
                let status = Value::Object(nested(path, texts[0].into()));
                json_patch::merge(&mut self.value, &status);
            }
        }
        true
    }
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (_, value) => _ = into.insert(key, value),
        }
    }
}
