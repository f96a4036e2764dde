//! Reads JSON into a [`Value`] of bounded memory.
//!
//! A tenant's object of one megabyte may have a hundred thousand small maps, and a map takes sixty
//! times as much memory as its text: some such objects at a time would end the process.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The most memory of an object, in bytes. Objects as large as etcd takes them need less, unless
/// they consist of small maps.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The memory of a map with one entry: as much as of a map with eleven.
const MAP: usize = 640;

/// The memory of a further entry of a map, beside its key and its value: maps are half full.
const ENTRY: usize = 112;

/// The memory of a value in a list: lists grow to twice their length.
const ELEMENT: usize = 2 * size_of::<Value>();

/// The memory that the rest of an object may take, in bytes.
pub(super) struct RemainingMemory(usize);

impl Default for RemainingMemory {
    fn default() -> Self {
        Self(MOST_BYTES)
    }
}

impl RemainingMemory {
    /// Reads a part of the object. Fails if the object takes more than [`MOST_BYTES`].
    pub fn read(&mut self, text: &str) -> serde_json::Result<Value> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = Bounded(self).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }

    fn take<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        let less = self.0.checked_sub(bytes);
        let more = || {
            let most = MOST_BYTES / 1024 / 1024;
            E::custom(format_args!(
                "the object takes more than {most} MiB of memory: it has too many small maps or texts"
            ))
        };
        self.0 = less.ok_or_else(more)?;
        Ok(())
    }
}

/// Reads a value that takes its memory from what remains.
struct Bounded<'m>(&'m mut RemainingMemory);

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.0.take(text.len())?;
        Ok(text.into())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Value, S::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(Bounded(self.0))? {
            self.0.take(ELEMENT)?;
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let entry = if object.is_empty() { MAP } else { ENTRY };
            self.0.take(key.len().saturating_add(entry))?;
            object.insert(key, map.next_value_seed(Bounded(self.0))?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_read_as_it_is() {
        let value = json!({
            "a": [1, -1, 1.5, true, null, "x", "\u{e9}\"", {}, []], "b": {"c": u64::MAX, "d": i64::MIN}, "": "",
        });
        assert_eq!(RemainingMemory::default().read(&value.to_string()).unwrap(), value);
        for text in ["", "{", "{} {}", "[1,]", r#"{"a":}"#] {
            assert!(RemainingMemory::default().read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_object_of_small_maps_is_refused_before_it_takes_the_memory_of_the_process() {
        let list = |count: usize| format!(r#"{{"spec":[{}]}}"#, vec![r#"{"key":"a"}"#; count].join(","));
        let error = RemainingMemory::default().read(&list(100_000)).unwrap_err().to_string();
        assert!(error.starts_with("the object takes more than 8 MiB of memory"), "{error}");
        assert!(RemainingMemory::default().read(&list(5_000)).is_ok());
    }

    #[test]
    fn a_long_text_and_a_large_workflow_are_read() {
        let text = json!({"data": {"a": "x".repeat(1_500_000)}}).to_string();
        assert!(RemainingMemory::default().read(&text).is_ok());
        let node = |number: usize| {
            let fields = (0..25).map(|field| (format!("field-{field}"), json!("a value of some length")));
            (format!("workflow-{number}"), Value::Object(fields.collect()))
        };
        let nodes: Map<String, Value> = (0..1_200).map(node).collect();
        let workflow = json!({"status": {"nodes": nodes}}).to_string();
        assert!(workflow.len() > 1_000_000, "{}", workflow.len());
        assert!(RemainingMemory::default().read(&workflow).is_ok());
    }
}
