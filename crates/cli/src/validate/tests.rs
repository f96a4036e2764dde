use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_types::runai::SPEC_ANNOTATIONS;

use super::*;

fn document(api_version: &str, kind: &str, name: &str, spec: Value) -> Document {
    let mut value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    value["spec"] = spec;
    Document { source: format!("f.yaml:{name}"), api_version: api_version.into(), kind: kind.into(), value }
}

fn queue(name: &str, spec: Value) -> Document {
    document("scheduling.run.ai/v3alpha1", "Queue", name, spec)
}

fn judged(documents: &[Document]) -> Vec<(String, Vec<String>, Vec<String>)> {
    let verdicts = Verdicts::of(documents, "t9k-system", &Config::default());
    let parts = |verdict: &ValidationResult| {
        assert_eq!(verdict.allowed, verdict.errors.is_empty());
        let errors =
            verdict.errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
        (verdict.object(), errors, verdict.warnings.clone())
    };
    verdicts.reviewed.iter().map(parts).collect()
}

#[test]
fn what_is_good_is_allowed() {
    let documents = [
        queue("root", json!({"maxDuration": "1d", "resources": {"gpu": {"quota": -1}}})),
        queue("leaf", json!({"parentQueue": "root", "displayName": null})),
    ];
    let none = Vec::<String>::new;
    assert_eq!(
        judged(&documents),
        [
            ("queue.scheduling.run.ai/root".into(), none(), none()),
            ("queue.scheduling.run.ai/leaf".into(), none(), none())
        ]
    );
}

#[test]
fn what_the_webhook_would_refuse_is_refused() {
    let class = Document {
        value: json!({"metadata": {"name": "c", "annotations": {
            "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "soon",
        }}, "value": 5}),
        ..document("scheduling.k8s.io/v1", "PriorityClass", "c", Value::Null)
    };
    let documents = [
        queue("a", json!({"parentQueue": "b", "maxDuration": "0s"})),
        queue("b", json!({"parentQueue": "a"})),
        document("scheduler.tensorstack.dev/v1beta1", "Queue", "t", json!({"maxDuration": "10 s"})),
        class,
        queue("c", json!({"priority": "high"})),
    ];
    let judged = judged(&documents);
    let counts: Vec<_> = judged.iter().map(|(_, errors, _)| errors.len()).collect();
    assert_eq!(counts, [2, 1, 1, 1, 1], "{judged:#?}");
    assert!(judged[0].1.iter().any(|error| error.contains("a -> b -> a")), "{judged:#?}");
    assert!(judged[4].1[0].starts_with("spec.priority: Invalid value: \"high\""), "{judged:#?}");
}

#[test]
fn the_queues_in_the_files_are_all_that_there_are() {
    let documents = [
        document("scheduling.run.ai/v2", "Queue", "root", json!({"preemptMinRuntime": "1h"})),
        queue("leaf", json!({"parentQueue": "root"})),
        queue("lost", json!({"parentQueue": "gone"})),
    ];
    let judged = judged(&documents);
    assert_eq!(judged.len(), 3);
    assert!(judged[..2].iter().all(|(_, _, warnings)| warnings.is_empty()), "{judged:?}");
    assert!(judged[2].2[0].contains("queue \"gone\" doesn't exist"), "{judged:?}");
}

#[test]
fn what_is_not_reviewed_is_counted() {
    let documents = [
        document("scheduling.run.ai/v2", "Queue", "a", json!({})),
        document("v1", "Pod", "b", json!({})),
        document("other/v1", "Queue", "c", json!({})),
    ];
    let verdicts = Verdicts::of(&documents, "t9k-system", &Config::default());
    let kinds = ["Pod", "Queue"].map(str::to_owned);
    assert_eq!((verdicts.reviewed.len(), &verdicts.skipped), (1, &(2, kinds.into())));
    let end = "1 reviewed: 1 allowed, 0 refused, 0 with warnings; 2 skipped (Pod, Queue)\n";
    assert_eq!(verdicts.text(), end);
}

