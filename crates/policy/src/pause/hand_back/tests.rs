use serde_json::{Value, json};

use super::*;
use crate::{
    expiry::Family,
    owner_table::{KINDS, OwnerTable, PauseRule, is_shown},
    pause::{self, Pause, PausePlan, ResumeCondition, Reversals},
};

const UPDATE: &str = "Update";

fn by(manager: &str, operation: &str, subresource: Option<&str>) -> FieldManager {
    let (manager, operation) = (manager.into(), operation.into());
    FieldManager { manager, operation, subresource: subresource.map(str::to_owned), time: None }
}

fn helm() -> FieldManager {
    by("helm", "Apply", None)
}

/// An entry that manages these fields.
fn entry(of: &FieldManager, fields: &[&str]) -> Value {
    let mut set = json!({});
    for field in fields {
        insert(&mut set, &field.split('.').collect::<Vec<_>>());
    }
    let (manager, operation) = (&of.manager, &of.operation);
    let mut entry = json!({
        "manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": set,
    });
    if let Some(subresource) = &of.subresource {
        entry["subresource"] = json!(subresource);
    }
    entry
}

fn object(spec: &Value, entries: &[Value]) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "uid": "u", "resourceVersion": "7", "managedFields": entries}, "spec": spec,
    })
}

/// A Deployment of two replicas, with these managers of the number.
fn deployment(managers: &[FieldManager]) -> Value {
    let entries: Vec<_> = managers.iter().map(|of| entry(of, &["spec.replicas", "spec.paused"])).collect();
    object(&json!({"replicas": 2}), &entries)
}

fn replicas() -> PauseRule {
    let of =
        serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "", "uid": ""}));
    OwnerTable::default().rules(&of.unwrap()).next().unwrap().clone()
}

/// The managers of a field, in the order of their entries.
fn managers(object: &Value, field: &str) -> Vec<FieldManager> {
    managers_of(OwnerObject(object), field).into_iter().map(timeless).collect()
}

/// Writes as the API server does: a client that changes the value of a field is its only manager from then on.
fn write(object: &mut Value, patch: &Value, of: &FieldManager, fields: &[&str]) {
    let before = object.clone();
    json_patch::merge(object, patch);
    let Some(Value::Array(mut entries)) = object["metadata"].get("managedFields").cloned() else { return };
    entries.retain(|entry| *entry != json!({}));
    for field in fields {
        let steps: Vec<&str> = field.split('.').collect();
        let now = OwnerObject(object).at(field);
        if now == OwnerObject(&before).at(field) {
            continue;
        }
        for entry in &mut entries {
            remove(&mut entry["fieldsV1"], &steps);
        }
        if !now.is_null() {
            give(&mut entries, &steps, of, &json!({"apiVersion": "apps/v1", "time": null}));
        }
    }
    entries.retain(|entry| !is_bare(&entry["fieldsV1"]));
    object["metadata"]["managedFields"] = entries.into();
}

fn keeper() -> FieldManager {
    by(KEEPER_MANAGER, UPDATE, None)
}

fn plugin() -> FieldManager {
    by(PLUGIN_MANAGER, UPDATE, None)
}

fn pause(object: &mut Value, rule: &PauseRule, of: &FieldManager) -> PausedRecord {
    let (at, reason) = ("2026-01-02T03:04:05Z".parse().unwrap(), pause::MAX_DURATION_EXCEEDED);
    let plan = PausePlan { reason, at, until: ResumeCondition::Resumed };
    let owner = OwnerObject(object);
    let pause = Pause::new(plan, Reversals::of(owner, reason, None));
    let record = pause::record(owner, rule, (Family::Runai, "q"), pause);
    let patch = pause::patch(owner, &record, &ResumeCondition::Resumed);
    let held = record.held.iter().map(|held| held.field.as_str());
    write(object, &patch, of, &held.chain([rule.field.as_str()]).collect::<Vec<_>>());
    record
}

fn resume(object: &mut Value, of: &FieldManager) {
    let record = OwnerObject(object).record().unwrap();
    let patch = pause::resume(OwnerObject(object), &record);
    let held = record.held.iter().map(|held| held.field.as_str());
    write(object, &patch, of, &held.chain([record.field.as_str()]).collect::<Vec<_>>());
}

