//! Annotations of owners, which any tenant may write, and the patches that follow from them.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::{Value, json};
use tenure_policy::{
    expiry::Family,
    owner_table::OwnerTable,
    pause::{
        self, MAX_DURATION_EXCEEDED, OwnerObject, Pause, PauseCandidate, PausePlan, PausedObject, Return,
        Reversals,
    },
    requeue::Backoff,
};
use tenure_types::{
    journal::{AtEnd, GivenNotice, JournalAct},
    keys,
};

use crate::{Outcome, text};

/// The longest annotation that is read.
const LONGEST_ANNOTATION: usize = 16 * 1024;

/// The time at which journals are read: 2026-01-02T03:04:05Z.
const JOURNAL_NOW: Timestamp = Timestamp::constant(1_767_323_045, 0);

pub fn paused(input: &[u8]) -> Outcome {
    let object = job(&json!({keys::PAUSED_ANNOTATION: text(input)?}));
    let record = OwnerObject(&object).record().ok_or("not a record of a pause")?;
    assert!(text(input)?.len() <= LONGEST_ANNOTATION);
    follow(&object);
    Ok(format!("{} {} {}", record.reason, record.at, record.field))
}

pub fn requeue_state(input: &[u8]) -> Outcome {
    let object = job(&json!({keys::REQUEUE_STATE_ANNOTATION: text(input)?}));
    let state = OwnerObject(&object).requeue_state();
    let candidate = PauseCandidate { now: Timestamp::UNIX_EPOCH, state, priority: None };
    let plan = PausePlan::unready(&candidate, &Backoff::default(), |_| 0.5);
    follow(&object);
    let at = state.requeue_at.map_or_else(String::new, |at| format!(" at {at}"));
    Ok(format!("{}{at}, then {}", state.count, plan.reason))
}

/// The journal of the acts on an object: what is noted in it is read back, the latest acts first kept.
pub fn journal(input: &[u8]) -> Outcome {
    let object = |journal: &str| ObjectMeta {
        uid: Some("u".into()),
        annotations: Some([(keys::ACTS_ANNOTATION.to_owned(), journal.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let (metadata, now) = (object(text(input)?), JOURNAL_NOW);
    let mut acts = pause::acts_on(&metadata, now);
    let answer = acts.iter().map(|act| act.at().to_string()).collect::<Vec<_>>().join(", ");
    assert!(acts.len() <= pause::MOST_ACTS && acts.iter().all(|act| pause::is_recent(act.at(), now)));
    let notice = GivenNotice { queue: "q".into(), end: now, at: now, then: AtEnd::Deleted, more: None };
    acts.push(JournalAct::Noticed(notice));
    let noted =
        pause::with_act(json!({"metadata": {"annotations": {}}}), &metadata, acts.last().cloned(), now);
    let pointer = format!("/metadata/annotations/{}", keys::ACTS_ANNOTATION.replace('/', "~1"));
    let journal = noted.pointer(&pointer).and_then(Value::as_str).expect("a journal");
    let kept = acts.split_off(acts.len().saturating_sub(pause::MOST_ACTS));
    assert_eq!(pause::acts_on(&object(journal), now), kept);
    if answer.is_empty() { Err("no act".into()) } else { Ok(answer) }
}

/// A whole object of any shape.
pub fn owner(input: &[u8]) -> Outcome {
    let object: Value = serde_json::from_slice(input).map_err(|error| error.to_string())?;
    follow(&object);
    let owner = OwnerObject(&object);
    let Reversals { count, full, by } =
        Reversals::of(owner, MAX_DURATION_EXCEEDED, Some(Timestamp::UNIX_EPOCH));
    let by = by.map(|by| by.manager.escape_debug().to_string()).unwrap_or_default();
    let is = [("finished", owner.is_finished()), ("inactive", owner.is_inactive())];
    let is: Vec<&str> = is.into_iter().filter_map(|(name, is)| is.then_some(name)).collect();
    Ok(format!("{is:?}, {count} reversals, {full} full, {by}"))
}

fn job(annotations: &Value) -> Value {
    let metadata = json!({"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7", "annotations": annotations});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": true}})
}

/// Makes every patch and message that an owner can lead to. A pause takes effect on an object of any shape.
fn follow(object: &Value) {
    let owner = OwnerObject(object);
    let reference = OwnerReference {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        name: "j".into(),
        uid: "u".into(),
        ..OwnerReference::default()
    };
    let table = OwnerTable::default();
    let rule = table.rules(&reference).next().expect("a Job can be paused");
    let reversals = Reversals::of(owner, MAX_DURATION_EXCEEDED, Some(Timestamp::UNIX_EPOCH));
    let candidate =
        PauseCandidate { now: Timestamp::UNIX_EPOCH, state: owner.requeue_state(), priority: None };
    let plan = PausePlan::expired(&candidate, None);
    let queue = (Family::Runai, "q");
    let pause = Pause::new(plan, reversals.clone());
    let record = pause::record(owner, rule, queue, pause);
    let patch = pause::patch(owner, &record, &plan.until);
    let mut paused = object.clone();
    merge(&mut paused, &patch);
    assert!(pause::took(OwnerObject(&paused), &record), "{paused}");
    if let Some(record) = owner.record() {
        let object = ObjectReference { name: Some("j".into()), ..ObjectReference::default() };
        let known = PausedObject { object, workload: None };
        let state = owner.requeue_state();
        pause::message(&record, &state, &known);
        pause::in_words(&record, &state, &known);
        pause::came_back(&record, state.count, &known, true);
        pause::events(&record, &state, &known);
        pause::undone(&record, &reversals, &known);
        assert!(pause::resume(owner, &record).pointer("/metadata/uid").is_some());
        for back in [Return::Requeue(Timestamp::UNIX_EPOCH), Return::Reactivate, Return::Deactivate] {
            let patch = back.patch(owner, &record);
            assert!(patch.get().pointer("/metadata/uid").is_some(), "{patch:?}");
        }
        if let Ok(metadata) = serde_json::from_value(owner.0.get("metadata").cloned().unwrap_or_default()) {
            Return::of(&record, &metadata);
        }
    }
}

/// Applies a merge patch (RFC 7386).
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        object.clone_from(patch);
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in fields {
        let Some(object) = object.as_object_mut() else { return };
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
