use serde_json::{Value, json};

use super::*;
use crate::{
    expiry::Family,
    owner_table::OwnerTable,
    pause::{self, Pause, PausePlan, ResumeCondition, Return, Reversals},
};

const POLICY: &str = "/spec/persistentVolumeClaimRetentionPolicy/whenScaled";

fn object(kind: &str, replicas: u32, scaled: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": "s", "uid": "u", "resourceVersion": "7"},
        "spec": {"replicas": replicas, "persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": "Delete"}},
    })
}

/// Pauses an object, and returns the record.
fn pause(object: &mut Value) -> PausedRecord {
    let table = OwnerTable::default();
    let owner = OwnerObject(object);
    let reference = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": owner.at("kind"), "name": "s", "uid": "u",
    }));
    let rule = table.rules(&reference.unwrap()).next().unwrap();
    let (at, reason) = ("2026-01-02T03:04:05Z".parse().unwrap(), pause::MAX_DURATION_EXCEEDED);
    let plan = PausePlan { reason, at, until: ResumeCondition::Resumed };
    let pause = Pause::new(plan, Reversals::of(owner, reason, None));
    let record = pause::record(owner, rule, (Family::Runai, "q"), pause);
    let patch = pause::patch(owner, &record, &ResumeCondition::Resumed);
    json_patch::merge(object, &patch);
    assert!(pause::took(OwnerObject(object), &record));
    record
}

fn policy(object: &Value) -> &str {
    object.pointer(POLICY).unwrap().as_str().unwrap()
}

#[test]
fn a_pause_keeps_the_claims_of_a_stateful_set_and_a_resume_gives_its_policy_back() {
    let before = object("StatefulSet", 3, "Delete");
    let mut set = before.clone();
    let record = pause(&mut set);
    assert_eq!((&set["spec"]["replicas"], policy(&set)), (&json!(0), "Retain"));
    let deactivated = pause::deactivate(OwnerObject(&set), &record);
    assert_eq!(deactivated.pointer("/spec"), None, "it stays paused");
    for back in [
        pause::resume(OwnerObject(&set), &record),
        Return::Never.patch(OwnerObject(&set), &record).get().clone(),
    ] {
        let mut resumed = set.clone();
        json_patch::merge(&mut resumed, &back);
        assert_eq!(resumed["spec"], before["spec"]);
    }
}

#[test]
fn only_what_would_be_destroyed_is_held() {
    for (kind, scaled) in [("StatefulSet", "Retain"), ("Deployment", "Delete")] {
        let mut paused = object(kind, 3, scaled);
        assert_eq!(pause(&mut paused).held, [], "{kind}");
        assert_eq!(policy(&paused), scaled, "{kind}");
    }
}

#[test]
fn a_start_by_other_means_gives_the_policy_back_and_keeps_the_record_apart() {
    let mut set = object("StatefulSet", 3, "Delete");
    let record = pause(&mut set);
    assert_eq!(pause::overtaken(OwnerObject(&set), &record), None, "it is paused");
    set["spec"]["replicas"] = json!(1);
    let patch = pause::overtaken(OwnerObject(&set), &record).unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    json_patch::merge(&mut set, &patch);
    assert_eq!((&set["spec"]["replicas"], policy(&set)), (&json!(1), "Delete"));
    let left = OwnerObject(&set);
    assert_eq!((left.record(), left.annotation("tenure.dev/message")), (None, None));
    assert_eq!(left.last_record(), Some(PausedRecord { held: Vec::new(), ..record }));
    assert_eq!(pause(&mut set).reversals, 1);
    assert_eq!(set["metadata"]["annotations"].get("tenure.dev/undone-pause"), None);
}

#[test]
fn a_second_pause_knows_the_policy_of_before_the_first() {
    let mut set = object("StatefulSet", 3, "Delete");
    pause(&mut set);
    set["spec"]["replicas"] = json!(1);
    let again = pause(&mut set);
    assert_eq!((again.held.len(), again.reversals), (1, 1));
    let patch = pause::resume(OwnerObject(&set), &again);
    json_patch::merge(&mut set, &patch);
    assert_eq!(policy(&set), "Delete");
}

#[test]
fn a_forged_record_sets_no_other_field_and_no_other_value() {
    let mut set = object("StatefulSet", 3, "Delete");
    let record = pause(&mut set);
    let forged = |field: &str, previous_value: &str| {
        let (field, value, previous_value) = (field.into(), "Retain".into(), previous_value.into());
        PausedRecord { held: vec![HeldField { field, value, previous_value }], ..record.clone() }
    };
    let scaled = "spec.persistentVolumeClaimRetentionPolicy.whenScaled";
    for record in [forged("spec.serviceName", "Delete"), forged(scaled, "Other")] {
        let patch = pause::resume(OwnerObject(&set), &record);
        assert_eq!(patch["spec"], json!({"replicas": 3}));
    }
    set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = json!("Delete");
    let patch = pause::resume(OwnerObject(&set), &record);
    assert_eq!(patch["spec"], json!({"replicas": 3}), "a user has set it meanwhile");
}
