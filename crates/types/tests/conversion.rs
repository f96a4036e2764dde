//! Conversion of each field of a Queue between v2 and v3alpha1.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed helper is a failed test")]

use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tenure_types::runai::{
    QueueVersion, SPEC_ANNOTATIONS,
    conversion::{ConversionError, convert},
};

fn converted(queue: &Value, to: QueueVersion) -> Result<Value, ConversionError> {
    let queue = to_raw_value(queue).unwrap();
    convert(&queue, to).map(|converted| serde_json::to_value(converted).unwrap())
}

fn to_v2(queue: &Value) -> Result<Value, ConversionError> {
    converted(queue, QueueVersion::V2)
}

fn to_v3alpha1(queue: &Value) -> Result<Value, ConversionError> {
    converted(queue, QueueVersion::V3alpha1)
}

/// A Queue of a version, with these fields beside apiVersion, kind and name.
fn queue(version: &str, fields: &Value) -> Value {
    let mut queue = json!({"apiVersion": format!("scheduling.run.ai/{version}"), "kind": "Queue", "metadata": {"name": "a"}});
    for (key, value) in fields.as_object().unwrap() {
        if key == "annotations" {
            queue["metadata"][key] = value.clone();
        } else {
            queue[key] = value.clone();
        }
    }
    queue
}

/// Asserts that each of the two converts to the other.
fn assert_pair(v3alpha1: &Value, v2: &Value) {
    let (v3alpha1, v2) = (queue("v3alpha1", v3alpha1), queue("v2", v2));
    assert_eq!(to_v2(&v3alpha1).unwrap(), v2);
    assert_eq!(to_v3alpha1(&v2).unwrap(), v3alpha1);
}

fn refusal(object: &Value) -> String {
    let error = to_v2(object).unwrap_err().to_string();
    assert_eq!(to_v3alpha1(object).unwrap_err().to_string(), error);
    error
}

#[test]
fn what_both_versions_have_stays_as_it_is() {
    let fields = json!({
        "annotations": {"note": "naïve ☂", "tenure.dev/other": "1h"},
        "spec": {
            "displayName": "A", "parentQueue": "root", "priority": 7, "preemptMinRuntime": "90m", "reclaimMinRuntime": "1h30m0s",
            "resources": {"gpu": {"quota": 1.5, "limit": -1}}, "unknown": [{"field": null}],
        },
        "status": {"childQueues": ["b"], "conditions": [{"type": "Orphan"}], "allocated": {"cpu": "1"}},
    });
    assert_pair(&fields, &fields);
    assert_pair(&json!({}), &json!({}));
    assert_pair(&json!({"spec": {}, "status": {}}), &json!({"spec": {}, "status": {}}));
}

#[test]
fn each_text_of_v3alpha1_alone_is_an_annotation_of_v2() {
    let blocks = ["expiryNotices", "waitForPodsReady", "extensions"];
    let fields = SPEC_ANNOTATIONS.into_iter().filter(|(field, _)| !blocks.contains(field));
    // what can't be meant is for admission to refuse, under the name that its author knows
    for ((field, annotation), value) in fields.flat_map(|row| ["7d", "10 \"s\"", ""].map(|text| (row, text)))
    {
        assert_pair(
            &json!({"spec": {field: value}}),
            &json!({"spec": {}, "annotations": {annotation: value}}),
        );
        assert_pair(
            &json!({"spec": {field: value, "priority": 1}, "annotations": {"note": ""}}),
            &json!({"spec": {"priority": 1}, "annotations": {annotation: value, "note": ""}}),
        );
    }
}

#[test]
fn wait_for_pods_ready_is_an_annotation_of_json() {
    assert_pair(
        &json!({"spec": {"waitForPodsReady": {"timeout": "5m", "requeuingStrategy": {"backoffLimitCount": 3}}}}),
        &json!({"spec": {}, "annotations": {
            "tenure.dev/wait-for-pods-ready": r#"{"requeuingStrategy":{"backoffLimitCount":3},"timeout":"5m"}"#,
        }}),
    );
}

