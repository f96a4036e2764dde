//! Reads KAI-Scheduler's version of a queue, v2, as one of Tenure's own: annotations stand for the
//! fields that v2 lacks.

use std::collections::BTreeMap;

use tenure_types::{
    ExtendedDuration, GoDuration,
    runai::{FLOOR_ANNOTATIONS, OwnField, OwnFields, v2, v3alpha1},
};

use super::Inherited;
use crate::field::FieldError;

/// Returns spec and annotations as one spec of v3alpha1. Errors name annotations that can't be read
/// as their field. Floors stay as they are written, in Go's grammar.
pub fn as_v3alpha1(
    spec: &v2::QueueSpec,
    annotations: &BTreeMap<String, String>,
    errors: &mut Vec<FieldError>,
) -> v3alpha1::QueueSpec {
    v3alpha1::QueueSpec::complete(spec, &mut AnnotationReader { annotations, errors })
}

/// The annotations of a queue as the source of the fields that v2 lacks.
struct AnnotationReader<'a> {
    annotations: &'a BTreeMap<String, String>,
    errors: &'a mut Vec<FieldError>,
}

impl OwnFields for AnnotationReader<'_> {
    fn read<T: OwnField>(&mut self, _: &'static str, key: &'static str) -> Option<T> {
        let text = self.annotations.get(key)?.as_str();
        let wrong = |detail| FieldError::invalid(format!("metadata.annotations[{key}]"), text, detail);
        T::from_annotation(text).map_err(|detail| self.errors.push(wrong(detail))).ok()
    }
}

/// Returns warnings about annotations that hold a floor in v3alpha1's grammar although the field
/// says something else: v2's field counts.
pub fn without_effect(spec: &v3alpha1::QueueSpec, annotations: &BTreeMap<String, String>) -> Vec<String> {
    let warning = |(floor, (field, key)): (Inherited, (&str, &str))| {
        let text = annotations.get(key)?;
        let value = text.parse::<ExtendedDuration>().ok();
        let written = floor.written(spec).and_then(|floor| floor.parse().ok()).map(ExtendedDuration::from_go);
        (value.is_none() || value != written).then(|| {
            format!("metadata.annotations[{key}]: {text:?} has no effect: spec.{field} counts: write it there as a duration such as 90m or 48h, and remove the annotation")
        })
    };
    Inherited::ALL.into_iter().zip(FLOOR_ANNOTATIONS).filter_map(warning).collect()
}

/// Returns the errors of floors in days and weeks, which v3alpha1 has and clients of v2 can't read:
/// with one of them in a list, these clients can't read the list. Floors that no version can read
/// get their errors with the rest of the spec.
pub fn not_in_go(spec: &v2::QueueSpec) -> Vec<FieldError> {
    let error = |floor: Inherited| {
        let text = floor.pick(&spec.preempt_min_runtime, &spec.reclaim_min_runtime).as_ref()?.as_str();
        let value = text.parse::<ExtendedDuration>().ok().filter(|_| text.parse::<GoDuration>().is_err())?;
        let detail = format!("v2 has no days and weeks: must be {}, or written as v3alpha1", value.to_go());
        Some(FieldError::invalid(format!("spec.{}", floor.name()), text, detail))
    };
    Inherited::ALL.into_iter().filter_map(error).collect()
}

#[cfg(test)]
mod tests;
