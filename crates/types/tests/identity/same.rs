use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Asserts that two texts hold the same JSON. The order of maps and the escapes of strings don't matter; numbers must
/// be the same to the letter.
pub fn assert_same(expected: &str, found: &str, context: impl Fn() -> String) {
    if expected != found {
        assert!(normal(expected) == normal(found), "{}\nexpected {expected}\n   found {found}", context());
    }
}

fn normal(text: &str) -> String {
    if text.starts_with('{') {
        let fields: Vec<_> =
            fields(text).into_iter().map(|(key, raw)| format!("{key:?}:{}", normal(raw.get()))).collect();
        return format!("{{{}}}", fields.join(","));
    }
    if text.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text).unwrap();
        let items: Vec<_> = items.iter().map(|raw| normal(raw.get())).collect();
        return format!("[{}]", items.join(","));
    }
    // half of a surrogate pair is no string, but what it is
    serde_json::from_str(text).map_or_else(|_| text.to_owned(), |text: String| format!("{text:?}"))
}

fn fields(text: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(text).unwrap()
}

/// A field of a map, if it is one.
pub fn part(text: &str, key: &str) -> Option<String> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    fields.get(key).map(|raw| raw.get().to_owned())
}
