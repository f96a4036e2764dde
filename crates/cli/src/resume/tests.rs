use serde_json::{Value, json};

use super::*;
use crate::change::{testing, testing::message};

fn judged(kind: &str, found: &Value, fields: &[&str]) -> Result<ObjectChange, String> {
    let fields = fields.iter().map(|field| (*field).to_owned()).collect();
    testing::judged(&Resume { fields, bulk: BulkArgs::default() }, kind, found)
}

fn record(field: &str, value: &Value, previous: &Value) -> String {
    testing::record("MaxDurationExceeded", field, value, previous)
}

fn object(record: &str, spec: &Value) -> Value {
    testing::object(&[("paused", record)], spec)
}

#[test]
fn a_pause_is_taken_back_as_its_record_says() {
    let paused = object(&record("spec.replicas", &json!(0), &json!(2)), &json!({"replicas": 0}));
    let resumption = judged("deployment", &paused, &[]).unwrap();
    assert_eq!(resumption.patch["spec"], json!({"replicas": 2}));
    let now = json!({"spec": {"replicas": 2}});
    assert_eq!(message(&resumption, &now), Ok("resumed (spec.replicas: 2)".into()));
}

#[test]
fn in_bulk_a_workload_that_was_deactivated_since_the_list_stays_so() {
    let record = record("spec.suspend", &json!(true), &json!(false));
    let paused = testing::object(&[("paused", &record), ("active", "false")], &json!({"suspend": true}));
    let judged = |bulk| testing::judged(&Resume { fields: Vec::new(), bulk }, "job", &paused);
    assert!(judged(BulkArgs::default()).is_ok());
    let left = "job.batch/test was deactivated meanwhile. To let it go on: kubectl tenure activate job.batch/test -n ns";
    assert_eq!(judged(BulkArgs::all()).unwrap_err(), left);
}

#[test]
fn a_field_that_was_absent_is_removed() {
    let paused = object(&record("spec.suspend", &json!(true), &Value::Null), &json!({"suspend": true}));
    let resumption = judged("job", &paused, &[]).unwrap();
    assert_eq!(resumption.patch["spec"], json!({"suspend": null}));
    assert_eq!(message(&resumption, &json!({"spec": {}})), Ok("resumed (spec.suspend: unset)".into()));
}

#[test]
fn what_somebody_has_set_since_stays() {
    let paused = object(&record("spec.replicas", &json!(0), &json!(2)), &json!({"replicas": 5}));
    let resumption = judged("deployment", &paused, &[]).unwrap();
    assert_eq!(resumption.patch.get("spec"), None);
    assert!(message(&resumption, &paused).unwrap().starts_with("resumed (spec.replicas: 5, which "));
}

#[test]
fn a_field_that_the_server_keeps_is_a_failure() {
    let paused = object(&record("spec.replicas", &json!(0), &json!(2)), &json!({"replicas": 0}));
    let resumption = judged("deployment", &paused, &[]).unwrap();
    assert!(message(&resumption, &paused).unwrap_err().contains("spec.replicas is still 0"));
}

#[test]
fn without_a_record_there_is_nothing_to_take_back() {
    let by_other = judged("deployment", &json!({"metadata": {}, "spec": {"replicas": 0}}), &[]).unwrap_err();
    assert_eq!(
        by_other,
        "deployment.apps/test was not paused by Tenure: it has no annotation tenure.dev/paused, though its spec.replicas is 0: set by another user or controller: kubectl get --show-managed-fields -o yaml shows by which"
    );
    let running = judged("deployment", &json!({"metadata": {}, "spec": {"replicas": 2}}), &[]).unwrap_err();
    assert!(running.ends_with("it has no annotation tenure.dev/paused"), "{running}");
}

#[test]
fn a_record_that_cannot_be_read_is_shown_with_a_way_out() {
    for (kind, spec, patch) in [
        ("deployment", json!({"replicas": 0}), json!({"replicas": 1})),
        ("job", json!({"suspend": true}), json!({"suspend": false})),
        ("notebook", json!({"runMode": "paused"}), json!({"runMode": null})),
    ] {
        let error = judged(kind, &object("{broken", &spec), &[]).unwrap_err();
        assert!(error.contains("can't be read: {broken\nTo resume by hand: kubectl patch "), "{error}");
        let written = error.split(" -n ns --type merge -p '").nth(1).unwrap().trim_end_matches('\'');
        let expected = json!({"metadata": {"annotations": {"tenure.dev/paused": null}}, "spec": patch});
        assert_eq!(serde_json::from_str::<Value>(written).unwrap(), expected);
    }
}

