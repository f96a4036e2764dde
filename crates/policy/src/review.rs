//! What is asked of which kind. Whoever reviews objects does it here, so that what is said of a file is what would be
//! said at admission.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use serde_path_to_error::{Path, Segment};
use tenure_types::{
    keys::{MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION, TOLERATION_SECONDS_ANNOTATION},
    runai::v3alpha1,
    tensorstack::v1beta1,
};

use crate::{
    admission::{self, Findings, priority_class},
    field::FieldError,
    floor::Floors,
    tree::QueueTree,
};

/// A tree of values takes twenty times the memory of its JSON.
const LARGEST_VALUE: usize = 256 * 1024;

/// Stands for the whole object where a field is named.
const OBJECT: &str = "object";

/// A kind of which something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reviewable {
    /// Queue of `scheduling.run.ai`.
    RunaiQueue,
    /// Queue of `scheduler.tensorstack.dev`.
    TensorstackQueue,
    /// `PriorityClass` of `scheduling.k8s.io`.
    PriorityClass,
}

/// What is known besides the object itself.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The queues of the run.ai family.
    pub tree: &'a QueueTree,
    /// The one namespace in which queues of the tensorstack family count.
    pub t9k_system_namespace: &'a str,
    /// What is configured about floors.
    pub floors: &'a Floors,
}

/// An object, as far as a review needs it.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A queue of the run.ai family.
    RunaiQueue {
        /// `metadata.name`; empty if it is to be generated.
        name: String,
        /// `spec`.
        spec: Box<v3alpha1::QueueSpec>,
    },
    /// A queue of the tensorstack family.
    TensorstackQueue {
        /// `metadata.namespace`.
        namespace: String,
        /// `spec`.
        spec: Box<v1beta1::QueueSpec>,
    },
    /// A priority class.
    PriorityClass {
        /// `value`.
        value: i32,
        /// `metadata.annotations`.
        annotations: BTreeMap<String, String>,
    },
}

/// The parts of a custom resource that a review needs.
#[derive(Deserialize)]
struct Resource<'b> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow, default, deserialize_with = "present")]
    spec: Option<&'b RawValue>,
}

/// Null is something, and none is what isn't there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
struct PriorityClass {
    #[serde(default)]
    metadata: Annotated,
    #[serde(default)]
    value: i32,
}

#[derive(Default, Deserialize)]
struct Annotated {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Reviewable {
    /// None if nothing is known of this kind, or of this group.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        let known = [Self::RunaiQueue, Self::TensorstackQueue, Self::PriorityClass];
        known.into_iter().find(|known| (known.group(), known.kind()) == (group, kind))
    }

    /// The kind's API group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::RunaiQueue => "scheduling.run.ai",
            Self::TensorstackQueue => "scheduler.tensorstack.dev",
            Self::PriorityClass => "scheduling.k8s.io",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::RunaiQueue | Self::TensorstackQueue => "Queue",
            Self::PriorityClass => "PriorityClass",
        }
    }

    /// Reads an object of this kind. Where `name` or `namespace` is empty, that in the object counts. An error names
    /// the field that can't be read.
    pub fn read(self, name: &str, namespace: &str, object: Option<&RawValue>) -> Result<Subject, FieldError> {
        let missing = || FieldError::invalid(OBJECT, Value::Null, "the request has no object");
        let object = object.ok_or_else(missing)?;
        let or = |given: &str, own: String| if given.is_empty() { own } else { given.into() };
        match self {
            Self::RunaiQueue => resource(object).map(|(metadata, spec)| Subject::RunaiQueue {
                name: or(name, metadata.name),
                spec: Box::new(spec),
            }),
            Self::TensorstackQueue => resource(object).map(|(metadata, spec)| Subject::TensorstackQueue {
                namespace: or(namespace, metadata.namespace),
                spec: Box::new(spec),
            }),
            Self::PriorityClass => {
                let PriorityClass { metadata, value } = decode(OBJECT, object)?;
                let annotations = metadata.annotations.unwrap_or_default();
                Ok(Subject::PriorityClass { value, annotations })
            }
        }
    }

    /// Whether a change from `old` to `new` leaves alone all that is a reason to refuse objects of this kind. False if
    /// it can't be told.
    pub fn is_unchanged(self, new: &RawValue, old: &RawValue) -> bool {
        let part = match self {
            Self::RunaiQueue | Self::TensorstackQueue => spec,
            Self::PriorityClass => tolerations,
        };
        part(new).is_some_and(|new| part(old) == Some(new))
    }
}

impl Subject {
    /// What is wrong with the object.
    pub fn review(&self, context: &Context<'_>) -> Findings {
        match self {
            Self::RunaiQueue { name, spec } => admission::runai(name, spec, context.tree, context.floors),
            Self::TensorstackQueue { namespace, spec } => {
                admission::tensorstack(namespace, spec, context.t9k_system_namespace)
            }
            Self::PriorityClass { value, annotations } => priority_class::review(*value, annotations),
        }
    }
}

fn resource<S: DeserializeOwned + Default>(object: &RawValue) -> Result<(Metadata, S), FieldError> {
    let Resource { metadata, spec } = decode(OBJECT, object)?;
    let spec = spec.map(|spec| decode("spec", spec)).transpose()?;
    Ok((metadata, spec.unwrap_or_default()))
}

fn spec(object: &RawValue) -> Option<Value> {
    let Resource { spec, .. } = serde_json::from_str(object.get()).ok()?;
    spec.map_or(Some(Value::Null), value)
}

fn tolerations(object: &RawValue) -> Option<Value> {
    let PriorityClass { metadata, .. } = serde_json::from_str(object.get()).ok()?;
    let annotations = metadata.annotations.unwrap_or_default();
    let keys = [MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION, TOLERATION_SECONDS_ANNOTATION];
    Some(keys.iter().map(|key| annotations.get(*key).cloned()).collect())
}

/// Decodes the object at `root`, and names the field if it doesn't.
fn decode<'b, T: Deserialize<'b>>(root: &str, raw: &'b RawValue) -> Result<T, FieldError> {
    // serde would read an array as well, field by field
    if !raw.get().starts_with('{') {
        return Err(FieldError::invalid_json(root, raw.get(), "must be an object"));
    }
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => root.into(),
            path if root == OBJECT => path,
            path => format!("{root}.{path}"),
        };
        let value = value_at(raw, error.path());
        let text = error.into_inner().to_string();
        let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
        match value {
            Some(value) => FieldError::invalid(field, value, detail),
            None => FieldError::invalid_json(field, raw.get(), detail),
        }
    })
}

/// None if it can't be told, being nested too deep or so large that looking would cost more than it tells.
fn value(raw: &RawValue) -> Option<Value> {
    (raw.get().len() <= LARGEST_VALUE).then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

fn value_at(raw: &RawValue, path: &Path) -> Option<Value> {
    let object = value(raw)?;
    let found = path.iter().try_fold(&object, |value, segment| match segment {
        Segment::Map { key } => value.get(key),
        Segment::Seq { index } => value.get(index),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    });
    found.cloned()
}

#[cfg(test)]
mod tests;
