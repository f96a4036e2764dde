//! Keeps fields of v3alpha1 when a client of Queue v2 replaces a queue. In v2 these fields are
//! annotations, which the client may not know: without this, its write would unset the fields.
//!
//! The webhook's mutation of queues calls [`kept`] for each write in v2, and adds the annotations
//! to the object.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};
use tenure_types::{
    keys,
    runai::{FLOOR_ANNOTATIONS, SPEC_ANNOTATIONS},
};

use crate::{
    field::FieldError,
    review::object::{Metadata, Resource, value},
};

/// The two forms of a queue's notices. They can't be set beside each other, so a form that a client
/// writes replaces the other.
const NOTICES: [&str; 2] = ["expiryNotice", "expiryNotices"];

/// The completion of a write in v2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct V2Completion {
    /// The annotations to set or remove: with a text, the object lacks it or has another text; with
    /// None, it is to be removed.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The warnings to the user about fields that were kept.
    pub warnings: Vec<String>,
}

/// The parts of a queue of v2 that matter here.
#[derive(Default)]
struct Queue {
    name: String,
    annotations: BTreeMap<String, String>,
    spec: Value,
}

impl Queue {
    fn read(raw: &RawValue) -> Option<Self> {
        let Resource { metadata, spec } = serde_json::from_str(raw.get()).ok()?;
        let Metadata { name, annotations, .. } = metadata;
        Some(Self { name, annotations, spec: spec.and_then(value).unwrap_or_default() })
    }
}

/// Returns the annotations that a write of `new` over `old`, both of v2, would lose or set although
/// v2 has no field for them. `old` is None for a creation.
///
/// Changed values are kept as written: a client that changes them knows them. An object that can't
/// be read is left to the API server.
pub fn kept(new: &RawValue, old: Option<&RawValue>) -> V2Completion {
    let old = old.map_or_else(|| Some(Queue::default()), Queue::read);
    let Some((new, old)) = Queue::read(new).zip(old) else {
        return V2Completion::default();
    };
    let mut kept = V2Completion::default();
    let mut keep = |key: &str, text: Option<&String>| kept.annotations.insert(key.into(), text.cloned());
    let lost = |key| old.annotations.get(key).filter(|_| !new.annotations.contains_key(key));
    let has_notice = SPEC_ANNOTATIONS
        .iter()
        .any(|(field, key)| NOTICES.contains(field) && new.annotations.contains_key(*key));
    for (field, key) in SPEC_ANNOTATIONS {
        let is_replaced = has_notice && NOTICES.contains(&field);
        if let Some(text) = lost(key).filter(|_| !is_replaced) {
            keep(key, Some(text));
            kept.warnings.push(warning(field, text, &old.name));
        }
    }
    // the annotation of a floor means nothing beside another floor
    for (field, key) in FLOOR_ANNOTATIONS {
        let floor = |of: &Queue| of.spec.get(field).cloned().unwrap_or_default();
        let text = old.annotations.get(key);
        if floor(&old) == floor(&new) {
            if let Some(text) = lost(key) {
                keep(key, Some(text));
            }
        } else if text.is_some() && text == new.annotations.get(key) {
            keep(key, None);
        }
    }
    // writers of the object may not write its status, and the status subresource takes no
    // annotations
    let status = keys::QUEUE_STATUS_ANNOTATION;
    if new.annotations.get(status) != old.annotations.get(status) {
        keep(status, old.annotations.get(status));
    }
    if let Some(text) = lost(keys::QUEUE_FROM_V3ALPHA1_ANNOTATION) {
        keep(keys::QUEUE_FROM_V3ALPHA1_ANNOTATION, Some(text));
    }
    kept
}

