//! Checks the generated definitions against the API conventions of Kubernetes.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{fs, path::Path};

use serde_json::Value;

/// The schemas of all versions, each with `plural.group/version`.
fn schemas() -> Vec<(String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/tenure/files/crds");
    let mut schemas = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let name = format!("{}/{}", definition["metadata"]["name"], version["name"]).replace('"', "");
            assert!(version["subresources"]["status"].is_object(), "{name}: the status is no subresource");
            schemas.push((name, version["schema"]["openAPIV3Schema"].clone()));
        }
    }
    assert_eq!(schemas.len(), 4);
    schemas
}

/// Calls `check` for each schema, with its path.
fn each(schema: &Value, path: &str, check: &mut impl FnMut(&str, &Value)) {
    check(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        each(field, &format!("{path}.{name}"), check);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            each(&schema[key], &format!("{path}{mark}"), check);
        }
    }
}

/// Returns the paths that break a rule.
fn broken(breaks: impl Fn(&str, &Value) -> bool) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, schema) in schemas() {
        each(&schema, &name, &mut |path, schema| {
            if breaks(path, schema) {
                paths.push(path.to_owned());
            }
        });
    }
    paths
}

/// True for the part of a definition that is Kubernetes' or T9k's own, as T9k has it.
fn is_anothers(path: &str) -> bool {
    path.contains("Selector.match")
        || path.starts_with("queues.scheduler.tensorstack.dev/") && path.ends_with("status.conditions")
}

#[test]
fn a_field_has_a_name_in_lower_camel_case_and_a_description() {
    let breaks = |path: &str, schema: &Value| {
        let name = path.rsplit('.').next().unwrap();
        let is_item = path.ends_with("[]") || path.ends_with("{}");
        let is_camel = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        let is_root =
            path.ends_with(|c: char| c.is_ascii_digit()) && path.contains('/') && !path.contains("spec");
        !is_item && !is_root && (!is_camel || schema["description"].as_str().is_none_or(str::is_empty))
    };
    assert_eq!(broken(breaks), [""; 0]);
}

/// The API server drops a null where a schema allows none, so that `nullable` says nothing.
#[test]
fn no_field_is_nullable() {
    assert_eq!(broken(|_, schema| schema.get("nullable").is_some()), [""; 0]);
}

/// Amounts of KAI-Scheduler's quotas are floats in its own definition.
#[test]
fn no_field_of_tenure_is_a_float() {
    assert_eq!(
        broken(|path, schema| schema["type"] == "number" && !path.contains(".spec.resources.")),
        [""; 0]
    );
}

#[test]
fn a_list_says_how_it_is_merged() {
    let breaks = |path: &str, schema: &Value| {
        schema["type"] == "array" && schema["x-kubernetes-list-type"].is_null() && !is_anothers(path)
    };
    assert_eq!(broken(breaks), [""; 0]);
}

#[test]
fn conditions_are_a_map_by_type_with_the_generation_that_they_are_about() {
    let breaks = |path: &str, schema: &Value| {
        let fields = &schema["items"]["properties"];
        path.ends_with(".conditions")
            && !is_anothers(path)
            && !(schema["x-kubernetes-list-map-keys"] == serde_json::json!(["type"])
                && fields["observedGeneration"]["format"] == "int64"
                && ["type", "status", "reason", "message", "lastTransitionTime"]
                    .iter()
                    .all(|of| fields.get(of).is_some()))
    };
    assert_eq!(broken(breaks), [""; 0]);
}
