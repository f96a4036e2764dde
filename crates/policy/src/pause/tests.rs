use super::*;
use crate::owner_table::{EndedWhen, KINDS, OnExpiry};

fn rule(field: &str, value: Value) -> PauseRule {
    let (group, kind, field) = (String::new(), String::new(), field.into());
    PauseRule {
        group,
        kind,
        field,
        value,
        command: None,
        decides_activation: false,
        on_reversal: None,
        on_expiry: OnExpiry::Pause,
    }
}

/// The record of a pause, with the reversals that the owner shows.
fn record(
    owner: OwnerObject<'_>,
    rule: &PauseRule,
    reason: &'static str,
    queue: (Family, &str),
    at: Timestamp,
) -> PausedRecord {
    let plan = PausePlan { reason, at, until: ResumeCondition::Resumed };
    super::record(owner, rule, queue, Pause::new(plan, Reversals::of(owner, reason, None)))
}

const QUEUE: (Family, &str) = (Family::Runai, "q");

fn deployment() -> Value {
    let metadata = json!({"name": "d", "uid": "u", "resourceVersion": "7"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2}})
}

#[test]
fn the_patch_pauses_records_and_is_preconditioned() {
    let (object, rule) = (deployment(), rule("spec.replicas", json!(0)));
    let owner = OwnerObject(&object);
    let record = record(
        owner,
        &rule,
        MAX_DURATION_EXCEEDED,
        (Family::Tensorstack, "demo"),
        "2026-01-02T03:04:05Z".parse().unwrap(),
    );
    let annotation = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","queueGroup":"scheduler.tensorstack.dev","uid":"u","field":"spec.replicas","value":0,"previousValue":2,"managers":{"spec.replicas":[]}}"#;
    let mut expected: Value = json!({
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {
            "tenure.dev/expires-at": null, "tenure.dev/notice-given-at": null,
            "tenure.dev/message": "Paused at 2026-01-02T03:04:05Z by Queue demo's ceiling. To resume: kubectl tenure resume deployment.apps/d",
        }},
        "spec": {"replicas": 0},
    });
    expected["metadata"]["annotations"]["tenure.dev/paused"] =
        serde_json::from_str::<PausedRecord>(annotation)
            .map(|record| json!(record).to_string().into())
            .unwrap();
    assert_eq!(patch(owner, &record, &ResumeCondition::Resumed), expected);
}

#[test]
fn evictions_and_deactivations_after_them_are_for_readiness() {
    let object = deployment();
    let rule = rule("spec.replicas", json!(0));
    let of = |reason| record(OwnerObject(&object), &rule, reason, QUEUE, Timestamp::UNIX_EPOCH);
    let for_readiness = [PODS_READY_TIMEOUT, WORKLOAD_INACTIVE, MAX_DURATION_EXCEEDED, DEACTIVATED];
    assert_eq!(for_readiness.map(|reason| is_for_readiness(&of(reason))), [true, true, false, false]);
}