#[test]
fn a_queue_of_v2_is_reviewed_with_its_annotations() {
    let mut queue = document("scheduling.run.ai/v2", "Queue", "a", json!({"maxDuration": "1h"}));
    queue.value["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "10 s"});
    let judged = judged(&[queue]);
    let (_, errors, _) = &judged[0];
    let unknown = "spec.maxDuration: Invalid value: \"1h\": unknown field: v2 has annotation tenure.dev/max-duration instead, and scheduling.run.ai/v3alpha1 has the field";
    let bad = "metadata.annotations[tenure.dev/max-duration]: Invalid value: \"10 s\": must be a duration";
    assert!(errors.len() == 2 && errors[0] == unknown && errors[1].starts_with(bad), "{errors:?}");
}

#[test]
fn a_floor_beyond_a_bound_of_the_configuration_is_refused() {
    let config = Config::parse("delegation: {bounds: [{queue: research, preemptMinRuntime: 2h}]}").unwrap();
    let child = |floor: &str| json!({"parentQueue": "research", "preemptMinRuntime": floor});
    let documents = [
        queue("research", json!({})),
        queue("within", child("2h")),
        queue("beyond", child("3h")),
        document("scheduling.run.ai/v2", "Queue", "of-v2", child("3h")),
    ];
    let verdicts = Verdicts::of(&documents, "t9k-system", &config);
    let refused = verdicts.reviewed.iter().filter(|verdict| !verdict.allowed);
    let names: Vec<_> =
        refused.map(|verdict| (verdict.name.as_str(), verdict.errors[0].field.as_str())).collect();
    assert_eq!(names, [("beyond", "spec.preemptMinRuntime"), ("of-v2", "spec.preemptMinRuntime")]);
}

#[test]
fn a_field_that_the_kind_does_not_have_is_refused() {
    let spec =
        json!({"preemptMinRunTime": "1h", "nonsense": true, "resources": {"gpu": {"quota": 1, "qouta": 1}}});
    let mut queue = queue("a", spec);
    queue.value["specs"] = json!({});
    queue.value["metadata"]["lables"] = json!({"a": "b"});
    let both =
        ["displayName", "parentQueue", "preemptMinRuntime", "priority", "reclaimMinRuntime", "resources"];
    let known: BTreeSet<_> = SPEC_ANNOTATIONS.map(|(field, _)| field).into_iter().chain(both).collect();
    let known = Vec::from_iter(known).join(", ");
    let mut errors = judged(&[queue])[0].1.clone();
    errors.sort();
    assert_eq!(
        errors,
        [
            "metadata.lables: Invalid value: {\"a\":\"b\"}: unknown field: did you mean labels?".to_owned(),
            format!("spec.nonsense: Invalid value: true: unknown field: known here: {known}"),
            "spec.preemptMinRunTime: Invalid value: \"1h\": unknown field: did you mean preemptMinRuntime?"
                .into(),
            "spec.resources.gpu.qouta: Invalid value: 1: unknown field: did you mean quota?".into(),
            "specs: Invalid value: {}: unknown field: did you mean spec?".into(),
        ]
    );
}

#[test]
fn a_version_or_a_kind_that_the_api_server_does_not_have_is_refused() {
    for (api_version, kind, expected) in [
        (
            "scheduling.run.ai/v9",
            "Queue",
            "apiVersion: Invalid value: \"scheduling.run.ai/v9\": must be scheduling.run.ai/v3alpha1 or scheduling.run.ai/v2 for kind Queue",
        ),
        (
            "scheduler.tensorstack.dev/v1",
            "Queue",
            "apiVersion: Invalid value: \"scheduler.tensorstack.dev/v1\": must be scheduler.tensorstack.dev/v1beta1 for kind Queue",
        ),
        (
            "scheduling.k8s.io/v1beta1",
            "PriorityClass",
            "apiVersion: Invalid value: \"scheduling.k8s.io/v1beta1\": must be scheduling.k8s.io/v1 for kind PriorityClass",
        ),
        (
            "scheduling.run.ai/v2",
            "queue",
            "kind: Invalid value: \"queue\": there is no such kind in group scheduling.run.ai: did you mean Queue?",
        ),
        (
            "scheduler.tensorstack.dev/v1beta1",
            "Lease",
            "kind: Invalid value: \"Lease\": there is no such kind in group scheduler.tensorstack.dev: known here: Queue, PodGroup",
        ),
    ] {
        assert_eq!(judged(&[document(api_version, kind, "a", json!({}))])[0].1, [expected]);
    }
    let others =
        ["scheduling.run.ai/v2alpha2", "scheduler.tensorstack.dev/v1beta1", "scheduling.k8s.io/v1alpha1"];
    let others = others.map(|api_version| document(api_version, "PodGroup", "a", json!({})));
    assert_eq!(judged(&others), []);
}

#[test]
fn what_the_schema_refuses_is_refused_once() {
    let t9k = |spec: Value| {
        let mut queue = document("scheduler.tensorstack.dev/v1beta1", "Queue", "t", spec);
        queue.value["metadata"]["namespace"] = json!("t9k-system");
        queue
    };
    let long = "0".repeat(64) + "1h";
    for (document, expected) in [
        (queue("a", json!([])), "spec: Invalid value: []: must be an object"),
        (queue("a", json!({"maxDuration": 5})), "spec.maxDuration: Invalid value: 5: must be a string"),
        (
            queue("a", json!({"onReversal": "Ignore"})),
            "spec.onReversal: Invalid value: \"Ignore\": must be Pause or DeletePods",
        ),
        (queue("a", json!({"maxDuration": long})), "spec.maxDuration: Invalid value"),
        (
            queue("a", json!({"resources": {"cpu": 1}})),
            "spec.resources.cpu: Invalid value: 1: must be an object",
        ),
        (t9k(json!({"priority": 101})), "spec.priority: Invalid value: 101: must be from 0 to 100"),
        (
            t9k(json!({"nodeSelector": {"matchExpressions": [{"key": "a"}]}})),
            "spec.nodeSelector.matchExpressions[0].operator: Required value",
        ),
    ] {
        let errors = &judged(&[document])[0].1;
        assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
    }
}

#[test]
fn an_object_without_a_name_or_with_a_bad_one_is_refused() {
    let named = |metadata: Value| Document { value: json!({"metadata": metadata}), ..queue("a", json!({})) };
    let required = "metadata.name: Required value: name or generateName is required";
    let bad = "metadata.name: Invalid value: \"Bad_Name\": must be lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters";
    for (metadata, expected) in [
        (json!({}), Some(required)),
        (json!({"name": ""}), Some(required)),
        (json!({"generateName": "a-"}), None),
        (json!({"name": "Bad_Name"}), Some(bad)),
        (json!({"name": 5}), Some("metadata.name: Invalid value: 5: must be a string")),
    ] {
        assert_eq!(judged(&[named(metadata.clone())])[0].1, Vec::from_iter(expected), "{metadata}");
    }
}

#[test]
fn a_priority_class_has_the_limits_of_the_api_server() {
    let class = |name: &str, fields: Value| {
        let mut class = document("scheduling.k8s.io/v1", "PriorityClass", name, Value::Null);
        class.value.as_object_mut().unwrap().remove("spec");
        class.value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        class
    };
    for (name, fields, expected) in [
        ("a", json!({"value": 1_000_000_000, "preemptionPolicy": "Never"}), None),
        ("system-node-critical", json!({"value": 2_000_001_000}), None),
        (
            "a",
            json!({"value": 1_000_000_001}),
            Some("value: Invalid value: 1000000001: must be at most 1000000000"),
        ),
        (
            "system-a",
            json!({"value": 1}),
            Some(
                "metadata.name: Invalid value: \"system-a\": must not begin with system-, which is reserved for system use",
            ),
        ),
        (
            "a",
            json!({"value": 1, "preemptionPolicy": "Sometimes"}),
            Some("preemptionPolicy: Invalid value: \"Sometimes\": must be Never or PreemptLowerPriority"),
        ),
        ("a", json!({"valeu": 1}), Some("valeu: Invalid value: 1: unknown field: did you mean value?")),
        (
            "a",
            json!({"value": "1"}),
            Some("value: Invalid value: \"1\": must be a whole number from -2147483648 to 2147483647"),
        ),
    ] {
        assert_eq!(judged(&[class(name, fields.clone())])[0].1, Vec::from_iter(expected), "{name} {fields}");
    }
}

#[test]
fn a_t9k_queue_counts_in_its_namespace_only() {
    let queue = document("scheduler.tensorstack.dev/v1beta1", "Queue", "t", json!({}));
    let judged = judged(&[queue]);
    assert!(judged[0].2[0].contains("\"default\""), "{judged:?}");
}
