//! Reads from an owner the times that it asks for, and the labels and annotations that name the
//! queues of its pods.
//!
//! The webhook calls [`AskingOwner::read`]. Objects are read in little memory, without a tree of
//! their values: a tenant may write objects of megabytes, with tens of thousands of templates.

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
    owner_table::OwnerShape,
};

/// The most different places that are kept of an owner's templates. Further places don't count.
const MOST_PLACES: usize = 64;

/// The priority classes of pods that are never touched, in any queue.
const EXEMPT_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

const DEADLINE: &str = "activeDeadlineSeconds";

/// A field that asks for a time to run. Of each field, only the longest time is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum AskingField {
    /// `activeDeadlineSeconds` of a Job's spec, or the deadline in seconds of another kind.
    Deadline,
    /// `activeDeadlineSeconds` of a pod template.
    PodDeadline,
    /// `tenure.dev/max-duration` of the owner.
    Annotation,
    /// `tenure.dev/max-duration` of a pod template.
    PodAnnotation,
    /// Kueue's label for the longest run, of the owner.
    Label,
    /// Kueue's label for the longest run, of a pod template.
    PodLabel,
}

/// The value of a field that asks for a time to run.
#[derive(Clone, Debug, Hash)]
enum RawTime<'b> {
    Seconds(i64),
    Text(Cow<'b, str>),
}

/// A time to run that an owner asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedTime {
    /// The path of the field, as errors have it.
    pub field: String,
    /// The value of the field: a number or a text.
    pub value: Value,
    /// The time that the value stands for.
    pub time: SignedDuration,
    /// True if the field has whole seconds. False: the field has a duration such as `1h30m`.
    pub in_seconds: bool,
}

/// The times to run that an owner asks for, and the places of its pods.
#[derive(Clone, Debug, Default)]
pub struct AskingOwner {
    /// The times that the owner asks for and didn't ask for before: the longest of each field.
    pub(super) asks: BTreeMap<AskingField, AskedTime>,
    /// The errors of annotations that break a rule: the first of each field.
    pub(super) unreadable: BTreeMap<AskingField, FieldError>,
    /// The places of its pod templates. If the templates name no queue: the place of the owner's
    /// own labels and annotations, which KAI-Scheduler's podgrouper reads for the pods.
    pub(super) places: BTreeSet<PodPlace>,
    /// True if a pod of the owner is never touched, by its priority class.
    has_exempt: bool,
    /// True if Kubernetes' own scheduler places a pod of the owner. Then labels of the owner don't
    /// count.
    reads_pods_alone: bool,
    /// The queue of T9k in the owner's spec, which its controller gives to the `PodGroup`.
    pub(super) t9k_queue: Option<String>,
}

impl AskingOwner {
    /// Reads an owner that is created, or that is changed from `old`. None: the change asks for
    /// nothing new, another owner controls this one and has been answered, or the owner is being
    /// deleted.
    pub fn read(shape: &OwnerShape, new: &RawValue, old: Option<&RawValue>) -> Option<Self> {
        let mut known = HashSet::new();
        let mut note = |identity| {
            known.insert(identity);
            false
        };
        if let Some(old) = old {
            ObjectPass { owner: Self::default(), is_new: &mut note }.parts(shape, old);
        }
        let mut reading =
            ObjectPass { owner: Self::default(), is_new: &mut |identity| !known.contains(&identity) };
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

/// A pass over an object. The pass over the old object only notes its requests.
struct ObjectPass<'r> {
    owner: AskingOwner,
    /// Returns true if an ask counts, by the hash of its field and value.
    is_new: &'r mut dyn FnMut(u64) -> bool,
}

impl ObjectPass<'_> {
    /// Reads each part of an owner on which the times and places depend.
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

    /// Reads the spec of a Job. The deadline of a Job is for all its pods together, so it says
    /// nothing about a run if the pods run one after the other.
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

    /// Reads a pod template. A template of an exempt class asks for nothing, and names no queue.
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

    /// Reads the metadata of a pod template.
    fn pod(&mut self, at: &FieldPlace<'_>, metadata: &RawValue) {
        let [labels, annotations] = fields(metadata, ["labels", "annotations"]);
        self.annotation(AskingField::PodAnnotation, at, annotations);
        self.label(AskingField::PodLabel, at, labels);
        if self.owner.places.len() < MOST_PLACES {
            self.owner.places.extend(PodPlace::read(labels, annotations));
        }
    }

    /// Notes a number of seconds. Anything but a positive whole number asks for nothing.
    fn deadline(&mut self, field: AskingField, place: &dyn Fn() -> String, seconds: Option<&RawValue>) {
        if let Some(seconds) = seconds.and_then(number).filter(|seconds| *seconds > 0) {
            self.ask(field, place, RawTime::Seconds(seconds));
        }
    }

    /// Notes the annotation `tenure.dev/max-duration`.
    fn annotation(&mut self, field: AskingField, at: &FieldPlace<'_>, annotations: Option<&RawValue>) {
        let key = keys::MAX_DURATION_ANNOTATION;
        let [value] = annotations.map_or([None], |annotations| fields(annotations, [key]));
        if let Some(text) = value.and_then(text) {
            self.ask(field, &|| format!("{at}.annotations[{key}]"), RawTime::Text(text));
        }
    }

    /// Notes Kueue's label. Anything but a positive whole number of seconds asks for nothing.
    fn label(&mut self, field: AskingField, at: &FieldPlace<'_>, labels: Option<&RawValue>) {
        let key = keys::KUEUE_MAX_EXEC_TIME_LABEL;
        let [value] = labels.map_or([None], |labels| fields(labels, [key]));
        let seconds = value.and_then(text).and_then(|text| text.parse().ok());
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            self.ask(field, &|| format!("{at}.labels[{key}]"), RawTime::Seconds(seconds));
        }
    }

    /// Notes an ask, unless the old object has the same. `place` returns the path of the field; it
    /// is called only if the path is needed.
    fn ask(&mut self, field: AskingField, place: &dyn Fn() -> String, asked: RawTime<'_>) {
        let mut hasher = DefaultHasher::new();
        (field, &asked).hash(&mut hasher);
        if !(self.is_new)(hasher.finish()) {
            return;
        }
        let AskingOwner { asks, unreadable, .. } = &mut self.owner;
        let in_seconds = matches!(asked, RawTime::Seconds(_));
        let (value, time, error) = match asked {
            RawTime::Seconds(seconds) => {
                (Value::from(seconds), Some(SignedDuration::from_secs(seconds)), None)
            }
            RawTime::Text(text) => {
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

/// True if another object controls this one, or if this one is being deleted.
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
