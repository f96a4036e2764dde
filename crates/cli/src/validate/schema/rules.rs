//! Rules for values, in words.
//!
//! Called by the review by schema, and by `kinds` for its messages.

use std::fmt::Display;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;
use tenure_policy::{config::nearest, owner_table::is_subdomain};

/// Returns the rule of the type that a value breaks. None: the type is right, or the schema has
/// none.
pub(super) fn wrong_type(value: &Value, schema: &JSONSchemaProps) -> Option<String> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return (!value.is_string() && !value.is_i64() && !value.is_u64())
            .then(|| "must be a number or a string".into());
    }
    let (is_right, name) = match schema.type_.as_deref()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a string"),
        "boolean" => (value.is_boolean(), "true or false"),
        "integer" => (value.is_i64() || value.is_u64(), "a whole number"),
        "number" => (value.is_number(), "a number"),
        _ => return None,
    };
    (!is_right).then(|| format!("must be {name}"))
}

/// Returns the rule for a value from an error of serde, which names the expected type.
pub(super) fn rule(error: &str) -> String {
    let Some((_, expected)) = error.rsplit_once("expected ") else { return error.into() };
    let expected = match expected {
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" => "a whole number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        of if of == "a map" || of.starts_with("struct ") => "an object",
        of => of,
    };
    format!("must be {expected}")
}

/// True for a DNS label: at most 63 characters, without a dot.
pub(super) fn is_label(text: &str) -> bool {
    text.len() <= 63 && !text.contains('.') && is_subdomain(text)
}

/// Joins names: `Pause or Requeue`.
pub fn either<'n>(names: impl Iterator<Item = &'n str>) -> impl Display {
    let mut names: Vec<&str> = names.collect();
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        last => last.unwrap_or_default().into(),
    }
}

/// Names the known name that is most similar to a written one. If none is similar, names all.
pub fn suggestion(written: &str, known: &[&str]) -> String {
    let all = || format!("known here: {}", known.join(", "));
    nearest(written, known).map_or_else(all, |name| format!("did you mean {name}?"))
}

/// Joins a path and a field with a dot.
pub(super) fn joined(path: &str, key: &str) -> String {
    match (path, key) {
        ("", key) => key.into(),
        (path, "") => path.into(),
        (path, key) => format!("{path}.{key}"),
    }
}