/// Returns false if there was nothing to hand back.
fn hand_back_on(object: &mut Value) -> bool {
    let patch = hand_back(OwnerObject(object));
    if let Some(patch) = &patch {
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch.as_object().unwrap().len(), 1, "no value changes");
        write(object, patch, &keeper(), &[]);
    }
    assert_eq!(hand_back(OwnerObject(object)), None, "once");
    patch.is_some()
}

fn scale(object: &mut Value, replicas: u32, of: &FieldManager) {
    write(object, &json!({"spec": {"replicas": replicas}}), of, &["spec.replicas"]);
}

fn noted(object: &Value) -> &Value {
    &object["metadata"]["annotations"][keys::HAND_BACK_ANNOTATION]
}

#[test]
fn every_kind_gets_each_of_its_fields_back() {
    let mut fields = 0;
    for row in KINDS {
        for (kind, (field, value)) in
            row.kinds.iter().flat_map(|kind| row.pauses.iter().map(move |of| (kind, of)))
        {
            // what a controller writes is not Tenure's
            if is_shown(field) {
                continue;
            }
            let rule = PauseRule { field: (*field).into(), value: value.json(), ..replicas() };
            let before = json!("before");
            let mut owner = object(&Value::Null, &[entry(&helm(), &[field, "spec.other"])]);
            json_patch::merge(&mut owner, &Value::Object(pause::nested(field, before.clone())));
            (owner["kind"], owner["apiVersion"]) = (json!(kind), json!(format!("{}/v1", row.group)));
            pause(&mut owner, &rule, &keeper());
            assert_eq!(managers(&owner, field), [keeper()], "{kind} {field}: others run into a conflict");
            resume(&mut owner, &keeper());
            assert_eq!(managers(&owner, field), [keeper()], "{kind} {field}");
            assert!(hand_back_on(&mut owner), "{kind} {field}");
            assert_eq!(OwnerObject(&owner).at(field), &before, "{kind}");
            assert_eq!(managers(&owner, field), [helm()], "{kind} {field}");
            assert_eq!(owner["metadata"]["managedFields"].as_array().unwrap().len(), 1, "{kind}");
            fields += 1;
        }
    }
    assert!(fields > 20);
}

#[test]
fn the_fields_that_a_pause_holds_go_back_too() {
    let scaled = "spec.persistentVolumeClaimRetentionPolicy.whenScaled";
    let spec = json!({"replicas": 2, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}});
    let set = || {
        let mut set = object(&spec, &[entry(&helm(), &["spec.replicas", scaled])]);
        set["kind"] = json!("StatefulSet");
        pause(&mut set, &replicas(), &keeper());
        assert_eq!(managers(&set, scaled), [keeper()]);
        set
    };
    let mut resumed = set();
    resume(&mut resumed, &keeper());
    assert!(hand_back_on(&mut resumed));
    assert_eq!(
        (managers(&resumed, scaled), managers(&resumed, "spec.replicas")),
        (vec![helm()], vec![helm()])
    );

    let mut started = set();
    let other = by("kubectl", UPDATE, Some("scale"));
    scale(&mut started, 1, &other);
    assert!(!hand_back_on(&mut started), "a start by another writer is no resumption");
    let record = OwnerObject(&started).record().unwrap();
    let patch = pause::overtaken(OwnerObject(&started), &record).unwrap();
    write(&mut started, &patch, &keeper(), &[scaled]);
    assert!(hand_back_on(&mut started));
    assert_eq!(
        (managers(&started, scaled), managers(&started, "spec.replicas")),
        (vec![helm()], vec![other])
    );
}

#[test]
fn all_managers_get_a_field_back_by_operation_and_subresource() {
    let scaled = by("kube-controller-manager", UPDATE, Some("scale"));
    let all = [helm(), by("kubectl-client-side-apply", UPDATE, None), scaled.clone()];
    let mut owner = deployment(&all);
    // gone with the last of its fields, and made again
    owner["metadata"]["managedFields"][2]["fieldsV1"] = json!({"f:spec": {"f:replicas": {}}});
    pause(&mut owner, &replicas(), &keeper());
    assert_eq!(owner["metadata"]["managedFields"].as_array().unwrap().len(), 3, "of two, and the keeper's");
    resume(&mut owner, &plugin());
    assert!(hand_back_on(&mut owner));
    assert_eq!(managers(&owner, "spec.replicas"), all);
    let again = &owner["metadata"]["managedFields"][2];
    assert_eq!((&again["subresource"], &again["fieldsType"]), (&json!("scale"), &json!("FieldsV1")));
}