#[test]
fn deep_fields_are_set_without_touching_their_siblings() {
    let object = json!({"metadata": {}});
    let rule = rule("spec.runMode.pause.enabled", json!(true));
    let record = record(OwnerObject(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
    assert_eq!(record.previous_value, Value::Null);
    let patch = patch(OwnerObject(&object), &record, &ResumeCondition::Resumed);
    assert_eq!(patch["spec"], json!({"runMode": {"pause": {"enabled": true}}}));
}

#[test]
fn a_pause_of_what_was_paused_before_counts_as_reversed() {
    let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
    for expected in 0..3 {
        let record = record(OwnerObject(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
        assert_eq!(record.reversals, expected);
        object["metadata"]["annotations"] = json!({"tenure.dev/paused": json!(record).to_string()});
    }
}

#[test]
fn a_pause_is_taken_back_with_its_record() {
    let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
    let record = record(OwnerObject(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
    object["spec"]["replicas"] = json!(0);
    let mut metadata =
        json!({"uid": "u", "resourceVersion": "7", "annotations": {"tenure.dev/paused": null}});
    let note = json!({"uid": "u", "fields": {"spec.replicas": []}}).to_string();
    let mut expected = json!({"metadata": metadata, "spec": {"replicas": 2}});
    expected["metadata"]["annotations"]["tenure.dev/hand-back"] = json!(note);
    assert_eq!(resume(OwnerObject(&object), &record), expected);
    metadata["annotations"] = json!({"tenure.dev/paused": null});
    object["spec"]["replicas"] = json!(5);
    assert_eq!(resume(OwnerObject(&object), &record), json!({"metadata": metadata}), "not ours to undo");
}

#[test]
fn the_words_beside_a_record_come_and_go_with_it() {
    let words = |object: &Value| object["metadata"]["annotations"]["tenure.dev/message"].clone();
    let now = Timestamp::UNIX_EPOCH;
    let back = ResumeCondition::Requeued(RequeueState { count: 1, requeue_at: Some(now), priority: None });
    for (reason, until, expected) in [
        (PODS_READY_TIMEOUT, back, "To requeue: kubectl tenure requeue deployment.apps/d"),
        (
            WORKLOAD_INACTIVE,
            ResumeCondition::Activated,
            "too often. To activate: kubectl tenure activate deployment.apps/d",
        ),
        (
            DEACTIVATED,
            ResumeCondition::Activated,
            "by a person. To activate: kubectl tenure activate deployment.apps/d",
        ),
    ] {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let record = record(OwnerObject(&object), &rule, reason, QUEUE, now);
        let pausing = patch(OwnerObject(&object), &record, &until);
        json_patch::merge(&mut object, &pausing);
        let said = words(&object);
        assert!(said.as_str().unwrap().contains(" 1970-01-01T00:00:00Z"), "{said}");
        assert!(said.as_str().unwrap().ends_with(expected), "{said}");
        let deactivating = deactivate(OwnerObject(&object), &record);
        json_patch::merge(&mut object, &deactivating);
        assert!(words(&object).as_str().unwrap().starts_with("Deactivated at "));
        let resuming = resume(OwnerObject(&object), &record);
        json_patch::merge(&mut object, &resuming);
        assert_eq!(words(&object), Value::Null);
    }
}

fn returning(count: u32, requeue_at: Option<&str>) -> Value {
    json!({"tenure.dev/requeue-state": json!({"count": count, "requeueAt": requeue_at}).to_string()})
}

fn state(patch: &Value) -> Option<Value> {
    let state = patch["metadata"]["annotations"].get("tenure.dev/requeue-state")?;
    Some(state.as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap()))
}

#[test]
fn a_pause_says_itself_when_it_ends() {
    let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
    let now = Timestamp::UNIX_EPOCH;
    let requeued = RequeueState { count: 3, requeue_at: Some(now), priority: Some(7) };
    let of = |object: &Value, until: &ResumeCondition| {
        let record = record(OwnerObject(object), &rule, MAX_DURATION_EXCEEDED, QUEUE, now);
        patch(OwnerObject(object), &record, until)
    };
    let written = state(&of(&object, &ResumeCondition::Requeued(requeued)));
    assert_eq!(written, Some(json!({"count": 3, "requeueAt": "1970-01-01T00:00:00Z", "priority": 7})));
    for until in [ResumeCondition::Resumed, ResumeCondition::Activated] {
        object["metadata"]["annotations"] = json!({});
        assert_eq!(state(&of(&object, &until)), None);
        // from an earlier pause that was reversed
        object["metadata"]["annotations"] = returning(2, Some("1970-01-01T00:00:00Z"));
        assert_eq!(state(&of(&object, &until)), Some(json!({"count": 2})));
        object["metadata"]["annotations"] = returning(0, Some("9999-01-01T00:00:00Z"));
        assert_eq!(state(&of(&object, &until)), Some(Value::Null));
        object["metadata"]["annotations"] = returning(2, None);
        assert_eq!(state(&of(&object, &until)), None, "as it is");
    }
    let deactivated = of(&object, &ResumeCondition::Activated);
    assert_eq!(deactivated["metadata"]["annotations"]["tenure.dev/active"], "false");
}

#[test]
fn the_count_outlives_a_return_and_begins_anew_after_a_deactivation() {
    let rule = rule("spec.replicas", json!(0));
    let paused = |reason: &'static str, annotations: Value| {
        let mut object = deployment();
        let record = record(OwnerObject(&object), &rule, reason, QUEUE, Timestamp::UNIX_EPOCH);
        object["spec"]["replicas"] = json!(0);
        object["metadata"]["annotations"] = annotations;
        resume(OwnerObject(&object), &record)
    };
    let due = || returning(2, Some("1970-01-01T00:00:00Z"));
    assert_eq!(state(&paused(PODS_READY_TIMEOUT, due())), Some(json!({"count": 2})));
    assert_eq!(state(&paused(MAX_DURATION_EXCEEDED, json!({}))), None);
    for reason in [WORKLOAD_INACTIVE, DEACTIVATED] {
        assert_eq!(state(&paused(reason, due())), Some(Value::Null), "{reason}");
    }
    let mut inactive = due();
    inactive["tenure.dev/active"] = json!("false");
    let resumed = paused(PODS_READY_TIMEOUT, inactive);
    assert_eq!(state(&resumed), Some(Value::Null));
    assert_eq!(resumed["metadata"]["annotations"]["tenure.dev/active"], Value::Null);
}

fn noted(annotations: &Value) -> ObjectMeta {
    serde_json::from_value(json!({"annotations": annotations})).unwrap()
}

#[test]
fn what_is_inactive_never_returns_and_what_is_active_again_does_at_once() {
    let (owner, now) = (deployment(), Some(Timestamp::MIN));
    let of = |reason: &'static str, active: Option<&str>| {
        let rule = rule("spec.replicas", json!(0));
        let record = record(OwnerObject(&owner), &rule, reason, QUEUE, Timestamp::UNIX_EPOCH);
        let mut annotations = returning(1, Some("2026-01-01T00:00:00Z"));
        annotations["tenure.dev/active"] = json!(active);
        annotations.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        Return::of(&record, &noted(&annotations))
    };
    let due = Return::Requeue("2026-01-01T00:00:00Z".parse().unwrap());
    for (reason, active, expected) in [
        (PODS_READY_TIMEOUT, None, due),
        (PODS_READY_TIMEOUT, Some("true"), due),
        (PODS_READY_TIMEOUT, Some("false"), Return::Deactivate),
        (MAX_DURATION_EXCEEDED, None, due),
        (WORKLOAD_INACTIVE, Some("false"), Return::Never),
        (WORKLOAD_INACTIVE, Some("true"), Return::Reactivate),
        (WORKLOAD_INACTIVE, None, Return::Reactivate),
        (DEACTIVATED, Some("false"), Return::Never),
        (DEACTIVATED, Some("true"), Return::Reactivate),
    ] {
        assert_eq!(of(reason, active), expected, "{reason} {active:?}");
    }
    for (back, at, comes_back) in [
        (Return::Never, None, false),
        (due, due.at(), true),
        (Return::Reactivate, now, true),
        (Return::Deactivate, now, false),
    ] {
        assert_eq!((back.at(), back.comes_back()), (at, comes_back), "{back:?}");
    }
}

#[test]
fn what_a_person_has_deactivated_while_it_waited_begins_anew_when_it_is_activated() {
    let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
    let record = record(OwnerObject(&object), &rule, PODS_READY_TIMEOUT, QUEUE, Timestamp::UNIX_EPOCH);
    let mut annotations = returning(2, Some("2026-01-01T00:00:00Z"));
    annotations["tenure.dev/active"] = json!("false");
    annotations["tenure.dev/paused"] = json!(json!(record).to_string());
    (object["spec"]["replicas"], object["metadata"]["annotations"]) = (json!(0), annotations);

    let patch = deactivate(OwnerObject(&object), &record);
    assert_eq!((patch.get("spec"), state(&patch)), (None, Some(json!({"count": 2}))));
    assert_eq!(
        (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
        (&json!("u"), &json!("7"))
    );
    let mut annotations = patch["metadata"]["annotations"].clone();
    object["metadata"]["annotations"] = annotations.clone();
    let inactive = OwnerObject(&object).record().unwrap();
    assert_eq!(inactive, PausedRecord { reason: DEACTIVATED.into(), ..record });
    assert_eq!(Return::of(&inactive, &noted(&annotations)), Return::Never);

    annotations.as_object_mut().unwrap().remove("tenure.dev/active");
    assert_eq!(Return::of(&inactive, &noted(&annotations)), Return::Reactivate);
    object["metadata"]["annotations"] = annotations;
    let resumed = resume(OwnerObject(&object), &inactive);
    assert_eq!((&resumed["spec"]["replicas"], state(&resumed)), (&json!(2), Some(Value::Null)));
}

#[test]
fn a_state_that_can_not_be_read_is_none() {
    let at = "2026-01-01T00:00:00Z";
    for text in [
        "soon".to_owned(),
        "[]".to_owned(),
        json!({"count": -1, "requeueAt": at}).to_string(),
        json!({"count": 4_294_967_296_u64, "requeueAt": at}).to_string(),
        json!({"count": 1, "requeueAt": "10000-01-01T00:00:00Z"}).to_string(),
        json!({"count": 1, "requeueAt": 5}).to_string(),
    ] {
        let read = requeue_state_on(&noted(&json!({"tenure.dev/requeue-state": text})));
        assert_eq!(read, RequeueState::default(), "{text}");
    }
    for at in ["1970-01-01T00:00:00Z", "9999-12-30T00:00:00Z"] {
        let read = requeue_state_on(&noted(&returning(7, Some(at))));
        assert_eq!((read.count, read.requeue_at), (7, Some(at.parse().unwrap())));
    }
}

#[test]
fn a_field_that_another_writer_has_set_and_set_back_is_not_ours_to_undo() {
    let (mut object, field_of) = (deployment(), |name: &str| rule(name, json!(0)));
    let mut was_set = |field: &str, managed: Value| {
        object["metadata"]["managedFields"] = managed;
        let record =
            record(OwnerObject(&object), &field_of(field), PODS_READY_TIMEOUT, QUEUE, Timestamp::UNIX_EPOCH);
        was_set_since(OwnerObject(&object), &record)
    };
    let entry = |annotation: &str, spec: Value| {
        let annotations = json!({format!("f:{annotation}"): {}});
        json!({"fieldsV1": {"f:metadata": {"f:annotations": annotations}, "f:spec": spec}})
    };
    let keeper = |spec| entry("tenure.dev/paused", spec);
    let person = |spec| entry("example.com/note", spec);
    let replicas = || json!({"f:replicas": {}});
    for (managed, expected) in [
        (json!(null), false),
        (json!([person(replicas())]), false),
        (json!([keeper(replicas()), person(json!({}))]), false),
        (json!([keeper(json!({"f:paused": {}})), person(replicas())]), true),
        (json!([keeper(replicas()), person(replicas())]), false),
    ] {
        assert_eq!(was_set("spec.replicas", managed.clone()), expected, "{managed}");
    }
    let whole = json!([keeper(json!({"f:runMode": {}}))]);
    assert!(!was_set("spec.runMode.pause.enabled", whole), "a writer of the whole has set each part");
    // the rest of the keeper's fields after a person has taken over those that it set
    let keepers = keeper(json!({"f:runMode": {".": {}, "f:pause": {}}}));
    let persons = person(json!({"f:runMode": {"f:pause": {"f:enabled": {}}}}));
    assert!(!was_set("spec.runMode.pause.enabled", json!([keepers])));
    assert!(was_set("spec.runMode.pause.enabled", json!([keepers, persons])));
}

#[test]
fn who_only_forgets_leaves_the_field_as_it_is() {
    let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
    let record = record(OwnerObject(&object), &rule, PODS_READY_TIMEOUT, QUEUE, Timestamp::UNIX_EPOCH);
    object["spec"]["replicas"] = json!(0);
    object["metadata"]["annotations"] = returning(2, Some("2026-01-01T00:00:00Z"));
    let patch = forget(OwnerObject(&object), &record);
    assert_eq!((patch.get("spec"), state(&patch)), (None, Some(json!({"count": 2}))));
    assert_eq!(patch["metadata"]["annotations"]["tenure.dev/paused"], Value::Null);
}

#[test]
fn an_object_has_ended_if_the_row_of_its_kind_says_so() {
    for row in KINDS {
        for kind in row.kinds {
            let ended = |status: Value| {
                let version = format!("{}/{}", row.group, row.versions[0]);
                OwnerObject(&json!({"apiVersion": version, "kind": kind, "status": status})).is_finished()
            };
            let condition = |type_: &str, status: &str| json!({"conditions": [{"type": "Suspended", "status": "True"}, {"type": type_, "status": status}]});
            let (mut found, mut others) =
                (vec![], vec![ended(Value::Null), ended(condition("Suspended", "True"))]);
            match row.ended {
                EndedWhen::Never => {
                    others.extend(["Complete", "Failed"].map(|of| ended(condition(of, "True"))));
                }
                EndedWhen::Condition(types) => {
                    found.extend(types.iter().map(|of| ended(condition(of, "True"))));
                    others.extend(types.iter().map(|of| ended(condition(of, "False"))));
                }
                EndedWhen::Text(path, texts) => {
                    let status = |text: &str| {
                        let keys = path.strip_prefix("status.").unwrap().rsplit('.');
                        keys.fold(json!(text), |value, key| json!({key: value}))
                    };
                    found.extend(texts.iter().map(|text| ended(status(text))));
                    others.extend(["Running", "Suspended", ""].map(|text| ended(status(text))));
                }
            }
            assert!(!found.contains(&false) && !others.contains(&true), "{} {kind}: {found:?}", row.group);
        }
    }
    let namesake = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    assert!(!OwnerObject(&namesake).is_finished());
}

#[test]
fn a_pruned_field_and_a_lost_record_are_failures() {
    let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
    let record = record(OwnerObject(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
    assert!(!took(OwnerObject(&object), &record));
    object["spec"]["replicas"] = json!(0);
    assert!(!took(OwnerObject(&object), &record));
    object["metadata"]["annotations"] = json!({"tenure.dev/paused": json!(record).to_string()});
    assert!(took(OwnerObject(&object), &record));
}

#[test]
fn a_job_that_a_cron_job_controls_holds_it_up_if_that_forbids_others() {
    let job = |api_version: &str| ObjectReference {
        api_version: Some(api_version.into()),
        kind: Some("Job".into()),
        ..ObjectReference::default()
    };
    let of = |job: &ObjectReference, api_version: &str, controller: bool| {
        let owner = json!({"apiVersion": api_version, "kind": "CronJob", "name": "nightly", "uid": "u", "controller": controller});
        let metadata = serde_json::from_value(json!({"ownerReferences": [owner]})).unwrap();
        cron_job_of(job, &metadata).map(|cron_job| cron_job.name)
    };
    assert_eq!(of(&job("batch/v1"), "batch/v1", true).as_deref(), Some("nightly"));
    assert_eq!(of(&job("batch/v1"), "batch/v1", false), None, "it merely owns");
    assert_eq!(of(&job("batch/v1"), "example.com/v1", true), None);
    assert_eq!(of(&job("batch.volcano.sh/v1alpha1"), "batch/v1", true), None);
    let policies = [
        (json!("Forbid"), PausedRun::HoldsUp),
        (json!("Allow"), PausedRun::StaysBeside),
        (json!("Replace"), PausedRun::IsReplaced),
        (Value::Null, PausedRun::StaysBeside),
    ];
    for (policy, expected) in policies {
        assert_eq!(PausedRun::of(OwnerObject(&json!({"spec": {"concurrencyPolicy": policy}}))), expected);
    }
}