fn warning(field: &str, text: &str, name: &str) -> String {
    let FieldError { field, value, .. } = FieldError::invalid(format!("spec.{field}"), text, "");
    format!(
        "tenure: kept {field} {value}, which v2 doesn't have: to remove it, use v3alpha1: kubectl edit queues.v3alpha1.scheduling.run.ai {name}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::to_raw_value};

    use super::*;

    fn kept_of(new: &Value, old: &Value) -> V2Completion {
        kept(&to_raw_value(new).unwrap(), Some(&to_raw_value(old).unwrap()))
    }

    fn queue(spec: Value, annotations: Value) -> Value {
        let mut queue = json!({"metadata": {"name": "a"}});
        queue["spec"] = spec;
        queue["metadata"]["annotations"] = annotations;
        queue
    }

    #[test]
    fn what_stands_for_a_field_is_kept_and_reported() {
        let old = queue(json!({}), json!({"tenure.dev/max-duration": "1h", "other": "x"}));
        for annotations in [json!(null), json!({}), json!({"other": "y"})] {
            let V2Completion { annotations, warnings } = kept_of(&queue(json!({}), annotations), &old);
            assert_eq!(annotations, BTreeMap::from([("tenure.dev/max-duration".into(), Some("1h".into()))]));
            let expected = "tenure: kept spec.maxDuration \"1h\", which v2 doesn't have: to remove it, use v3alpha1: kubectl edit queues.v3alpha1.scheduling.run.ai a";
            assert_eq!(warnings, [expected]);
        }
    }

    #[test]
    fn what_is_there_may_be_changed() {
        let of = |text: &str| queue(json!({}), json!({"tenure.dev/max-duration": text}));
        assert_eq!(kept_of(&of("2h"), &of("1h")), V2Completion::default());
        assert_eq!(kept_of(&of("1h"), &of("1h")), V2Completion::default());
        assert_eq!(kept_of(&of("1h"), &queue(json!({}), json!(null))), V2Completion::default());
    }

    #[test]
    fn a_notice_written_in_the_other_form_replaces_the_one_before() {
        let one = json!({"tenure.dev/expiry-notice": "10m"});
        let list = json!({"tenure.dev/expiry-notices": r#"["1h","10m"]"#});
        let of = |annotations: &Value| queue(json!({}), annotations.clone());
        for (new, old) in [(&list, &one), (&one, &list)] {
            assert_eq!(kept_of(&of(new), &of(old)), V2Completion::default());
            let kept = kept_of(&of(&json!({"other": "x"})), &of(old));
            assert_eq!((kept.annotations.len(), kept.warnings.len()), (1, 1), "none is written");
        }
        let mut old = list;
        old["tenure.dev/max-duration"] = json!("2h");
        let kept = kept_of(&of(&one), &of(&old)).annotations;
        assert_eq!(kept, BTreeMap::from([("tenure.dev/max-duration".into(), Some("2h".into()))]));
    }

    #[test]
    fn the_way_a_floor_is_written_is_kept_as_long_as_the_floor() {
        let annotations = json!({"tenure.dev/preempt-min-runtime": "2d"});
        let old = queue(json!({"preemptMinRuntime": "48h0m0s"}), annotations);
        let new = |floor: &str| queue(json!({"preemptMinRuntime": floor, "priority": 7}), json!(null));
        let same = kept_of(&new("48h0m0s"), &old);
        assert_eq!((same.annotations.len(), same.warnings.len()), (1, 0));
        assert_eq!(kept_of(&new("10m"), &old), V2Completion::default());
        assert_eq!(kept_of(&queue(json!(null), json!(null)), &old), V2Completion::default());
    }

    #[test]
    fn the_way_a_floor_was_written_goes_with_the_floor() {
        let key = "tenure.dev/preempt-min-runtime";
        let of = |floor: &str, text: &str| queue(json!({"preemptMinRuntime": floor}), json!({key: text}));
        let gone = kept_of(&of("10m", "2d"), &of("48h0m0s", "2d"));
        assert_eq!((gone.annotations, gone.warnings), (BTreeMap::from([(key.into(), None)]), vec![]));
        assert_eq!(kept_of(&of("72h0m0s", "3d"), &of("48h0m0s", "2d")), V2Completion::default());
        assert_eq!(kept_of(&of("48h0m0s", "2d"), &of("48h0m0s", "2d")), V2Completion::default());
    }

    #[test]
    fn a_status_stays_what_it_is() {
        let key = "tenure.dev/status";
        let of = |text: &str| queue(json!({}), json!({key: text}));
        let before: BTreeMap<_, _> = [(key.into(), Some("before".into()))].into();
        assert_eq!(kept_of(&of("after"), &of("before")).annotations, before);
        let gone: BTreeMap<_, _> = [(key.into(), None)].into();
        assert_eq!(kept_of(&of("after"), &queue(json!({}), json!({}))).annotations, gone);
        let created = |annotations: Value| kept(&to_raw_value(&queue(json!({}), annotations)).unwrap(), None);
        assert_eq!(created(json!({key: "after", "tenure.dev/max-duration": "1h"})).annotations, gone);
        assert_eq!(created(json!({"tenure.dev/max-duration": "1h"})), V2Completion::default());
    }

    #[test]
    fn fields_that_no_client_writes_are_kept_without_a_word() {
        let old = queue(json!({}), json!({"tenure.dev/status": "{}", "tenure.dev/v3alpha1": "{}"}));
        let V2Completion { annotations, warnings } = kept_of(&queue(json!({}), json!(null)), &old);
        assert_eq!((annotations.len(), warnings.len()), (2, 0));
    }

    #[test]
    fn all_that_v3alpha1_alone_has_is_kept() {
        let annotations: BTreeMap<&str, &str> = SPEC_ANNOTATIONS.map(|(_, key)| (key, "x")).into();
        let old = queue(json!({}), json!(annotations));
        let kept = kept_of(&queue(json!({}), json!({})), &old);
        assert_eq!((kept.annotations.len(), kept.warnings.len()), (annotations.len(), annotations.len()));
    }

    #[test]
    fn a_warning_shows_no_more_than_a_part_of_a_long_value() {
        let old = queue(json!({}), json!({"tenure.dev/wait-for-pods-ready": "ä".repeat(10_000)}));
        assert!(kept_of(&queue(json!({}), json!({})), &old).warnings[0].chars().count() < 400);
    }

    #[test]
    fn what_can_not_be_read_is_left_alone() {
        let old = queue(json!({}), json!({"tenure.dev/max-duration": "1h"}));
        assert_eq!(kept_of(&json!("a"), &old), V2Completion::default());
        assert_eq!(kept_of(&queue(json!({}), json!({"tenure.dev/a": 1})), &old), V2Completion::default());
    }
}