#[test]
fn no_record_can_make_us_set_any_field() {
    let evil = record("spec.template.spec.hostNetwork", &json!(false), &json!(true));
    let error = judged("deployment", &object(&evil, &json!({})), &[]).unwrap_err();
    assert!(error.contains("names spec.template.spec.hostNetwork, which Tenure doesn't set"), "{error}");
    let rollout = object(&record("spec.replicas", &json!(0), &json!(3)), &json!({"replicas": 0}));
    assert!(judged("rollout", &rollout, &[]).is_err());
    let allowed = judged("rollout", &rollout, &["spec.replicas"]).unwrap();
    assert_eq!(allowed.patch["spec"], json!({"replicas": 3}));
}

#[test]
fn a_copy_of_its_controllers_record_is_none_of_its_own() {
    let mut copy = object(&record("spec.suspend", &json!(true), &json!(false)), &json!({"suspend": true}));
    copy["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "name": "set", "uid": "s", "controller": true}
    ]);
    assert!(judged("job", &copy, &[]).unwrap_err().contains("controlled by jobset/set"));
    copy["metadata"]["ownerReferences"][0]["kind"] = json!("Other");
    assert!(judged("job", &copy, &[]).is_ok());
    let mut record: Value =
        serde_json::from_str(copy["metadata"]["annotations"]["tenure.dev/paused"].as_str().unwrap()).unwrap();
    record["uid"] = json!("another");
    copy["metadata"]["annotations"]["tenure.dev/paused"] = json!(record.to_string());
    let error = judged("job", &copy, &[]).unwrap_err();
    assert!(error.contains("isn't a record that Tenure follows: it is of another object's pause"), "{error}");
}

#[test]
fn what_was_paused_below_its_controller_has_a_record_of_its_own() {
    let below = |uid: &str| {
        let mut record: Value =
            serde_json::from_str(&record("spec.suspend", &json!(true), &json!(false))).unwrap();
        record["uid"] = json!(uid);
        let mut below = object(&record.to_string(), &json!({"suspend": true}));
        below["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "name": "set", "uid": "s", "controller": true}
        ]);
        below
    };
    assert_eq!(judged("job", &below("u"), &[]).unwrap().patch["spec"], json!({"suspend": false}));
    assert!(judged("job", &below("s"), &[]).unwrap_err().contains("controlled by jobset/set"));
}

#[test]
fn what_would_come_back_by_itself_and_what_was_deactivated_is_named() {
    let state = r#"{"count":2,"requeueAt":"2026-01-02T03:09:05Z"}"#;
    let suspended = json!({"suspend": true});
    let record = |reason: &str| testing::record(reason, "spec.suspend", &json!(true), &json!(false));
    let note = |annotations: &[(&str, &str)]| {
        let found = testing::object(annotations, &suspended);
        judged("job", &found, &[]).unwrap().note.unwrap()
    };
    let ceiling = "New pods of job.batch/test get a full ceiling of queue demo.";
    assert_eq!(note(&[("paused", &record("MaxDurationExceeded"))]), ceiling);
    assert_eq!(
        note(&[("paused", &record("PodsReadyTimeout")), ("requeue-state", state)]),
        format!(
            "{ceiling}\njob.batch/test would have come back by itself at 2026-01-02T03:09:05Z. It keeps its count of returns, 2."
        )
    );
    let active = format!(
        "{ceiling}\njob.batch/test was deactivated: it is active again, and its returns count from 0."
    );
    assert_eq!(note(&[("paused", &record("WorkloadInactive")), ("active", "false")]), active);
    assert_eq!(
        note(&[("paused", &record("PodsReadyTimeout")), ("requeue-state", state), ("active", "false")]),
        active
    );
}

mod activate {
    use serde_json::{Value, json};

    use super::*;
    use crate::change::testing::{judged, message, object, record};

    fn suspended(reason: &str, more: &[(&str, &str)]) -> Value {
        let record = record(reason, "spec.suspend", &json!(true), &json!(false));
        object(&[&[("paused", record.as_str())], more].concat(), &json!({"suspend": true}))
    }

