//! Reads of an owner what it asks for, and where its pods will be. In one pass, and in little memory: a tenant may write
//! objects of megabytes, with tens of thousands of templates.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::SignedDuration;
use serde_json::{Value, value::RawValue};
use tenure_types::{ExtendedDuration, keys};

use super::{
    place::{PodPlace, bounded},
    raw::{FieldPlace, each, fields, number, text, walk},
};
use crate::{
    expiry::{OwnCeiling, own_ceiling},
    field::FieldError,
    owners::OwnerShape,
};

/// The most templates that differ in the queue that they name. Of an object with more, these count.
const MOST_PLACES: usize = 64;

/// Classes of pods that are never touched, in any queue.
const EXEMPT_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

const DEADLINE: &str = "activeDeadlineSeconds";

/// A field that asks for a time to run. Of each the longest is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum AskingField {
    Deadline,
    PodDeadline,
    Annotation,
    PodAnnotation,
    /// Kueue's label.
    Label,
    PodLabel,
}

/// The value of such a field.
#[derive(Clone, Debug, Hash)]
enum Asked<'b> {
    Seconds(i64),
    Text(Cow<'b, str>),
}

/// A time that an owner asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedTime {
    /// The path of the field.
    pub field: String,
    /// Its value.
    pub value: Value,
    /// The time.
    pub time: SignedDuration,
    /// True if the field has seconds; false if it has a duration as people write it.
    pub in_seconds: bool,
}

/// An owner that asks for a time to run, as its creator or a change of it says.
#[derive(Clone, Debug, Default)]
pub struct AskingOwner {
    /// The times that it asks for, and did not ask for before: the longest of each field.
    pub(super) asks: BTreeMap<AskingField, AskedTime>,
    /// Annotations that can't be read: the first of each field.
    pub(super) unreadable: BTreeMap<AskingField, FieldError>,
    /// The templates of its pods. If these name nothing, its own labels, which KAI-Scheduler's podgrouper reads for its pods.
    pub(super) places: BTreeSet<PodPlace>,
    /// True if a pod of it is never touched.
    has_exempt: bool,
    /// True if Kubernetes' own scheduler places a pod of it: then no label of the owner counts.
    reads_pods_alone: bool,
    /// The queue of T9k that its controller is told.
    pub(super) t9k_queue: Option<String>,
}

impl AskingOwner {
    /// Reads an owner that is created, or changed from an old one. None if it is changed and asks for nothing that it did not ask
    /// for before, if another owner controls it, which has been answered, or if it is being deleted.
    pub fn read(shape: &OwnerShape, new: &RawValue, old: Option<&RawValue>) -> Option<Self> {
        let mut known = HashSet::new();
        let mut note = |identity| {
            known.insert(identity);
            false
        };
        if let Some(old) = old {
            Reading { owner: Self::default(), is_new: &mut note }.parts(shape, old);
        }
        let mut reading =
            Reading { owner: Self::default(), is_new: &mut |identity| !known.contains(&identity) };
        reading.parts(shape, new);
        let mut owner = reading.owner;
        let asks_nothing = owner.asks.is_empty() && owner.unreadable.is_empty();
        if (asks_nothing && old.is_some()) || is_controlled_or_going(new) {
            return None;
        }
        walk(new, shape.t9k_queue, &mut |_, name| owner.t9k_queue = text(name).and_then(bounded));
        if owner.places.is_empty() && !owner.has_exempt && !owner.reads_pods_alone {
            walk(new, shape.owner, &mut |_, metadata| {
                let [labels, annotations] = fields(metadata, ["labels", "annotations"]);
                owner.places.extend(PodPlace::read(labels, annotations));
            });
        }
        Some(owner)
    }
}

/// A pass over an object.
struct Reading<'r> {
    owner: AskingOwner,
    /// Returns true for the identity of an ask that counts.
    is_new: &'r mut dyn FnMut(u64) -> bool,
}

