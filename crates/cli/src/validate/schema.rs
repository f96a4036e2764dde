//! The rules that the API server itself applies to an object before any webhook gets it: metadata,
//! unknown fields, types.
//!
//! Called by `validate`. The schemas of queues are those of the chart's definitions, made from the
//! same types; a `PriorityClass` has the type of `k8s_openapi`. Not checked are the `CEL` rules and
//! patterns of definitions, the lengths of lists, and the syntax of labels and annotations.

mod rules;

use std::sync::LazyLock;

use k8s_openapi::{
    api::scheduling::v1::PriorityClass,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::CustomResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;
use tenure_policy::{field::FieldError, owner_table::is_subdomain, review::Reviewable};
use tenure_types::{
    runai::{SPEC_ANNOTATIONS, v2, v3alpha1},
    tensorstack::v1beta1,
};

use super::FieldReason;
use crate::input::Document;
pub use rules::{either, suggestion};
use rules::{is_label, joined, rule, wrong_type};

/// The rule of names, as Kubernetes has it: a DNS subdomain.
const SUBDOMAIN: &str = "must be lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters";
/// The rule of names of namespaces: a DNS label.
const LABEL: &str = "must be lower case letters, digits and '-', beginning and ending with a letter or digit, at most 63 characters";

/// The highest value of a `PriorityClass` that the API server accepts, except for its own classes.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;
/// The beginning of names of the API server's own classes.
const RESERVED: &str = "system-";
const BUILT_IN: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// Returns the reasons why the API server itself would refuse an object of this kind.
pub fn reasons(document: &Document, kind: Reviewable) -> Vec<FieldReason> {
    let mut reasons = Reasons { found: Vec::new(), in_v2: kind == Reviewable::RunaiQueueV2 };
    reasons.metadata(document);
    if kind == Reviewable::PriorityClass {
        reasons.priority_class(document);
    } else if let (Some(schema), Value::Object(fields)) = (schema(kind), &document.value) {
        reasons.fields("", fields, schema);
    }
    reasons.found
}

/// Returns the schema of a version of queues, as the chart installs it. None: the kind isn't
/// defined by the chart.
fn schema(kind: Reviewable) -> Option<&'static JSONSchemaProps> {
    type Schema = LazyLock<Option<JSONSchemaProps>>;
    static RUNAI: Schema = LazyLock::new(|| of(v3alpha1::Queue::crd()));
    static RUNAI_V2: Schema = LazyLock::new(|| of(v2::Queue::crd()));
    static TENSORSTACK: Schema = LazyLock::new(|| of(v1beta1::Queue::crd()));
    match kind {
        Reviewable::RunaiQueue => RUNAI.as_ref(),
        Reviewable::RunaiQueueV2 => RUNAI_V2.as_ref(),
        Reviewable::TensorstackQueue => TENSORSTACK.as_ref(),
        Reviewable::PriorityClass => None,
    }
}

/// Returns the schema of a definition's first version.
fn of(definition: CustomResourceDefinition) -> Option<JSONSchemaProps> {
    let mut schema = definition.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
    // the API server knows these fields of each object; metadata is checked by itself
    let anything = JSONSchemaProps { x_kubernetes_preserve_unknown_fields: Some(true), ..Default::default() };
    let known = ["apiVersion", "kind", "metadata"].map(|name| (name.to_owned(), anything.clone()));
    schema.properties.get_or_insert_default().extend(known);
    // crdgen removes the requirement, too: KAI's queues may do without a spec
    schema.required = None;
    Some(schema)
}

/// The reasons that were found so far.
struct Reasons {
    found: Vec<FieldReason>,
    /// True for v2, where annotations stand for some fields of v3alpha1.
    in_v2: bool,
}

impl Reasons {
    /// Adds an invalid value.
    fn invalid(&mut self, field: &str, value: &Value, rule: impl Into<String>) {
        self.found.push(FieldError::invalid(field, value.clone(), rule).into());
    }

    /// Adds a message about a field.
    fn add(&mut self, field: &str, message: impl Into<String>) {
        self.found.push(FieldReason { field: field.into(), message: message.into() });
    }

    /// Checks types and fields of the metadata, and the names.
    fn metadata(&mut self, document: &Document) {
        let none = json!({});
        let metadata = document.value.get("metadata").filter(|metadata| !metadata.is_null()).unwrap_or(&none);
        if self.reads::<ObjectMeta>("metadata", metadata) {
            self.known_alone("metadata", metadata, METADATA);
        }
        let text = |key: &str| metadata.get(key).filter(|value| !value.is_null() && **value != "");
        match (text("name"), text("generateName")) {
            (None, None) => self.add("metadata.name", "Required value: name or generateName is required"),
            (Some(name), _) if name.as_str().is_some_and(|name| !is_subdomain(name)) => {
                self.invalid("metadata.name", name, SUBDOMAIN);
            }
            _ => {}
        }
        let place = text("namespace").filter(|place| place.as_str().is_some_and(|place| !is_label(place)));
        if let Some(place) = place {
            self.invalid("metadata.namespace", place, LABEL);
        }
    }

