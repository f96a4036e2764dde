//! An object of any kind, with all its fields, for programs that patch or show objects.

mod bounded;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, value::RawValue};

use super::Owner;
use crate::tolerant::{MANAGED_FIELDS, TolerantObject, split};
use bounded::RemainingMemory;

/// An object of any kind, with all its fields.
///
/// Entries of `managedFields` that are nested too deep to be read are left out: see
/// [`crate::tolerant`]. Times in the other entries stay text. An object that takes more than 8 MiB
/// of memory can't be read. A list of whole objects has the type `Tolerant`, so that such an object
/// hides no other.
///
/// Takes its input from JSON text only.
#[derive(Clone, Debug, Default)]
pub struct WholeObject {
    /// The metadata, without the parts that no decision needs.
    pub metadata: ObjectMeta,
    /// The whole object.
    pub value: Value,
}

impl<'de> Deserialize<'de> for WholeObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(&Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Keeps the `managedFields`: they say who had a field before a pause.
impl TolerantObject for WholeObject {
    fn read_text(object: &RawValue) -> serde_json::Result<Self> {
        read(object)
    }
}

/// Reads an object, its `managedFields` entry by entry.
fn read(object: &RawValue) -> serde_json::Result<WholeObject> {
    let (object, managed) = split(object)?;
    let Owner { metadata } = serde_json::from_str(&object)?;
    let mut memory = RemainingMemory::default();
    let mut value = memory.read(&object)?;
    if let (Some(managed), Some(of)) = (managed, value.get_mut("metadata").and_then(Value::as_object_mut)) {
        of.insert(MANAGED_FIELDS.into(), entries(&managed, &mut memory));
    }
    Ok(WholeObject { metadata, value })
}

/// Returns the entries of `managedFields` that can be read.
fn entries(managed: &RawValue, memory: &mut RemainingMemory) -> Value {
    let entries: Vec<Box<RawValue>> = serde_json::from_str(managed.get()).unwrap_or_default();
    entries.iter().filter_map(|entry| memory.read(entry.get()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use kube::{ResourceExt, core::ObjectList};
    use serde_json::json;

    use super::*;
    use crate::tolerant::Tolerant;

    #[test]
    fn of_three_objects_in_a_list_one_that_is_too_large_or_too_deep_hides_no_other() {
        let managed = json!([{"manager": "me"}]);
        let object = |name: &str, spec: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u","managedFields":{managed}}},"spec":{spec}}}"#
            )
        };
        let large = format!("[{}]", vec![r#"{"key":"a"}"#; 100_000].join(","));
        let deep = "[".repeat(200) + &"]".repeat(200);
        for (odd, why) in [(large, "more than 8 MiB"), (deep, "recursion limit")] {
            let items = [object("a", "{}"), object("odd", &odd), object("c", "[1]")].join(",");
            let list = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{items}]}}"#);
            let list: ObjectList<Tolerant<WholeObject>> = serde_json::from_str(&list).unwrap();
            let [first, second, third] = &list.items[..] else { panic!("{}", list.items.len()) };
            for whole in [first, third] {
                let Tolerant(Ok(whole)) = whole else { panic!("{whole:?}") };
                assert_eq!(whole.value["metadata"]["managedFields"], managed);
            }
            assert_eq!([first, second, third].map(ResourceExt::name_any), ["a", "odd", "c"]);
            assert_eq!(second.namespace().as_deref(), Some("ns"));
            let error = second.0.as_ref().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn an_object_is_whole_but_for_managed_fields_that_are_too_deep() {
        let late = r#"{"manager":"me","time":"9999-12-31T23:59:59Z"}"#;
        let deep = format!(r#"{{"fieldsV1":{}{}}}"#, r#"{"f:a":"#.repeat(200) + "{}", "}".repeat(200));
        let text = format!(
            r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"a","finalizers":["x"],"managedFields":[{late},{deep}]}},"spec":{{"suspend":true}}}}"#
        );
        let object: WholeObject = serde_json::from_str(&text).unwrap();
        let managed = json!([{"manager": "me", "time": "9999-12-31T23:59:59Z"}]);
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
        assert_eq!(
            object.value,
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": true},
                "metadata": {"name": "a", "finalizers": ["x"], "managedFields": managed},
            })
        );
    }

    #[test]
    fn an_object_without_metadata_is_read() {
        let object: WholeObject = serde_json::from_value(json!({"kind": "Status", "code": 200})).unwrap();
        assert_eq!(
            (object.metadata, object.value),
            (ObjectMeta::default(), json!({"kind": "Status", "code": 200}))
        );
    }
}