impl Reading<'_> {
    /// Reads each part of an owner that an answer depends on.
    fn parts(&mut self, shape: &OwnerShape, object: &RawValue) {
        let OwnerShape { owner, jobs, templates, metadata, deadlines, t9k_queue: _ } = shape;
        walk(object, owner, &mut |at, metadata| {
            let [labels, annotations] = fields(metadata, ["labels", "annotations"]);
            self.annotation(AskingField::Annotation, at, annotations);
            self.label(AskingField::Label, at, labels);
        });
        for path in *jobs {
            walk(object, path, &mut |at, spec| self.job(at, spec));
        }
        for path in *templates {
            walk(object, path, &mut |at, template| self.template(at, template));
        }
        for path in *metadata {
            walk(object, path, &mut |at, metadata| self.pod(at, metadata));
        }
        for path in *deadlines {
            walk(object, path, &mut |at, seconds| {
                self.deadline(AskingField::Deadline, &|| at.to_string(), Some(seconds));
            });
        }
    }

    /// The deadline of a Job counts for all its pods. So it says nothing of a run where they run one after the other.
    fn job(&mut self, at: &FieldPlace<'_>, spec: &RawValue) {
        let [seconds, completions, parallelism, template] =
            fields(spec, [DEADLINE, "completions", "parallelism", "template"]);
        let number = |value: Option<&RawValue>| value.and_then(number);
        let at_once = number(parallelism).unwrap_or(1).max(1);
        if number(completions).unwrap_or(1) <= at_once {
            self.deadline(AskingField::Deadline, &|| format!("{at}.{DEADLINE}"), seconds);
        }
        if let Some(template) = template {
            self.template(&FieldPlace::new(Some(at), "template"), template);
        }
    }

    fn template(&mut self, at: &FieldPlace<'_>, template: &RawValue) {
        let [metadata, spec] = fields(template, ["metadata", "spec"]);
        let [seconds, class, scheduler] =
            spec.map_or([None; 3], |spec| fields(spec, [DEADLINE, "priorityClassName", "schedulerName"]));
        let scheduler = scheduler.and_then(text).unwrap_or_default();
        self.owner.reads_pods_alone |= ["", "default-scheduler"].contains(&&*scheduler);
        if class.and_then(text).is_some_and(|class| EXEMPT_CLASSES.contains(&&*class)) {
            self.owner.has_exempt = true;
            return;
        }
        let spec = FieldPlace::new(Some(at), "spec");
        self.deadline(AskingField::PodDeadline, &|| format!("{spec}.{DEADLINE}"), seconds);
        if let Some(metadata) = metadata {
            self.pod(&FieldPlace::new(Some(at), "metadata"), metadata);
        }
    }

    fn pod(&mut self, at: &FieldPlace<'_>, metadata: &RawValue) {
        let [labels, annotations] = fields(metadata, ["labels", "annotations"]);
        self.annotation(AskingField::PodAnnotation, at, annotations);
        self.label(AskingField::PodLabel, at, labels);
        if self.owner.places.len() < MOST_PLACES {
            self.owner.places.extend(PodPlace::read(labels, annotations));
        }
    }

    fn deadline(&mut self, field: AskingField, place: &dyn Fn() -> String, seconds: Option<&RawValue>) {
        if let Some(seconds) = seconds.and_then(number).filter(|seconds| *seconds > 0) {
            self.ask(field, place, Asked::Seconds(seconds));
        }
    }

    fn annotation(&mut self, field: AskingField, at: &FieldPlace<'_>, annotations: Option<&RawValue>) {
        let key = keys::MAX_DURATION_ANNOTATION;
        let [value] = annotations.map_or([None], |annotations| fields(annotations, [key]));
        if let Some(text) = value.and_then(text) {
            self.ask(field, &|| format!("{at}.annotations[{key}]"), Asked::Text(text));
        }
    }

    fn label(&mut self, field: AskingField, at: &FieldPlace<'_>, labels: Option<&RawValue>) {
        let key = keys::KUEUE_MAX_EXEC_TIME_LABEL;
        let [value] = labels.map_or([None], |labels| fields(labels, [key]));
        let seconds = value.and_then(text).and_then(|text| text.parse().ok());
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            self.ask(field, &|| format!("{at}.labels[{key}]"), Asked::Seconds(seconds));
        }
    }

    fn ask(&mut self, field: AskingField, place: &dyn Fn() -> String, asked: Asked<'_>) {
        let mut hasher = DefaultHasher::new();
        (field, &asked).hash(&mut hasher);
        if !(self.is_new)(hasher.finish()) {
            return;
        }
        let AskingOwner { asks, unreadable, .. } = &mut self.owner;
        let in_seconds = matches!(asked, Asked::Seconds(_));
        let (value, time, error) = match asked {
            Asked::Seconds(seconds) => (Value::from(seconds), Some(SignedDuration::from_secs(seconds)), None),
            Asked::Text(text) => {
                let OwnCeiling { counts, error } = own_ceiling(&text);
                (Value::from(&*text), counts.map(ExtendedDuration::to_signed), error)
            }
        };
        if let Some(error) = error {
            let error = || FieldError::invalid(place(), value.clone(), error);
            unreadable.entry(field).or_insert_with(error);
        }
        if let Some(time) = time.filter(|time| asks.get(&field).is_none_or(|longest| longest.time < *time)) {
            asks.insert(field, AskedTime { field: place(), value, time, in_seconds });
        }
    }
}

fn is_controlled_or_going(object: &RawValue) -> bool {
    let [metadata] = fields(object, ["metadata"]);
    let Some(metadata) = metadata else { return false };
    let [owners, deleted] = fields(metadata, ["ownerReferences", "deletionTimestamp"]);
    let mut is_controlled = false;
    if let Some(owners) = owners {
        each(owners, &mut |_, owner| {
            let [controls] = fields(owner, ["controller"]);
            is_controlled |= controls.is_some_and(|controls| controls.get() == "true");
        });
    }
    is_controlled || deleted.and_then(text).is_some()
}
