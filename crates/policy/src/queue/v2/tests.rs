use serde_json::{Value, json};
use tenure_types::runai::v3alpha1::WaitForPodsReady;

use crate::{
    queue::{NearestFields, RunaiQueue},
    ready::PodsReady,
};

use super::*;

fn annotations(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, text)| (format!("tenure.dev/{key}"), (*text).to_owned())).collect()
}

fn read(spec: Value, of: &[(&str, &str)]) -> (RunaiQueue, Vec<String>) {
    let spec = serde_json::from_value(spec).unwrap();
    let (queue, errors) = RunaiQueue::read_v2(&spec, &annotations(of));
    (queue, errors.iter().map(ToString::to_string).collect())
}

#[test]
fn floors_are_read_in_the_grammar_of_go_and_the_rest_in_that_of_v3alpha1() {
    let spec = json!({"parentQueue": "a", "preemptMinRuntime": "48h", "reclaimMinRuntime": "1h30m"});
    let (queue, errors) = read(spec, &[("max-duration", "1w"), ("expiry-notice", "1d")]);
    let expected = RunaiQueue {
        parent: Some("a".into()),
        preempt_floor: Some("2d".parse().unwrap()),
        reclaim_floor: Some("90m".parse().unwrap()),
        ceiling: Some("7d".parse().unwrap()),
        nearest: NearestFields { notice: Some("24h".parse().unwrap()), ..NearestFields::default() },
        ..RunaiQueue::default()
    };
    assert_eq!((queue, errors), (expected, vec![]));
}

#[test]
fn every_bad_annotation_is_named_with_its_value_and_the_rule() {
    let spec = json!({"preemptMinRuntime": "2d", "resources": {"gpu": {"quota": -2}}});
    let (queue, errors) = read(
        spec,
        &[
            ("max-duration", "0s"),
            ("expiry-notice", "10 m"),
            ("max-duration-action", "Kill"),
            ("requeue-delay", "-1s"),
            ("on-reversal", "Delete"),
            ("over-ceiling", "Deny"),
            ("wait-for-pods-ready", r#"{"timeout":"0s","requeuingStrategy":{"backoffBaseSeconds":0}}"#),
        ],
    );
    // the block is there, and what of it can't be is as by default
    let pods_ready = Some(PodsReady::from(&WaitForPodsReady::default()));
    let nearest = NearestFields { pods_ready, ..NearestFields::default() };
    assert_eq!(queue, RunaiQueue { nearest, ..RunaiQueue::default() });
    let wait = "metadata.annotations[tenure.dev/wait-for-pods-ready]";
    let expected = [
        "metadata.annotations[tenure.dev/max-duration-action]: Invalid value: \"Kill\": must be Pause or Requeue",
        "metadata.annotations[tenure.dev/on-reversal]: Invalid value: \"Delete\": must be Pause or DeletePods",
        "metadata.annotations[tenure.dev/over-ceiling]: Invalid value: \"Deny\": must be Warn or Refuse",
        "spec.preemptMinRuntime: Invalid value: \"2d\": must be a duration such as",
        "metadata.annotations[tenure.dev/max-duration]: Invalid value: \"0s\": must be greater than zero",
        "metadata.annotations[tenure.dev/expiry-notice]: Invalid value: \"10 m\": must be a duration",
        "metadata.annotations[tenure.dev/requeue-delay]: Invalid value: \"-1s\": must be a duration",
        &format!("{wait}.timeout: Invalid value: \"0s\": must be greater than zero"),
        &format!("{wait}.requeuingStrategy.backoffBaseSeconds: Invalid value: 0: must be at least 1"),
        "spec.resources.gpu.quota: Invalid value: -2.0: must be at least 0, or -1 for no limit",
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.starts_with(expected), "{error} should start with {expected}");
    }
}

#[test]
fn wait_for_pods_ready_must_be_a_json_object() {
    for bad in ["5m", "[]", "", "{", r#"{"timeout": 5}"#] {
        let (_, errors) = read(json!({}), &[("wait-for-pods-ready", bad)]);
        let expected = format!(
            "metadata.annotations[tenure.dev/wait-for-pods-ready]: Invalid value: {}: must be JSON",
            Value::from(bad)
        );
        assert!(errors.len() == 1 && errors[0].starts_with(&expected), "{errors:?}");
    }
    assert_eq!(read(json!({}), &[("wait-for-pods-ready", r#" {"timeout": "5m"}"#)]).1, [""; 0]);
}

#[test]
fn a_floor_is_not_longer_than_a_ceiling_that_is_an_annotation() {
    let spec = json!({"preemptMinRuntime": "61m", "reclaimMinRuntime": "60m"});
    let (_, errors) = read(spec, &[("max-duration", "1h")]);
    let expected = "spec.preemptMinRuntime: Invalid value: \"61m\": must not be longer than the queue's own maxDuration, 1h";
    assert_eq!(errors, [expected]);
}

#[test]
fn an_annotated_floor_counts_only_as_another_way_to_write_the_field() {
    let spec = |floor: &str| serde_json::from_value(json!({"preemptMinRuntime": floor})).unwrap();
    let annotated = |text: &str| annotations(&[("preempt-min-runtime", text)]);
    assert_eq!(without_effect(&spec("48h0m0s"), &annotated("2d")), [""; 0]);
    let none = v3alpha1::QueueSpec::default();
    for (spec, text) in [(&spec("10m"), "2d"), (&none, "2d"), (&none, "soon")] {
        let warnings = without_effect(spec, &annotated(text));
        let expected = format!(
            "metadata.annotations[tenure.dev/preempt-min-runtime]: {text:?} has no effect: spec.preemptMinRuntime counts"
        );
        assert!(warnings.len() == 1 && warnings[0].starts_with(&expected), "{warnings:?}");
    }
}

#[test]
fn a_floor_that_clients_of_v2_can_not_read_is_an_error_that_says_what_they_can() {
    let errors = |spec: Value| {
        let errors = not_in_go(&serde_json::from_value(spec).unwrap());
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = "spec.preemptMinRuntime: Invalid value: \"1d\": v2 has no days and weeks: must be 24h0m0s, or written as v3alpha1";
    assert_eq!(errors(json!({"preemptMinRuntime": "1d"})), [expected]);
    assert_eq!(errors(json!({"preemptMinRuntime": "1d", "reclaimMinRuntime": "1w"})).len(), 2);
    // another check refuses the last one
    for floor in ["48h", "48h0m0s", "-5s", "garbage"] {
        assert_eq!(errors(json!({"preemptMinRuntime": floor})), [""; 0]);
    }
}