    const STATE: (&str, &str) = ("requeue-state", r#"{"count":2,"requeueAt":"2026-01-02T03:09:05Z"}"#);

    #[test]
    fn what_was_deactivated_goes_on_and_counts_anew() {
        for found in [
            suspended("WorkloadInactive", &[("active", "false"), STATE]),
            suspended("Deactivated", &[("active", "false"), STATE]),
            // by hand, while it waited
            suspended("PodsReadyTimeout", &[("active", "false"), STATE]),
        ] {
            let activation = judged(&Activate, "job", &found).unwrap();
            let note = json!({"uid": "u", "fields": {"spec.suspend": []}}).to_string();
            let annotations = json!({
                "tenure.dev/paused": null, "tenure.dev/active": null, "tenure.dev/requeue-state": null, "tenure.dev/hand-back": note,
            });
            let metadata = json!({"uid": "u", "resourceVersion": "7", "annotations": annotations});
            assert_eq!(activation.patch, json!({"metadata": metadata, "spec": {"suspend": false}}));
            let now = json!({"spec": {"suspend": false}});
            assert_eq!(message(&activation, &now), Ok("activated (spec.suspend: false)".into()));
        }
    }

    #[test]
    fn what_was_never_paused_is_marked_as_active() {
        let found = object(&[("active", "false")], &json!({"suspend": true}));
        let activation = judged(&Activate, "job", &found).unwrap();
        let annotations = json!({"tenure.dev/active": null, "tenure.dev/requeue-state": null});
        let metadata = json!({"uid": "u", "resourceVersion": "7", "annotations": annotations});
        assert_eq!(activation.patch, json!({"metadata": metadata}));
    }

    #[test]
    fn what_is_not_deactivated_is_reported_with_what_helps() {
        for (found, expected) in [
            (
                object(&[], &json!({})),
                "job.batch/test is not deactivated: it has no annotation tenure.dev/active",
            ),
            (
                suspended("PodsReadyTimeout", &[STATE]),
                "comes back by itself at 2026-01-02T03:09:05Z. To bring it back at once: kubectl tenure requeue job.batch/test -n ns",
            ),
            (
                suspended("MaxDurationExceeded", &[]),
                "it was paused because of MaxDurationExceeded. To let it go on: kubectl tenure resume job.batch/test -n ns",
            ),
        ] {
            let error = judged(&Activate, "job", &found).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

mod requeue {
    use serde_json::{Value, json};

    use super::*;
    use crate::change::testing::{judged, object, record};

    fn suspended(reason: &str, more: &[(&str, &str)]) -> Value {
        let record = record(reason, "spec.suspend", &json!(true), &json!(false));
        object(&[&[("paused", record.as_str())], more].concat(), &json!({"suspend": true}))
    }

    fn state(count: u32) -> String {
        format!(r#"{{"count":{count},"requeueAt":"2026-01-02T03:09:05Z","priority":5}}"#)
    }

    #[test]
    fn who_waits_comes_back_and_its_count_stays() {
        let found = suspended("PodsReadyTimeout", &[("requeue-state", &state(2))]);
        let resumption = judged(&Requeue, "job", &found).unwrap();
        assert_eq!(resumption.patch["spec"], json!({"suspend": false}));
        let annotations = &resumption.patch["metadata"]["annotations"];
        assert_eq!(annotations["tenure.dev/paused"], Value::Null);
        let kept: Value =
            serde_json::from_str(annotations["tenure.dev/requeue-state"].as_str().unwrap()).unwrap();
        assert_eq!(kept, json!({"count": 2, "priority": 5}));
        let note = resumption.note.unwrap();
        assert!(
            note.ends_with("by itself at 2026-01-02T03:09:05Z. It keeps its count of returns, 2."),
            "{note}"
        );
    }

    #[test]
    fn the_pause_between_two_time_slices_is_a_wait_too() {
        let found = suspended("MaxDurationExceeded", &[("requeue-state", &state(0))]);
        let resumption = judged(&Requeue, "job", &found).unwrap();
        assert_eq!(resumption.patch["metadata"]["annotations"]["tenure.dev/requeue-state"], Value::Null);
    }

    #[test]
    fn what_does_not_wait_is_reported_with_what_helps() {
        for (found, expected) in [
            (object(&[], &json!({"suspend": true})), "was not paused by Tenure"),
            (
                suspended("WorkloadInactive", &[("active", "false")]),
                "it is deactivated. To let it go on: kubectl tenure activate job.batch/test -n ns",
            ),
            (
                suspended("PodsReadyTimeout", &[("active", "false"), ("requeue-state", &state(1))]),
                "it is deactivated. To let it go on: kubectl tenure activate",
            ),
            (
                suspended("MaxDurationExceeded", &[]),
                "until a person resumes it. To let it go on: kubectl tenure resume job.batch/test -n ns",
            ),
        ] {
            let error = judged(&Requeue, "job", &found).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