    /// Checks types, fields and values of a `PriorityClass`.
    fn priority_class(&mut self, document: &Document) {
        let Document { value: whole, .. } = document;
        if !self.reads::<PriorityClass>("", whole) {
            return;
        }
        self.known_alone("", whole, PRIORITY_CLASS);
        let (name, value) = (document.name().unwrap_or_default(), whole.get("value"));
        if name.starts_with(RESERVED) {
            if !BUILT_IN.contains(&name) {
                let rule = "must not begin with system-, which is reserved for system use";
                self.invalid("metadata.name", &name.into(), rule);
            }
        } else if let Some(value) =
            value.filter(|value| value.as_i64().is_some_and(|value| value > HIGHEST_PRIORITY))
        {
            self.invalid("value", value, format!("must be at most {HIGHEST_PRIORITY}"));
        }
        if let Some(policy) = whole.get("preemptionPolicy").filter(|policy| !policy.is_null())
            && !["Never", "PreemptLowerPriority"].iter().any(|known| policy == known)
        {
            self.invalid("preemptionPolicy", policy, "must be Never or PreemptLowerPriority");
        }
    }

    /// True if a part of an object can be read as a type of Kubernetes. Otherwise adds the reason.
    fn reads<T: DeserializeOwned>(&mut self, path: &str, value: &Value) -> bool {
        let Err(error) = serde_path_to_error::deserialize::<_, T>(value) else { return true };
        let found = error.path().iter().try_fold(value, |value, segment| match segment {
            Segment::Map { key } => value.get(key),
            Segment::Seq { index } => value.get(index),
            Segment::Enum { .. } | Segment::Unknown => Some(value),
        });
        let (found, at) = (found.cloned().unwrap_or_default(), error.path().to_string());
        let field = joined(path, if at == "." { "" } else { &at });
        self.invalid(&field, &found, rule(&error.into_inner().to_string()));
        false
    }

    /// Refuses all fields but these, whose names are separated by spaces.
    fn known_alone(&mut self, path: &str, object: &Value, known: &str) {
        let known: Vec<&str> = known.split(' ').collect();
        for (key, value) in object.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            if !known.contains(&key.as_str()) {
                self.unknown(&joined(path, key), key, value, &known);
            }
        }
    }

    /// Checks the fields of an object by a schema.
    fn fields(&mut self, path: &str, written: &Map<String, Value>, schema: &JSONSchemaProps) {
        let properties = schema.properties.as_ref();
        for (key, value) in written.iter().filter(|(_, value)| !value.is_null()) {
            let field = joined(path, key);
            let of_map = match &schema.additional_properties {
                Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(&**schema),
                _ => None,
            };
            match properties.and_then(|all| all.get(key)).or(of_map) {
                Some(schema) => self.value(&field, value, schema),
                None if schema.x_kubernetes_preserve_unknown_fields == Some(true) => {}
                None => {
                    let known: Vec<&str> =
                        properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                    self.unknown(&field, key, value, &known);
                }
            }
        }
        for name in schema.required.iter().flatten().filter(|name| !written.contains_key(*name)) {
            self.add(&joined(path, name), "Required value");
        }
    }

    /// Checks a value by a schema: type, length, bounds and enumeration.
    fn value(&mut self, field: &str, value: &Value, schema: &JSONSchemaProps) {
        if let Some(rule) = wrong_type(value, schema) {
            return self.invalid(field, value, rule);
        }
        match value {
            Value::Object(written) => self.fields(field, written, schema),
            Value::Array(items) => {
                if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                    for (number, item) in items.iter().enumerate() {
                        self.value(&format!("{field}[{number}]"), item, schema);
                    }
                }
            }
            Value::String(text) => {
                let longest = schema.max_length.and_then(|longest| usize::try_from(longest).ok());
                if let Some(longest) = longest.filter(|longest| text.chars().count() > *longest) {
                    self.invalid(field, value, format!("must be at most {longest} characters"));
                }
            }
            Value::Number(number) => {
                let number = number.as_f64();
                if let Some(least) = schema.minimum.filter(|least| number.is_some_and(|it| it < *least)) {
                    self.invalid(field, value, format!("must be at least {least}"));
                }
                if let Some(most) = schema.maximum.filter(|most| number.is_some_and(|it| it > *most)) {
                    self.invalid(field, value, format!("must be at most {most}"));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        if let Some(known) = &schema.enum_
            && !known.iter().any(|known| known.0 == *value)
        {
            let known = known.iter().filter_map(|known| known.0.as_str());
            self.invalid(field, value, format!("must be {}", either(known)));
        }
    }

    /// Adds an unknown field, with a suggestion.
    fn unknown(&mut self, field: &str, key: &str, value: &Value, known: &[&str]) {
        let annotation =
            SPEC_ANNOTATIONS.iter().find(|(name, _)| self.in_v2 && field == format!("spec.{name}"));
        let instead = |(_, annotation): &(&str, &str)| {
            format!("v2 has annotation {annotation} instead, and scheduling.run.ai/v3alpha1 has the field")
        };
        let help = annotation.map_or_else(|| suggestion(key, known), instead);
        self.invalid(field, value, format!("unknown field: {help}"));
    }
}

/// The fields of any object's metadata.
const METADATA: &str = "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation labels managedFields name namespace ownerReferences resourceVersion selfLink uid";
/// The fields of a `PriorityClass`.
const PRIORITY_CLASS: &str = "apiVersion description globalDefault kind metadata preemptionPolicy value";
