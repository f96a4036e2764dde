//! Reviews of objects by their kind, for admission and the command line: so a file is judged as at
//! admission.
//!
//! The webhook and the plugin's `validate` read an object once as a [`Subject`], and ask it for
//! errors and warnings.

pub(crate) mod object;

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};
use tenure_types::{
    keys,
    runai::{QueueVersion, SPEC_ANNOTATIONS},
    tensorstack::v1beta1,
};

use crate::{
    admission::{self, Findings, RunaiSubject, priority_class},
    delegation::{DelegationBounds, QueueChange},
    field::FieldError,
    inheritance::Inheritance,
    queue::{self, RunaiQueue},
    queue_change::QueueChangeFacts,
    tree::Inherited,
};

use object::{PriorityClass, decode, in_v2, reasons, resource};

/// The largest JSON, in bytes, that is read as a tree of values: a tree takes twenty times the
/// memory of its JSON.
const LARGEST_VALUE: usize = 256 * 1024;

/// The name of the field in an error about the whole object.
const OBJECT: &str = "object";

/// A kind that can be reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reviewable {
    /// Queue of `scheduling.run.ai`.
    RunaiQueue,
    /// Queue of `scheduling.run.ai` in KAI-Scheduler's version, v2.
    RunaiQueueV2,
    /// Queue of `scheduler.tensorstack.dev`.
    TensorstackQueue,
    /// `PriorityClass` of `scheduling.k8s.io`.
    PriorityClass,
}

/// The facts that a review needs besides the object itself.
#[derive(Clone, Copy, Debug)]
pub struct ReviewFacts<'a> {
    /// The queues of the run.ai family, and the configuration of floors.
    pub queues: &'a Inheritance<'a>,
    /// The only namespace in which queues of the tensorstack family count.
    pub t9k_system_namespace: &'a str,
    /// The longest floors that queues may have, by part of the tree.
    pub bounds: &'a DelegationBounds,
}

/// An object, as far as a review needs it. It is read once.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A queue of the run.ai family, and the errors of its floors as clients of v2 will see them.
    RunaiQueue(Box<RunaiSubject>, Vec<FieldError>),
    /// A queue of the tensorstack family.
    TensorstackQueue {
        /// `metadata.name`; empty if it is to be generated.
        name: String,
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

impl Reviewable {
    /// Returns the kind. None: objects of this kind aren't reviewed. Where versions differ in
    /// meaning, each is a kind of its own.
    pub fn of(group: &str, version: &str, kind: &str) -> Option<Self> {
        let known = [Self::RunaiQueue, Self::TensorstackQueue, Self::PriorityClass];
        let known = known.into_iter().find(|known| (known.group(), known.kind()) == (group, kind))?;
        let is_v2 = known == Self::RunaiQueue && version == QueueVersion::V2.name();
        Some(if is_v2 { Self::RunaiQueueV2 } else { known })
    }

    /// Returns the API group of the kind.
    pub const fn group(self) -> &'static str {
        match self {
            Self::RunaiQueue | Self::RunaiQueueV2 => "scheduling.run.ai",
            Self::TensorstackQueue => "scheduler.tensorstack.dev",
            Self::PriorityClass => "scheduling.k8s.io",
        }
    }

    /// Returns the name of the kind, the same for all its versions.
    const fn kind(self) -> &'static str {
        match self {
            Self::RunaiQueue | Self::RunaiQueueV2 | Self::TensorstackQueue => "Queue",
            Self::PriorityClass => "PriorityClass",
        }
    }

    /// Reads an object of this kind. `name` and `namespace` are those of the request; if they are
    /// empty, those of the object count. An error names the field.
    pub fn read(self, name: &str, namespace: &str, object: Option<&RawValue>) -> Result<Subject, FieldError> {
        let missing = || FieldError::invalid(OBJECT, Value::Null, "the request has no object");
        let object = object.ok_or_else(missing)?;
        let or = |given: &str, own: String| if given.is_empty() { own } else { given.into() };
        match self {
            Self::RunaiQueue => resource(object).map(|(metadata, spec)| {
                let is_carrier = metadata.annotations.contains_key(keys::QUEUE_FROM_V2_ANNOTATION);
                let in_v2 = is_carrier.then(|| in_v2(object)).flatten();
                let queue = RunaiSubject::new(or(name, metadata.name), spec, metadata.annotations);
                Subject::RunaiQueue(queue.into(), in_v2.iter().flat_map(queue::v2::not_in_go).collect())
            }),
            Self::RunaiQueueV2 => resource(object).map(|(metadata, spec)| {
                let queue = RunaiSubject::new_v2(or(name, metadata.name), &spec, metadata.annotations);
                Subject::RunaiQueue(queue.into(), Vec::new())
            }),
            Self::TensorstackQueue => resource(object).map(|(metadata, spec)| Subject::TensorstackQueue {
                name: or(name, metadata.name),
                namespace: or(namespace, metadata.namespace),
                spec: Box::new(spec),
            }),
            Self::PriorityClass => {
                let PriorityClass { metadata, value } = decode(OBJECT, object)?;
                Ok(Subject::PriorityClass { value, annotations: metadata.annotations })
            }
        }
    }

    /// True if a change touches none of the parts for which an object of this kind may be refused.
    /// False if an object can't be read.
    pub fn is_unchanged(self, new: &RawValue, old: &RawValue) -> bool {
        let keys: &[&str] = match self {
            // the v2 object that the annotation holds may have other texts for its floors
            Self::RunaiQueue => &[keys::QUEUE_FROM_V2_ANNOTATION],
            Self::RunaiQueueV2 => &SPEC_ANNOTATIONS.map(|(_, key)| key),
            Self::TensorstackQueue => &[],
            Self::PriorityClass => {
                &[keys::MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION, keys::TOLERATION_SECONDS_ANNOTATION]
            }
        };
        reasons(new, keys).is_some_and(|new| reasons(old, keys) == Some(new))
    }
}