#[test]
fn a_field_without_a_manager_has_none_again() {
    let mut owner = object(&json!({"replicas": 1}), &[entry(&helm(), &["spec.paused"])]);
    pause(&mut owner, &replicas(), &keeper());
    resume(&mut owner, &keeper());
    assert!(hand_back_on(&mut owner));
    assert_eq!(managers(&owner, "spec.replicas"), []);

    let mut alone = object(&json!({"replicas": 0}), &[entry(&keeper(), &["spec.replicas"])]);
    alone["metadata"]["annotations"] =
        json!({keys::HAND_BACK_ANNOTATION: r#"{"uid": "u", "fields": {"spec.replicas": []}}"#});
    let patch = hand_back(OwnerObject(&alone)).unwrap();
    assert_eq!(patch["metadata"]["managedFields"], json!([{}]), "an empty list would change nothing");
}

#[test]
fn where_another_has_set_the_field_since_nothing_is_handed_back() {
    let other = by("kubectl", UPDATE, Some("scale"));
    let mut while_paused = deployment(&[helm()]);
    pause(&mut while_paused, &replicas(), &keeper());
    scale(&mut while_paused, 5, &other);
    resume(&mut while_paused, &plugin());
    assert_eq!(noted(&while_paused), &Value::Null);
    assert!(!hand_back_on(&mut while_paused));
    assert_eq!(managers(&while_paused, "spec.replicas"), std::slice::from_ref(&other));

    let mut after_resumption = deployment(&[helm()]);
    pause(&mut after_resumption, &replicas(), &keeper());
    resume(&mut after_resumption, &keeper());
    scale(&mut after_resumption, 5, &other);
    assert!(hand_back_on(&mut after_resumption), "the note goes");
    assert_eq!(managers(&after_resumption, "spec.replicas"), [other]);
}

#[test]
fn pauses_in_a_row_know_the_first_manager() {
    let mut owner = deployment(&[helm()]);
    pause(&mut owner, &replicas(), &keeper());
    resume(&mut owner, &keeper());
    let record = pause(&mut owner, &replicas(), &plugin());
    assert_eq!(record.managers["spec.replicas"], [helm()], "by the note of the resumption");
    assert_eq!(noted(&owner), &Value::Null, "its record says it now");
    assert!(!hand_back_on(&mut owner), "it is paused");
    let deactivated = pause::deactivate(OwnerObject(&owner), &record);
    write(&mut owner, &deactivated, &plugin(), &[]);
    resume(&mut owner, &plugin());
    assert!(hand_back_on(&mut owner));
    assert_eq!(managers(&owner, "spec.replicas"), [helm()]);

    // as a version without hand-backs has left it
    let mut earlier = deployment(&[keeper()]);
    pause(&mut earlier, &replicas(), &keeper());
    resume(&mut earlier, &keeper());
    assert!(hand_back_on(&mut earlier));
    assert_eq!(managers(&earlier, "spec.replicas"), []);
}

#[test]
fn a_pause_that_is_reversed_goes_back_to_who_has_reversed_it() {
    let argocd = by("argocd-controller", "Apply", None);
    let mut owner = deployment(&[helm()]);
    pause(&mut owner, &replicas(), &keeper());
    scale(&mut owner, 3, &argocd);
    let record = pause(&mut owner, &replicas(), &keeper());
    assert_eq!((record.reversals, &record.managers["spec.replicas"]), (1, &vec![argocd.clone()]));
    resume(&mut owner, &keeper());
    assert!(hand_back_on(&mut owner));
    assert_eq!(managers(&owner, "spec.replicas"), [argocd]);
}

#[test]
fn a_field_of_a_whole_value_goes_back_as_a_whole() {
    let mut owner = object(&json!({"mode": {"on": true}}), &[entry(&helm(), &["spec.mode", "spec.a"])]);
    assert_eq!(managers(&owner, "spec.mode.on"), [helm()]);
    owner["metadata"]["managedFields"] =
        json!([entry(&helm(), &["spec.a"]), entry(&keeper(), &["spec.mode"])]);
    let note = json!({"uid": "u", "fields": {"spec.mode.on": [helm()]}}).to_string();
    owner["metadata"]["annotations"] = json!({keys::HAND_BACK_ANNOTATION: note});
    assert!(hand_back_on(&mut owner));
    assert_eq!(owner["metadata"]["managedFields"], json!([entry(&helm(), &["spec.a", "spec.mode"])]));
    let mut whole = json!({"f:spec": {}});
    insert(&mut whole, &["spec", "a"]);
    assert_eq!(whole, json!({"f:spec": {".": {}, "f:a": {}}}), "and is still managed as a whole");
}

fn owing(forged: &[FieldManager]) -> Value {
    let mut owner = object(&json!({"replicas": 2}), &[entry(&keeper(), &["spec.replicas"])]);
    let note = json!({"uid": "u", "fields": {"spec.replicas": forged}}).to_string();
    owner["metadata"]["annotations"] = json!({keys::HAND_BACK_ANNOTATION: note});
    owner
}

#[test]
fn managers_that_a_tenant_has_forged_do_no_harm() {
    let long = "x".repeat(10_000);
    for forged in [
        by("kubectl-tenure", UPDATE, None),
        by("tenure-keeper", "Apply", None),
        by(&long, UPDATE, None),
        by(&"é".repeat(65), UPDATE, None),
        by("", UPDATE, None),
        by("a\nb", UPDATE, None),
        by("a", "Delete", None),
        by("a", UPDATE, Some(&long)),
    ] {
        let mut owner = owing(std::slice::from_ref(&forged));
        assert!(hand_back_on(&mut owner));
        assert_eq!(managers(&owner, "spec.replicas"), [], "{forged:?}");
    }
    // as any user may name a client
    let system = by("system:x", UPDATE, None);
    let mut owner = owing(&[FieldManager { time: "2026-01-02T03:04:05Z".parse().ok(), ..system.clone() }]);
    assert!(hand_back_on(&mut owner));
    assert_eq!(managers(&owner, "spec.replicas"), [system]);
    let many: Vec<_> = (0..100).map(|number| by(&number.to_string(), UPDATE, None)).collect();
    let mut owner = owing(&many);
    assert!(hand_back_on(&mut owner));
    assert_eq!(managers(&owner, "spec.replicas"), many[..MOST_MANAGERS]);
}

#[test]
fn a_note_that_a_tenant_has_forged_hands_back_no_field_of_a_pause_and_none_of_another_manager() {
    let mut owner = deployment(&[helm()]);
    pause(&mut owner, &replicas(), &keeper());
    let forge = |owner: &mut Value, note: &str| {
        owner["metadata"]["annotations"][keys::HAND_BACK_ANNOTATION] = json!(note);
    };
    forge(
        &mut owner,
        r#"{"uid": "u", "fields": {"spec.replicas": [{"manager": "a", "operation": "Apply"}]}}"#,
    );
    assert!(hand_back_on(&mut owner), "the note goes");
    assert_eq!(managers(&owner, "spec.replicas"), [keeper()]);
    for field in ["spec.paused", "spec", "", ".", "metadata.annotations"] {
        let before = owner["metadata"]["managedFields"].clone();
        forge(&mut owner, &json!({"uid": "u", "fields": {field: []}}).to_string());
        assert!(hand_back_on(&mut owner));
        assert_eq!(owner["metadata"]["managedFields"], before, "{field}");
    }
    let huge = json!({"uid": "u", "fields": {"spec.replicas": "x".repeat(20_000)}}).to_string();
    for note in ["", "{}", "[]", r#"{"uid": "of a Deployment", "fields": {"spec.replicas": []}}"#, &huge] {
        forge(&mut owner, note);
        assert!(!hand_back_on(&mut owner), "{note:.60}");
    }
}

#[test]
fn entries_that_can_not_be_read_stay() {
    for entries in [
        json!([1, null, {"manager": 5}]),
        json!([{"manager": KEEPER_MANAGER, "operation": UPDATE, "fieldsV1": 7}]),
    ] {
        let mut owner = owing(&[helm()]);
        owner["metadata"]["managedFields"] = entries;
        let patch = hand_back(OwnerObject(&owner)).unwrap();
        assert_eq!(patch["metadata"].get("managedFields"), None);
    }
    let mut bare = owing(&[helm()]);
    bare["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(hand_back(OwnerObject(&bare)).unwrap()["metadata"].get("managedFields"), None);
}
