use serde_json::{json, value::to_raw_value};
use tenure_types::keys::TOLERATION_SECONDS_ANNOTATION;

use super::*;
use crate::{floor::Floors, tree::QueueTree};

const KINDS: [(&str, &str, &str, Reviewable); 4] = [
    ("scheduling.run.ai", "v3alpha1", "Queue", Reviewable::RunaiQueue),
    ("scheduling.run.ai", "v2", "Queue", Reviewable::RunaiQueueV2),
    ("scheduler.tensorstack.dev", "v1beta1", "Queue", Reviewable::TensorstackQueue),
    ("scheduling.k8s.io", "v1", "PriorityClass", Reviewable::PriorityClass),
];

fn raw(object: &Value) -> Box<RawValue> {
    to_raw_value(object).unwrap()
}

fn errors_of(kind: Reviewable, object: &Value) -> Vec<String> {
    let (tree, floors) = (QueueTree::default(), Floors::default());
    let context = ReviewFacts {
        queues: &Inheritance::new(&tree, &floors),
        t9k_system_namespace: "t9k-system",
        bounds: &DelegationBounds::default(),
    };
    let found = kind.read("demo", "t9k-system", Some(&raw(object)));
    let Findings { errors, .. } = found.map_or_else(Findings::from, |subject| subject.review(&context));
    errors.iter().map(ToString::to_string).collect()
}

fn class(toleration_seconds: &Value) -> Value {
    json!({"metadata": {"annotations": {TOLERATION_SECONDS_ANNOTATION: toleration_seconds}}, "value": 1})
}

#[test]
fn a_kind_is_known_by_group_version_and_kind() {
    for (group, version, kind, known) in KINDS {
        assert_eq!(Reviewable::of(group, version, kind), Some(known));
    }
    for (group, kind) in [
        ("scheduling.k8s.io", "Queue"),
        ("scheduling.run.ai", "PriorityClass"),
        ("scheduling.run.ai", "PodGroup"),
        ("", "Pod"),
    ] {
        assert_eq!(Reviewable::of(group, "v1", kind), None);
    }
}

#[test]
fn an_object_without_a_field_of_its_own_is_fine() {
    for (.., kind) in KINDS {
        assert_eq!(errors_of(kind, &json!({})), [""; 0]);
    }
    assert_eq!(errors_of(Reviewable::PriorityClass, &json!({"metadata": {"annotations": null}})), [""; 0]);
}

#[test]
fn what_does_not_decode_is_an_error_that_names_the_field() {
    for (.., kind) in KINDS {
        assert_eq!(errors_of(kind, &json!([])), ["object: Invalid value: []: must be an object"]);
    }
    for (object, expected) in [
        (json!({"value": "1"}), "value: Invalid value: \"1\": invalid type: string \"1\", expected i32"),
        (
            class(&json!(600)),
            "metadata.annotations.preemption-toleration.scheduling.x-k8s.io/toleration-seconds: Invalid value: 600: invalid type: integer `600`, expected a string",
        ),
    ] {
        assert_eq!(errors_of(Reviewable::PriorityClass, &object), [expected]);
    }
}

#[test]
fn each_kind_is_reviewed_by_its_own_rules() {
    for (.., kind) in KINDS {
        let annotations = json!({"tenure.dev/max-duration": "0s"});
        let v2 = errors_of(kind, &json!({"metadata": {"annotations": annotations}}));
        assert_eq!(v2.is_empty(), kind != Reviewable::RunaiQueueV2);
        let has_ceilings = [Reviewable::RunaiQueue, Reviewable::TensorstackQueue].contains(&kind);
        assert_eq!(errors_of(kind, &json!({"spec": {"maxDuration": "0s"}})).is_empty(), !has_ceilings);
        assert_eq!(errors_of(kind, &class(&json!("10m"))).is_empty(), kind != Reviewable::PriorityClass);
    }
}

#[test]
fn unchanged_is_what_leaves_alone_that_which_is_refused() {
    let unchanged = |kind: Reviewable, new: &Value, old: &Value| kind.is_unchanged(&raw(new), &raw(old));
    let queue = |ceiling: &str| json!({"metadata": {"name": ceiling}, "spec": {"maxDuration": ceiling}});
    for kind in [Reviewable::RunaiQueue, Reviewable::TensorstackQueue] {
        let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"maxDuration": "soon"}});
        assert!(unchanged(kind, &labelled, &queue("soon")));
        assert!(!unchanged(kind, &queue("soon"), &queue("1h")));
        assert!(!unchanged(kind, &json!([1]), &json!([1])));
    }
    let v2 = |ceiling: &str| json!({"metadata": {"annotations": {"tenure.dev/max-duration": ceiling, "other": ceiling}}});
    let kind = Reviewable::RunaiQueueV2;
    let mut labelled = v2("soon");
    labelled["metadata"]["annotations"]["other"] = json!("a");
    assert!(unchanged(kind, &labelled, &v2("soon")));
    assert!(!unchanged(kind, &v2("soon"), &v2("1h")));
    assert!(!unchanged(kind, &queue("soon"), &queue("1h")));
    let mut labelled = class(&json!("soon"));
    labelled["metadata"]["labels"] = json!({"a": "b"});
    labelled["metadata"]["annotations"]["example.com/a"] = json!("b");
    let kind = Reviewable::PriorityClass;
    assert!(unchanged(kind, &labelled, &class(&json!("soon"))));
    assert!(!unchanged(kind, &class(&json!("soon")), &class(&json!("10m"))));
    assert!(!unchanged(kind, &class(&json!("soon")), &json!({"value": 1})));
    assert!(!unchanged(kind, &class(&json!(1)), &class(&json!(1))));
}

#[test]
fn a_floor_that_was_written_as_v2_must_be_one_there() {
    let queue = |carried: &str, floor: &str| {
        json!({
            "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue",
            "metadata": {"name": "demo", "annotations": {"tenure.dev/v2": carried}},
            "spec": {"preemptMinRuntime": floor},
        })
    };
    let errors = errors_of(Reviewable::RunaiQueue, &queue("{}", "1d"));
    assert!(
        matches!(&*errors, [error] if error.starts_with("spec.preemptMinRuntime: Invalid value: \"1d\": v2 has no days")),
        "{errors:?}"
    );
    // it wasn't: v2 has this as 48h0m0s
    let carried = r#"{"spec":{"preemptMinRuntime":"1d"}}"#;
    assert_eq!(errors_of(Reviewable::RunaiQueue, &queue(carried, "2d")), [""; 0]);
    let mut plain = queue("", "1d");
    plain["metadata"]["annotations"] = Value::Null;
    assert!(!Reviewable::RunaiQueue.is_unchanged(&raw(&queue("{}", "1d")), &raw(&plain)));
}
