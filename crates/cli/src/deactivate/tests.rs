use serde_json::json;
use tenure_types::keys::{RUNAI_QUEUE_LABEL, TENSORSTACK_QUEUE_LABEL};

use super::*;
use crate::change::{testing::judged, testing::message, testing::object, testing::record};

fn job(annotations: &[(&str, &str)], suspend: bool) -> Value {
    let template = json!({"metadata": {"labels": {"kai.scheduler/queue": "research"}}});
    object(annotations, &json!({"suspend": suspend, "template": template}))
}

fn noted(change: &ObjectChange) -> PausedRecord {
    let text = change.patch["metadata"]["annotations"]["tenure.dev/paused"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_runs_is_paused_and_marked_in_one_write() {
    let deactivation = judged(&Deactivate, "job", &job(&[], false)).unwrap();
    let patch = &deactivation.patch;
    assert_eq!((&patch["spec"], &patch["metadata"]["uid"]), (&json!({"suspend": true}), &json!("u")));
    assert_eq!(patch["metadata"]["annotations"]["tenure.dev/active"], "false");
    let record = noted(&deactivation);
    assert_eq!((record.reason.as_str(), record.queue.as_str()), ("Deactivated", "research"));
    assert_eq!(
        (record.queue_group.as_deref(), &record.previous_value),
        (Some("scheduling.run.ai"), &json!(false))
    );
    let text = json!(record).to_string();
    let now = object(&[("paused", &text), ("active", "false")], &json!({"suspend": true}));
    assert_eq!(message(&deactivation, &now), Ok("deactivated (spec.suspend: true)".into()));
    let dropped = object(&[("paused", &text)], &json!({}));
    assert!(message(&deactivation, &dropped).unwrap_err().contains("dropped spec.suspend"));
}

#[test]
fn a_kind_with_several_rules_is_paused_by_the_first_that_the_api_server_knows() {
    let notebook = object(&[], &json!({"suspend": false}));
    let deactivation = judged(&Deactivate, "notebook", &notebook).unwrap();
    let specs: Vec<_> = std::iter::once(&deactivation.patch)
        .chain(&deactivation.otherwise)
        .map(|patch| patch["spec"].clone())
        .collect();
    assert_eq!(specs, [json!({"runMode": "paused"}), json!({"suspend": true})]);
    assert_eq!((noted(&deactivation).queue.as_str(), noted(&deactivation).queue_group), ("", None));
}

#[test]
fn what_would_come_back_by_itself_stays_and_activation_takes_back_what_the_pause_has_set() {
    let before = record("PodsReadyTimeout", "spec.suspend", &json!(true), &json!(false));
    let state = r#"{"count":2,"requeueAt":"2026-01-02T03:09:05Z"}"#;
    let waiting = job(&[("paused", &before), ("requeue-state", state)], true);
    let deactivation = judged(&Deactivate, "job", &waiting).unwrap();
    assert_eq!(deactivation.patch.get("spec"), None);
    let annotations = &deactivation.patch["metadata"]["annotations"];
    assert_eq!(annotations["tenure.dev/active"], "false");
    assert_eq!(annotations["tenure.dev/requeue-state"], r#"{"count":2}"#);
    let expected: PausedRecord = serde_json::from_str(&before).unwrap();
    assert_eq!(noted(&deactivation), PausedRecord { reason: "Deactivated".into(), ..expected });
    let said = message(&deactivation, &waiting).unwrap();
    assert_eq!(said, "deactivated (it was paused already, because of PodsReadyTimeout)");
}

#[test]
fn what_somebody_has_set_going_again_is_paused_anew() {
    let before = record("MaxDurationExceeded", "spec.suspend", &json!(true), &json!(false));
    let deactivation = judged(&Deactivate, "job", &job(&[("paused", &before)], false)).unwrap();
    assert_eq!(deactivation.patch["spec"], json!({"suspend": true}));
}

#[test]
fn where_there_is_nothing_to_stop_a_message_says_so() {
    let before = record("Deactivated", "spec.suspend", &json!(true), &json!(false));
    let mut ended = job(&[], false);
    (ended["apiVersion"], ended["kind"]) = (json!("batch/v1"), json!("Job"));
    ended["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let mut copy = job(&[], false);
    copy["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "name": "set", "uid": "s", "controller": true}
    ]);
    for (kind, found, expected) in [
        (
            "job",
            job(&[("paused", &before), ("active", "false")], true),
            "is deactivated already. To let it go on: kubectl tenure activate job.batch/test -n ns",
        ),
        ("job", job(&[], true), "is paused already, but not by Tenure: its spec.suspend is true"),
        ("job", ended, "has ended"),
        ("job", copy, "controlled by jobset/set, which Tenure pauses instead: deactivate that"),
        (
            "rollout",
            object(&[], &json!({"replicas": 1})),
            "this plugin knows no field that pauses a Rollout of argoproj.io/v1",
        ),
    ] {
        let error = judged(&Deactivate, kind, &found).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_labels_of_pods_count_before_those_of_their_owner() {
    let labels = |key: &str, queue: &str| json!({"labels": {key: queue}});
    let runai = |queue| labels(RUNAI_QUEUE_LABEL, queue);
    let tensorstack = |queue| labels(TENSORSTACK_QUEUE_LABEL, queue);
    let of_replicas = json!({"metadata": runai("own"), "spec": {"replicaSpecs": [{"template": {"metadata": tensorstack("pods")}}]}});
    assert_eq!(queue_of(&of_replicas), Some((Family::Tensorstack, "pods")));
    assert_eq!(queue_of(&json!({"metadata": runai("own"), "spec": {}})), Some((Family::Runai, "own")));
    for none in [json!({}), json!({"metadata": runai("")}), json!([1, null])] {
        assert_eq!(queue_of(&none), None, "{none}");
    }
}
