use serde_json::json;

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
    let told = |verdict: &Verdict| {
        assert_eq!(verdict.allowed, verdict.errors.is_empty());
        let errors =
            verdict.errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
        (verdict.object(), errors, verdict.warnings.clone())
    };
    verdicts.reviewed.iter().map(told).collect()
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
    assert_eq!((verdicts.reviewed.len(), verdicts.others), (1, 2));
}

#[test]
fn a_queue_of_v2_is_reviewed_with_its_annotations() {
    let mut queue = document("scheduling.run.ai/v2", "Queue", "a", json!({"maxDuration": "1h"}));
    queue.value["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "10 s"});
    let judged = judged(&[queue]);
    let (_, errors, warnings) = &judged[0];
    let expected =
        "metadata.annotations[tenure.dev/max-duration]: Invalid value: \"10 s\": must be a duration";
    assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
    assert_eq!(warnings, &["spec.maxDuration: unknown field: the API server would drop it"]);
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
fn a_field_that_nobody_knows_is_warned_of() {
    let spec = json!({"preemptMinRunTime": "1h", "resources": {"gpu": {"quota": 1, "qouta": 1}}});
    let judged = judged(&[queue("a", spec)]);
    assert_eq!(
        judged[0].2,
        [
            "spec.preemptMinRunTime: unknown field: the API server would drop it",
            "spec.resources.gpu.qouta: unknown field: the API server would drop it"
        ]
    );
}

#[test]
fn an_object_without_a_name_is_refused() {
    let nameless =
        |metadata: Value| Document { value: json!({"metadata": metadata}), ..queue("a", json!({})) };
    for (metadata, errors) in [(json!({}), 1), (json!({"name": ""}), 1), (json!({"generateName": "a-"}), 0)] {
        assert_eq!(judged(&[nameless(metadata.clone())])[0].1.len(), errors, "{metadata}");
    }
}

#[test]
fn a_t9k_queue_counts_in_its_namespace_only() {
    let queue = document("scheduler.tensorstack.dev/v1beta1", "Queue", "t", json!({}));
    let judged = judged(&[queue]);
    assert!(judged[0].2[0].contains("\"default\""), "{judged:?}");
}
