//! JSON: values one after the other, without keys that are there twice.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::wrong::Wrong;

/// All values of a text, each with the line in which it begins.
pub fn values(text: &str) -> Result<Vec<(usize, Value)>, Wrong> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Unambiguous>();
    let (mut values, mut line, mut seen) = (Vec::new(), 1usize, 0);
    loop {
        let rest = text.get(stream.byte_offset()..).unwrap_or_default().trim_start();
        let begin = text.len().saturating_sub(rest.len());
        line = line.saturating_add(lines_in(text.get(seen..begin).unwrap_or_default()));
        seen = begin;
        match stream.next() {
            None => return Ok(values),
            Some(Ok(Unambiguous(value))) => values.push((line, value)),
            Some(Err(error)) => return Err(wrong(&error)),
        }
    }
}

fn lines_in(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn wrong(error: &serde_json::Error) -> Wrong {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    Wrong::at(error.line(), what)
}

/// A value that says nothing twice.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} is there twice")));
            }
            let Unambiguous(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_may_follow_each_other() {
        let text = "{\n \"a\": [1, -1, 1.5, true, null, \"b\"]\n}\n\n{\"a\": {}} {}";
        let expected =
            vec![(1, json!({"a": [1, -1, 1.5, true, null, "b"]})), (5, json!({"a": {}})), (5, json!({}))];
        assert_eq!(values(text), Ok(expected));
    }

    #[test]
    fn a_key_that_is_there_twice_is_an_error() {
        let error = Wrong::at(2, "key \"a\" is there twice");
        assert_eq!(values("{\"b\": {\"a\": 1,\n\"a\": 2}}"), Err(error));
    }

    #[test]
    fn an_error_names_its_line() {
        assert_eq!(values("{}\n{\n\"a\" 1}"), Err(Wrong::at(3, "expected `:`")));
        assert!(values(&"[".repeat(100_000)).is_err());
    }
}
