//! Objects that don't fail a whole list if they can't be read. Lists and watches of queues, for
//! example, have this type.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::{
        batch::v1::Job,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, core::Object};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;

/// The fields of an object, each as it was written.
type RawFields = BTreeMap<String, Box<RawValue>>;

/// The field of `metadata` that clients may fill with any time, and as deep as they like.
pub(crate) const MANAGED_FIELDS: &str = "managedFields";

/// An object, or the reason why it can't be read.
///
/// A client that creates an object may send `managedFields` of its own, and the API server keeps
/// entries with times that no program here can read. So objects are read without `managedFields`;
/// only a `WholeObject` keeps those that can be read. Any other object that can't be read is kept
/// with its names, so that a list shows all others.
///
/// Takes its input from JSON text only.
#[derive(Clone, Debug)]
pub struct Tolerant<K>(pub Result<K, UnreadableObject>);

/// An object that can't be read.
#[derive(Clone, Debug, Error)]
#[error("{error}")]
pub struct UnreadableObject {
    /// The reason.
    pub error: String,
    /// The name, namespace, uid and version of the object, as far as they can be read.
    pub metadata: ObjectMeta,
}

/// A type of objects that [`Tolerant`] reads.
pub trait TolerantObject: DeserializeOwned {
    /// Reads an object without its `managedFields`.
    fn read_text(object: &RawValue) -> serde_json::Result<Self> {
        serde_json::from_str(&split(object)?.0)
    }
}

impl TolerantObject for ClusterRole {}
impl TolerantObject for ClusterRoleBinding {}
impl TolerantObject for Job {}
impl TolerantObject for Role {}
impl TolerantObject for RoleBinding {}

impl<P: Clone, U: Clone> TolerantObject for Object<P, U> where Self: DeserializeOwned {}

impl<K> Tolerant<K> {
    /// Returns the object, or the reason why it can't be read.
    pub fn read(self) -> serde_json::Result<K> {
        self.0.map_err(serde_json::Error::custom)
    }
}

impl<'de, K: TolerantObject> Deserialize<'de> for Tolerant<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Box::<RawValue>::deserialize(deserializer)?;
        let unreadable = |error: serde_json::Error| UnreadableObject {
            error: error.to_string(),
            metadata: names(&object),
        };
        Ok(Self(K::read_text(&object).map_err(unreadable)))
    }
}

/// Returns the text of an object without its `managedFields`, and the text of these. None: the
/// object has none.
pub(crate) fn split(object: &RawValue) -> serde_json::Result<(String, Option<Box<RawValue>>)> {
    let mut fields: RawFields = serde_json::from_str(object.get())?;
    let mut managed = None;
    if let Some(metadata) = fields.get_mut("metadata") {
        let mut of: RawFields = serde_json::from_str(metadata.get())?;
        managed = of.remove(MANAGED_FIELDS);
        if managed.is_some() {
            *metadata = to_raw_value(&of)?;
        }
    }
    Ok((serde_json::to_string(&fields)?, managed))
}

/// Reads the fields that identify an object. A field that can't be read is absent, and hides no
/// other.
fn names(object: &RawValue) -> ObjectMeta {
    let fields = |of: &RawValue| serde_json::from_str::<RawFields>(of.get()).unwrap_or_default();
    let metadata = fields(object).get("metadata").map(|metadata| fields(metadata)).unwrap_or_default();
    let text = |key: &str| serde_json::from_str(metadata.get(key)?.get()).ok();
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

impl<K: Resource> Resource for Tolerant<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        ResourceExt,
        core::{ObjectList, WatchEvent},
    };
    use serde_json::{Value, json};

    use super::*;

    impl TolerantObject for ConfigMap {}

    /// `managedFields` with a time after the last one that can be read, or too deep to be read.
    fn forged(name: &str, entry: &str) -> String {
        format!(
            r#"{{"metadata":{{"managedFields":[{entry}],"name":"{name}","resourceVersion":"7"}},"data":{{"a":"b"}}}}"#
        )
    }

    const LATE: &str = r#"{"manager":"me","time":"9999-12-31T23:59:59Z"}"#;

    fn deep() -> String {
        format!(r#"{{"fieldsV1":{}{}}}"#, r#"{"f:a":"#.repeat(200) + "{}", "}".repeat(200))
    }

    fn list(items: &[String]) -> ObjectList<Tolerant<ConfigMap>> {
        serde_json::from_str(&format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
            items.join(",")
        ))
        .unwrap()
    }

    #[test]
    fn forged_managed_fields_make_no_object_unreadable() {
        for object in list(&[forged("a", LATE), forged("b", &deep())]) {
            let object = object.read().unwrap();
            assert_eq!(object.data, Some([("a".to_owned(), "b".to_owned())].into()), "{}", object.name_any());
            assert_eq!(
                (object.metadata.managed_fields, object.metadata.resource_version),
                (None, Some("7".into()))
            );
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_names_and_spoils_no_list() {
        let bad = |metadata: Value| json!({"metadata": metadata, "data": 5}).to_string();
        let names = json!({
            "name": "b", "namespace": "ns", "uid": "u", "resourceVersion": "8",
            "creationTimestamp": "9999-12-31T23:59:59Z", "labels": 5,
        });
        let all =
            list(&[forged("a", LATE), bad(names), bad(json!(5)), bad(json!({"name": 5})), "[]".to_owned()]);
        let read: Vec<bool> = all.iter().map(|of| of.0.is_ok()).collect();
        assert_eq!(read, [true, false, false, false, false]);
        let names = all.items[1].meta();
        assert_eq!(
            [&names.name, &names.namespace, &names.uid, &names.resource_version].map(Option::as_deref),
            [Some("b"), Some("ns"), Some("u"), Some("8")]
        );
        assert!(all.items[1].0.as_ref().unwrap_err().to_string().contains("invalid type"));
    }

    #[test]
    fn a_watch_shows_it_like_a_list() {
        let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, forged("a", LATE));
        let WatchEvent::Modified(object) =
            serde_json::from_str::<WatchEvent<Tolerant<ConfigMap>>>(&event).unwrap()
        else {
            panic!("another event")
        };
        assert_eq!(object.read().unwrap().name_any(), "a");
    }
}
