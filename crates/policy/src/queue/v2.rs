//! KAI-Scheduler's version of a queue as one of Tenure's own: its annotations stand for the fields that it lacks.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_types::{
    ExtendedDuration, GoDuration, Written,
    runai::{
        FLOOR_ANNOTATIONS, QueueVersion, SPEC_ANNOTATIONS,
        v2::{self, QueueResource},
        v3alpha1,
    },
};

use super::{Inherited, ON_REVERSAL_EXPECTED};
use crate::field::FieldError;

/// Returns spec and annotations as one spec of v3alpha1, and the annotations that can't be a field of it. Floors stay
/// as they are written, in Go's grammar.
pub fn as_v3alpha1(
    spec: &v2::QueueSpec,
    annotations: &BTreeMap<String, String>,
    errors: &mut Vec<FieldError>,
) -> v3alpha1::QueueSpec {
    let text = |field| annotation(field, annotations).map(Written::from);
    let extended = |floor: &Option<Written<GoDuration>>| floor.as_ref().map(|text| text.as_str().into());
    v3alpha1::QueueSpec {
        display_name: spec.display_name.clone(),
        parent_queue: spec.parent_queue.clone(),
        // its range is KAI's affair
        priority: spec.priority.and_then(|priority| priority.try_into().ok()),
        preempt_min_runtime: extended(&spec.preempt_min_runtime),
        reclaim_min_runtime: extended(&spec.reclaim_min_runtime),
        max_duration: text("maxDuration"),
        expiry_notice: annotation("expiryNotice", annotations).map(Written::from),
        max_duration_action: one_of("maxDurationAction", "must be Pause or Requeue", annotations, errors),
        requeue_delay: text("requeueDelay"),
        on_reversal: one_of("onReversal", ON_REVERSAL_EXPECTED, annotations, errors),
        over_ceiling: one_of("overCeiling", "must be Warn or Refuse", annotations, errors),
        wait_for_pods_ready: json_object("waitForPodsReady", "{\"timeout\":\"5m\"}", annotations, errors),
        extensions: json_object("extensions", "{\"maxTotal\":\"8h\"}", annotations, errors),
        resources: spec.resources.as_ref().map(|resources| v3alpha1::QueueResources {
            cpu: resources.cpu.as_ref().map(resource),
            gpu: resources.gpu.as_ref().map(resource),
            memory: resources.memory.as_ref().map(resource),
        }),
    }
}

/// Annotations that hold a floor in v3alpha1's grammar although the field says something else: v2's field counts.
pub fn without_effect(spec: &v3alpha1::QueueSpec, annotations: &BTreeMap<String, String>) -> Vec<String> {
    let told = |(floor, (field, key)): (Inherited, (&str, &str))| {
        let text = annotations.get(key)?;
        let value = text.parse::<ExtendedDuration>().ok();
        let written = floor.written(spec).and_then(|floor| floor.parse().ok()).map(ExtendedDuration::from_go);
        (value.is_none() || value != written).then(|| {
            format!("metadata.annotations[{key}]: {text:?} has no effect: spec.{field} counts: write it there as a duration such as 90m or 48h, and remove the annotation")
        })
    };
    Inherited::ALL.into_iter().zip(FLOOR_ANNOTATIONS).filter_map(told).collect()
}

/// Floors in days and weeks, which v3alpha1 has and clients of v2 can't read: with one of them in a list, they can't
/// read the list. What no version takes is found where the rest of the spec is read.
pub fn not_in_go(spec: &v2::QueueSpec) -> Vec<FieldError> {
    let error = |floor: Inherited| {
        let text = floor.pick(&spec.preempt_min_runtime, &spec.reclaim_min_runtime).as_ref()?.as_str();
        let value = text.parse::<ExtendedDuration>().ok().filter(|_| text.parse::<GoDuration>().is_err())?;
        let detail = format!("v2 has no days and weeks: must be {value}, or written as v3alpha1");
        Some(FieldError::invalid(format!("spec.{}", floor.name()), text, detail))
    };
    Inherited::ALL.into_iter().filter_map(error).collect()
}

fn resource(resource: &QueueResource) -> v3alpha1::QueueResource {
    let &QueueResource { quota, over_quota_weight, limit } = resource;
    v3alpha1::QueueResource { quota, over_quota_weight, limit }
}

/// Returns the annotation that stands for a field.
fn annotation<'a>(field: &str, annotations: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let (_, key) = SPEC_ANNOTATIONS.into_iter().find(|(known, _)| *known == field)?;
    annotations.get(key).map(String::as_str)
}

/// Reads the annotation that stands for a field which holds one of a few words.
fn one_of<T: DeserializeOwned>(
    field: &str,
    expected: &str,
    annotations: &BTreeMap<String, String>,
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    let text = annotation(field, annotations)?;
    let wrong = |_| FieldError::invalid(QueueVersion::V2.path(field), text, expected);
    serde_json::from_value(Value::from(text)).map_err(|error| errors.push(wrong(error))).ok()
}

/// Reads the annotation that stands for a field which is an object.
fn json_object<T: DeserializeOwned>(
    field: &str,
    example: &str,
    annotations: &BTreeMap<String, String>,
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    let text = annotation(field, annotations)?;
    // serde would read a list as well, field by field
    let is_object = text.trim_start().starts_with('{');
    let read = || serde_json::from_str(text).map_err(|error| error.to_string());
    let value = if is_object { read() } else { Err("not an object".into()) };
    let wrong = |error: String| {
        let detail = format!("must be JSON, what spec.{field} is in v3alpha1, such as {example}: {error}");
        FieldError::invalid(QueueVersion::V2.path(field), text, detail)
    };
    value.map_err(|error| errors.push(wrong(error))).ok()
}

#[cfg(test)]
mod tests;