impl Subject {
    /// Returns the errors and warnings of the object by itself and among the known queues.
    pub fn review(&self, context: &ReviewFacts<'_>) -> Findings {
        match self {
            Self::RunaiQueue(queue, errors_in_v2) => {
                let mut findings = queue.review(context.queues);
                findings.errors.extend_from_slice(errors_in_v2);
                findings
            }
            Self::TensorstackQueue { namespace, spec, .. } => {
                admission::tensorstack(namespace, spec, context.t9k_system_namespace)
            }
            Self::PriorityClass { value, annotations } => priority_class::review(*value, annotations),
        }
    }

    /// Returns the error that only a creation has. A stored object with this error may stay, and
    /// may be changed.
    pub fn created(&self) -> Option<FieldError> {
        match self {
            Self::RunaiQueue(queue, _) => queue::too_long(&queue.name),
            Self::TensorstackQueue { name, .. } => queue::too_long(name),
            Self::PriorityClass { .. } => None,
        }
    }

    /// Returns the warning of a change that ends runs, with their number as far as it is known.
    /// None: it ends none. `old` is the stored object, None for a creation.
    pub fn ended(&self, old: Option<&Self>, known: &QueueChangeFacts<'_, '_>) -> Option<String> {
        let version = self.runai()?.version;
        let QueueChange { name, new, old } = self.change(old)?;
        let is_moved = |old: &RunaiQueue| old.ceiling == new.ceiling && old.parent != new.parent;
        let field = if old.is_some_and(is_moved) { "parentQueue" } else { "maxDuration" };
        known.ended(&version.path(field), name, new, old)
    }

    /// Returns the warnings of a deletion.
    pub fn deleted(&self, known: &QueueChangeFacts<'_, '_>) -> Vec<String> {
        self.runai().map_or_else(Vec::new, |queue| known.deleted(&queue.name))
    }

    /// Returns the errors of floors that the object, or a change of it, sets beyond the bounds of
    /// its part of the tree. `old` is the stored object, None for a creation.
    ///
    /// Apart from [`Self::review`], because a stored floor beyond the bounds doesn't excuse a new
    /// one.
    pub fn beyond_bounds(&self, old: Option<&Self>, context: &ReviewFacts<'_>) -> Vec<FieldError> {
        let ReviewFacts { queues: Inheritance { tree, floors, .. }, bounds, .. } = context;
        let written = |field: Inherited| field.written(&self.runai()?.spec);
        let change = self.change(old);
        change.map_or_else(Vec::new, |change| bounds.exceeded(&change, written, tree, floors))
    }

    /// Returns the errors of queues below this one, which the change brings beyond their bounds.
    pub fn brought_beyond_bounds(&self, old: Option<&Self>, context: &ReviewFacts<'_>) -> Vec<FieldError> {
        let change = self.change(old);
        change.map_or_else(Vec::new, |change| context.bounds.brought(&change, context.queues.tree))
    }

    /// True if the change gives a queue another parent.
    pub fn moves(&self, old: Option<&Self>) -> bool {
        self.change(old).is_some_and(|change| change.is_moved())
    }

    /// Returns the change of a queue of the run.ai family. None for other objects.
    fn change<'s>(&'s self, old: Option<&'s Self>) -> Option<QueueChange<'s>> {
        let RunaiSubject { name, queue: new, .. } = self.runai()?;
        Some(QueueChange { name, new, old: old.and_then(Self::runai).map(|old| &old.queue) })
    }

    fn runai(&self) -> Option<&RunaiSubject> {
        match self {
            Self::RunaiQueue(queue, _) => Some(queue),
            Self::TensorstackQueue { .. } | Self::PriorityClass { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