#[test]
fn extensions_are_an_annotation_of_json() {
    assert_pair(
        &json!({"spec": {"extensions": {"autoApprove": "2h", "maxTotal": "8h", "maxCount": 3}}}),
        &json!({"spec": {}, "annotations": {
            "tenure.dev/extensions": r#"{"autoApprove":"2h","maxCount":3,"maxTotal":"8h"}"#,
        }}),
    );
}

#[test]
fn a_list_of_notices_is_an_annotation_of_json() {
    assert_pair(
        &json!({"spec": {"expiryNotices": ["1h", "10m"]}}),
        &json!({"spec": {}, "annotations": {"tenure.dev/expiry-notices": r#"["1h","10m"]"#}}),
    );
    for text in ["", "1h", "{}", r#""1h""#, "null"] {
        let same = json!({"annotations": {"tenure.dev/expiry-notices": text}});
        assert_pair(&same, &same);
    }
}

#[test]
fn json_keeps_the_layout_of_its_writer() {
    let laid_out = json!({"tenure.dev/wait-for-pods-ready": "{\n  \"timeout\": \"5m\"\n}"});
    assert_pair(
        &json!({"spec": {"waitForPodsReady": {"timeout": "5m"}}, "annotations": laid_out}),
        &json!({"spec": {}, "annotations": laid_out}),
    );
}

#[test]
fn json_with_a_layout_of_its_own_does_not_outlive_a_change_of_the_field() {
    let laid_out = json!({"tenure.dev/wait-for-pods-ready": "{ \"timeout\": \"5m\" }"});
    let changed = json!({"spec": {"waitForPodsReady": {"timeout": "9m"}}, "annotations": laid_out});
    let v2 = to_v2(&queue("v3alpha1", &changed)).unwrap();
    assert_eq!(v2["metadata"]["annotations"]["tenure.dev/wait-for-pods-ready"], json!(r#"{"timeout":"9m"}"#));
    assert_eq!(to_v3alpha1(&v2).unwrap(), queue("v3alpha1", &changed));
}

#[test]
fn json_that_is_no_map_stays_an_annotation() {
    for text in ["", "{", "5m", "[]", "null", "{} {}", "\"{}\""] {
        let same =
            json!({"annotations": {"tenure.dev/wait-for-pods-ready": text, "tenure.dev/status": text}});
        assert_pair(&same, &same);
    }
}

#[test]
fn status_of_v3alpha1_alone_is_one_annotation() {
    assert_pair(
        &json!({"status": {
            "workloads": {"running": 3, "protected": 1, "paused": 0, "requeueing": 0},
            "nextExpiry": "2026-11-21T20:00:00Z",
            "childQueues": ["b"],
        }}),
        &json!({"status": {"childQueues": ["b"]}, "annotations": {
            "tenure.dev/status": r#"{"nextExpiry":"2026-11-21T20:00:00Z","workloads":{"paused":0,"protected":1,"requeueing":0,"running":3}}"#,
        }}),
    );
    assert_pair(
        &json!({"status": {"workloads": {}}}),
        &json!({"status": {}, "annotations": {"tenure.dev/status": r#"{"workloads":{}}"#}}),
    );
    // not as conversion writes it
    let foreign = json!({"annotations": {"tenure.dev/status": r#"{"conditions":[]}"#}});
    assert_pair(&foreign, &foreign);
}

#[test]
fn floors_that_go_has_no_word_for_are_converted_and_kept_as_they_are_written() {
    for (written, go) in [
        ("2d", "48h0m0s"),
        ("1w", "168h0m0s"),
        ("1.5d", "36h0m0s"),
        ("1d12h", "36h0m0s"),
        ("0d", "0s"),
        ("0.00000000001d", "864ns"),
        ("106751d", "2562024h0m0s"),
    ] {
        assert_pair(
            &json!({"spec": {"preemptMinRuntime": written, "reclaimMinRuntime": "1h"}}),
            &json!({
                "spec": {"preemptMinRuntime": go, "reclaimMinRuntime": "1h"},
                "annotations": {"tenure.dev/preempt-min-runtime": written},
            }),
        );
        assert_pair(
            &json!({"spec": {"reclaimMinRuntime": written}}),
            &json!({"spec": {"reclaimMinRuntime": go}, "annotations": {"tenure.dev/reclaim-min-runtime": written}}),
        );
    }
}

#[test]
fn floors_that_are_none_in_either_grammar_or_in_both_stay_as_they_are() {
    for written in ["1h", "0", "-5m", "+5m", "-2d", "2 d", "", "d", "200000000d", "1µs", "1h☂"] {
        let same = json!({"spec": {"preemptMinRuntime": written, "reclaimMinRuntime": written}});
        assert_pair(&same, &same);
    }
}

#[test]
fn a_v2_clients_change_of_a_floor_counts() {
    let mut v2 = to_v2(&queue("v3alpha1", &json!({"spec": {"preemptMinRuntime": "2d"}}))).unwrap();
    v2["spec"]["preemptMinRuntime"] = json!("1h");
    let changed = to_v3alpha1(&v2).unwrap();
    assert_eq!(changed["spec"]["preemptMinRuntime"], json!("1h"));
    assert_eq!(to_v2(&changed).unwrap(), v2);
    // an equal duration in other words is a change as well
    v2["spec"]["preemptMinRuntime"] = json!("48h");
    assert_eq!(to_v3alpha1(&v2).unwrap()["spec"]["preemptMinRuntime"], json!("48h"));
}

#[test]
fn a_v2_clients_removal_of_an_annotation_removes_the_field() {
    let mut v2 =
        to_v2(&queue("v3alpha1", &json!({"spec": {"maxDuration": "1h", "requeueDelay": "1m"}}))).unwrap();
    v2["metadata"]["annotations"].as_object_mut().unwrap().remove("tenure.dev/max-duration");
    assert_eq!(to_v3alpha1(&v2).unwrap(), queue("v3alpha1", &json!({"spec": {"requeueDelay": "1m"}})));
}

/// A field and an annotation that both want the same place.
fn collision() -> Value {
    queue(
        "v3alpha1",
        &json!({"spec": {"maxDuration": "1h"}, "annotations": {"tenure.dev/max-duration": "9h"}}),
    )
}

#[test]
fn where_a_field_and_an_annotation_collide_the_field_counts_and_both_come_back() {
    let v2 = to_v2(&collision()).unwrap();
    assert_eq!(v2["metadata"]["annotations"]["tenure.dev/max-duration"], json!("1h"));
    assert_eq!(
        v2["metadata"]["annotations"]["tenure.dev/v3alpha1"],
        json!(r#"{"annotations":{"tenure.dev/max-duration":"9h"},"spec":{"maxDuration":"1h"}}"#)
    );
    assert_eq!(to_v3alpha1(&v2).unwrap(), collision());
}

#[test]
fn a_v2_clients_change_of_an_object_with_a_carrier_counts_and_loses_nothing() {
    let mut v2 = to_v2(&collision()).unwrap();
    v2["metadata"]["annotations"]["tenure.dev/max-duration"] = json!("2h");
    v2["spec"]["priority"] = json!(7);
    let v3alpha1 = to_v3alpha1(&v2).unwrap();
    assert_eq!(v3alpha1["spec"], json!({"maxDuration": "2h", "priority": 7}));
    assert_eq!(to_v2(&v3alpha1).unwrap(), v2);
}

#[test]
fn a_v2_clients_change_of_what_is_not_carried_leaves_the_carrier_good() {
    let (mut v2, mut expected) = (to_v2(&collision()).unwrap(), collision());
    for queue in [&mut v2, &mut expected] {
        queue["spec"]["priority"] = json!(7);
        queue["metadata"]["annotations"]["note"] = json!("new");
        queue["status"] = json!({"childQueues": []});
    }
    assert_eq!(to_v3alpha1(&v2).unwrap(), expected);
}

#[test]
fn a_forged_carrier_decides_nothing() {
    let forged =
        json!({"tenure.dev/v3alpha1": r#"{"spec":{"maxDuration":"100w"}}"#, "tenure.dev/max-duration": "1h"});
    let v2 = queue("v2", &json!({"spec": {}, "annotations": forged}));
    let v3alpha1 = to_v3alpha1(&v2).unwrap();
    assert_eq!(v3alpha1["spec"], json!({"maxDuration": "1h"}));
    assert_eq!(to_v2(&v3alpha1).unwrap(), v2);
}

#[test]
fn an_object_of_the_version_asked_for_stays_as_it_is() {
    let v2 =
        queue("v2", &json!({"spec": {"maxDuration": 1}, "annotations": {"tenure.dev/max-duration": "1h"}}));
    assert_eq!(to_v2(&v2).unwrap(), v2);
    assert_eq!(to_v3alpha1(&collision()).unwrap(), collision());
}

#[test]
fn what_is_not_touched_is_not_rewritten() {
    let text = r#"{ "metadata":{"managedFields":[ {"z":1.0, "a":1e400} ],"name":"a"}, "apiVersion":"scheduling.run.ai/v2","kind":"Queue","spec":{"resources":{"gpu": {"quota":1.0}}} }"#;
    let raw: &RawValue = serde_json::from_str(text).unwrap();
    let converted = serde_json::to_string(&convert(raw, QueueVersion::V3alpha1).unwrap()).unwrap();
    assert_eq!(
        converted,
        r#"{"metadata":{"managedFields":[ {"z":1.0, "a":1e400} ],"name":"a"},"apiVersion":"scheduling.run.ai/v3alpha1","kind":"Queue","spec":{"resources":{"gpu": {"quota":1.0}}}}"#
    );
}

#[test]
fn what_is_no_queue_of_either_version_is_refused_by_name() {
    for (pointer, value, reason) in [
        (
            "/apiVersion",
            json!("scheduling.run.ai/v1"),
            "apiVersion: Invalid value: \"scheduling.run.ai/v1\": must be scheduling.run.ai/v2 or scheduling.run.ai/v3alpha1",
        ),
        ("/apiVersion", json!("v2"), "apiVersion: Invalid value: \"v2\": must be "),
        ("/apiVersion", json!(2), "apiVersion: Invalid value: 2: must be "),
        ("/apiVersion", json!(null), "apiVersion: Invalid value: null: must be "),
        ("/kind", json!("QueueList"), "kind: Invalid value: \"QueueList\": must be Queue"),
        (
            "/metadata/annotations",
            json!("note"),
            "metadata.annotations: Invalid value: \"note\": must be a map",
        ),
        (
            "/metadata/annotations",
            json!({"note": 5}),
            "metadata.annotations[note]: Invalid value: 5: must be a string",
        ),
        ("/spec", json!([]), "spec: Invalid value: []: must be a map"),
        ("/status", json!(true), "status: Invalid value: true: must be a map"),
    ] {
        let mut object = queue("v2", &json!({"annotations": {}, "spec": {}, "status": {}}));
        *object.pointer_mut(pointer).unwrap() = value;
        let message = refusal(&object);
        assert!(message.starts_with(&format!("queue \"a\": {reason}")), "{message}");
    }
}

#[test]
fn what_has_no_metadata_is_refused() {
    for metadata in [json!(null), json!([]), json!("a")] {
        let mut object = queue("v2", &json!({}));
        object["metadata"] = metadata.clone();
        assert_eq!(
            refusal(&object),
            format!("queue \"\": metadata: Invalid value: {metadata}: must be a map")
        );
    }
    for object in [json!(null), json!([]), json!("Queue"), json!(1)] {
        assert_eq!(refusal(&object), "must be a map");
    }
}

#[test]
fn a_message_is_short_for_any_value() {
    let object = queue("v2", &json!({"spec": "☂".repeat(100_000)}));
    let message = refusal(&object);
    assert!(message.len() < 500 && message.ends_with("☂…: must be a map"), "{message}");
}
