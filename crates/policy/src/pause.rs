//! The patches that pause an owner, resume it, and keep notes on it, and the check that a pause
//! took effect.
//!
//! The keeper and the plugin write these patches. Each has the object's uid and resourceVersion as
//! preconditions, so it applies to the version of the object that the decision was made on, and to
//! no other.

mod command;
mod hand_back;
mod held;
mod journal;
mod messages;
mod owner;
mod plan;
mod reasons;
mod returns;
mod reversal;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::{Map, Value, json};
use tenure_types::{
    keys,
    paused::{PausedRecord, RequeueState},
    projection,
};

pub use crate::naming::PausedObject;
use crate::{
    expiry::Family,
    kueue,
    naming::group_of,
    owner_table::{PauseRule, is_shown, keys_of},
};
pub use command::{awaited, command, commands_path};
pub use hand_back::{
    HAND_BACK_MANAGER, KEEPER_MANAGER, PLUGIN_MANAGER, SHOWN_END_MANAGER, hand_back, is_owed,
};
pub use held::held_fields;
pub use journal::{EVENT_REPAIR, MOST_ACTS, acts_on, has_journal, is_recent, journal_on, with_act};
pub use messages::{
    DELETED_FULL, DELETED_MESSAGE, PodDeletionCause, RunEnd, approaching, came_back, deleted_in_words,
    deleted_unready, dry_run, events, held_up, in_words, job_deleted, job_kept, message, noted, own_ignored,
    own_invalid, owner_deleted, owner_deleted_in_words, return_refused, undone, unknown_queue, unused_label,
};
use owner::INACTIVE;
pub use owner::{
    Announcement, OwnerObject, UnfollowedRecord, followed, is_inactive, is_own, record_on, requeue_state_on,
    says_whose,
};
pub use plan::{Pause, PauseCandidate, PausePlan, ResumeCondition, whole_millisecond};
pub use reasons::{DEACTIVATED, MAX_DURATION_EXCEEDED, PODS_READY_TIMEOUT, WORKLOAD_INACTIVE};
pub use returns::{Return, ReturnPatch, may_be_dropped, stays};
use reversal::{OwnedPart, part};
pub use reversal::{REVERSALS_BEFORE_DELETION, Reversals};

/// Returns the record of a pause that sets the field of `rule`, by the rules of a queue. It also
/// notes the field managers that had the fields before, for the hand-back after the return.
pub fn record(
    object: OwnerObject<'_>,
    rule: &PauseRule,
    (family, queue): (Family, &str),
    pause: Pause,
) -> PausedRecord {
    let Pause { plan: PausePlan { reason, at, until: _ }, ceiling, reversals, unannounced } = pause;
    let held = held::to_hold(object);
    let fields = held.iter().map(|held| held.field.as_str()).chain([rule.field.as_str()]);
    let managers = hand_back::managers_before(object, fields.filter(|field| !is_shown(field)));
    PausedRecord {
        reason: reason.into(),
        at,
        queue: queue.into(),
        queue_group: Some(family.row().group.into()),
        uid: object.at("metadata.uid").as_str().map(str::to_owned),
        ceiling,
        field: rule.field.clone(),
        value: rule.value_at(at),
        previous_value: object.at(&rule.field).clone(),
        held,
        managers,
        reversals: reversals.count,
        full_reversals: reversals.full,
        reversed_by: reversals.by,
        unannounced,
    }
}

/// Returns the merge patch that pauses. It sets the field, holds other fields, writes the record, a
/// message for people and the state of the return, and removes the announced end.
pub fn patch(owner: OwnerObject<'_>, record: &PausedRecord, until: &ResumeCondition) -> Value {
    let words = match until {
        ResumeCondition::Requeued(state) => message_on(owner, record, state),
        ResumeCondition::Resumed | ResumeCondition::Activated => stays_paused(owner, record),
    };
    // a time of return from an earlier pause, or by another writer, would undo this pause
    let state = match until {
        ResumeCondition::Requeued(state) => Some(json!(state).to_string().into()),
        ResumeCondition::Resumed | ResumeCondition::Activated => without_return(owner),
    };
    let annotations = [
        (keys::PAUSED_ANNOTATION, Some(json!(record).to_string().into())),
        (keys::MESSAGE_ANNOTATION, Some(words.into())),
        (keys::UNDONE_PAUSE_ANNOTATION, has_undone_pause(owner).then_some(Value::Null)),
        (keys::EXPIRES_AT_ANNOTATION, Some(Value::Null)),
        (keys::NOTICE_GIVEN_AT_ANNOTATION, Some(Value::Null)),
        (keys::REQUEUE_STATE_ANNOTATION, state),
        (keys::HAND_BACK_ANNOTATION, hand_back::without(owner, &record.managers)),
        (keys::ACTIVE_ANNOTATION, (*until == ResumeCondition::Activated).then(|| INACTIVE.into())),
    ];
    let held = record.held.iter().map(|held| (held.field.clone(), held.value.clone().into()));
    let patch = held::set(written(&record.field, record.value.clone()), held);
    with_annotations(patch, owner, &map(annotations))
}

/// Returns the message on a paused owner, the text of annotation [`keys::MESSAGE_ANNOTATION`], for
/// people who look at the object.
fn message_on(owner: OwnerObject<'_>, record: &PausedRecord, state: &RequeueState) -> String {
    let text = |path| owner.at(path).as_str().unwrap_or_default().to_owned();
    let itself = OwnerReference {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("metadata.name"),
        ..OwnerReference::default()
    };
    noted(record, state, &kueue::known(&itself, &projection::metadata(owner.0)))
}

/// Returns the message for a pause after which the owner doesn't come back by itself.
fn stays_paused(owner: OwnerObject<'_>, record: &PausedRecord) -> String {
    message_on(owner, record, &RequeueState { requeue_at: None, ..owner.requeue_state() })
}

/// True if the object notes a pause that something else than Tenure has undone.
fn has_undone_pause(owner: OwnerObject<'_>) -> bool {
    owner.annotation(keys::UNDONE_PAUSE_ANNOTATION).is_some()
}

/// Adds annotations and the preconditions to a patch, which may set an annotation already.
fn with_annotations(mut patch: Map<String, Value>, owner: OwnerObject<'_>, annotations: &Value) -> Value {
    let metadata = preconditioned(owner, annotations);
    held::merge(&mut patch, Map::from_iter([("metadata".to_owned(), metadata)]));
    Value::Object(patch)
}

/// Returns the annotations of a patch. `Some(null)` removes an annotation. None leaves it as it is.
fn map<const N: usize>(annotations: [(&str, Option<Value>); N]) -> Value {
    annotations.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// Returns the merge patch that undoes a pause: it restores the field's earlier value, removes the
/// record, and notes that the field is to be [handed back](hand_back()). The number of returns is
/// kept, unless the workload was deactivated: then it starts from 0.
///
/// Where another writer has changed the field since, it stays as it is.
pub fn resume(owner: OwnerObject<'_>, record: &PausedRecord) -> Value {
    if !is_ours(owner, record) {
        return forget(owner, record);
    }
    let field = (record.field.clone(), record.previous_value.clone());
    set_back(owner, record, Some(field).filter(|(field, _)| !is_shown(field)))
}

/// Returns the merge patch that removes the record, and leaves the field as a user or controller
/// has set it since. Held fields are set back.
fn forget(owner: OwnerObject<'_>, record: &PausedRecord) -> Value {
    set_back(owner, record, None)
}

/// Returns the merge patch that removes the record from an owner that another writer than Tenure
/// has resumed. None: the owner is paused.
///
/// The last pause stays noted in an annotation of its own, for the count of reversals. Held fields
/// are set back.
pub fn overtaken(owner: OwnerObject<'_>, record: &PausedRecord) -> Option<Value> {
    if is_ours(owner, record) {
        return None;
    }
    let undone = PausedRecord { held: Vec::new(), ..record.clone() };
    let mut patch = forget(owner, record);
    if let Some(annotations) = patch.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(keys::UNDONE_PAUSE_ANNOTATION.into(), json!(undone).to_string().into());
        // a user's deactivation stays
        annotations.remove(keys::ACTIVE_ANNOTATION);
    }
    Some(patch)
}

/// Returns the merge patch that removes the note of an undone pause, so that reversals are counted
/// from 0 again. None: no such pause is noted.
pub fn forget_undone(owner: OwnerObject<'_>) -> Option<Value> {
    has_undone_pause(owner).then(|| annotate(owner, &json!({keys::UNDONE_PAUSE_ANNOTATION: null})))
}

/// Returns the merge patch that removes the record and sets `field` back, if given, and the held
/// fields.
fn set_back(owner: OwnerObject<'_>, record: &PausedRecord, field: Option<(String, Value)>) -> Value {
    let held = held::to_restore(owner, record).into_iter();
    let held = held.map(|held| (held.field, held.previous_value.into()));
    let fields: Vec<(String, Value)> = field.into_iter().chain(held).collect();
    let starts_over = is_deactivation(record) || owner.is_inactive();
    let annotations = [
        (keys::PAUSED_ANNOTATION, Some(Value::Null)),
        (keys::MESSAGE_ANNOTATION, owner.annotation(keys::MESSAGE_ANNOTATION).map(|_| Value::Null)),
        (keys::UNDONE_PAUSE_ANNOTATION, has_undone_pause(owner).then_some(Value::Null)),
        (keys::ACTIVE_ANNOTATION, owner.is_inactive().then_some(Value::Null)),
        (keys::REQUEUE_STATE_ANNOTATION, if starts_over { Some(Value::Null) } else { without_return(owner) }),
        (keys::HAND_BACK_ANNOTATION, hand_back::with(owner, record, &fields)),
    ];
    with_annotations(held::set(Map::new(), fields), owner, &map(annotations))
}

/// Returns the merge patch that keeps a paused workload paused until it is activated. The number of
/// returns stays.
pub fn deactivate(owner: OwnerObject<'_>, record: &PausedRecord) -> Value {
    let record = PausedRecord { reason: DEACTIVATED.into(), ..record.clone() };
    let annotations = [
        (keys::PAUSED_ANNOTATION, Some(json!(record).to_string().into())),
        (keys::MESSAGE_ANNOTATION, Some(stays_paused(owner, &record).into())),
        (keys::ACTIVE_ANNOTATION, Some(INACTIVE.into())),
        (keys::REQUEUE_STATE_ANNOTATION, without_return(owner)),
    ];
    annotate(owner, &map(annotations))
}

/// Returns the requeue state without its time of return, as the value of its annotation: null where
/// no return is counted. None: there is no time to remove.
fn without_return(owner: OwnerObject<'_>) -> Option<Value> {
    let state = owner.requeue_state();
    state.requeue_at?;
    let state = RequeueState { requeue_at: None, ..state };
    Some((state.count > 0).then(|| json!(state).to_string()).into())
}

/// True if a paused workload stays paused until a user activates it.
pub fn is_deactivation(record: &PausedRecord) -> bool {
    record.reason == WORKLOAD_INACTIVE || record.reason == DEACTIVATED
}

/// True if an owner was paused because its pods weren't ready in time.
pub fn is_for_readiness(record: &PausedRecord) -> bool {
    record.reason == PODS_READY_TIMEOUT || record.reason == WORKLOAD_INACTIVE
}

/// True if the field still holds the value that the pause has set. Otherwise Tenure must not set it
/// back.
///
/// A pause by a Command always counts: its status may show the pause later, and to undo a Command
/// that no controller has obeyed does no harm.
pub fn is_ours(owner: OwnerObject<'_>, record: &PausedRecord) -> bool {
    is_shown(&record.field) || owner.at(&record.field) == &record.value || record.value.is_null()
}

/// True if another writer than Tenure has set the field since the record was written, as far as
/// `metadata.managedFields` shows. When a person resumes a workload and pauses it again, that pause
/// is the person's, though it looks like Tenure's.
fn was_set_since(owner: OwnerObject<'_>, record: &PausedRecord) -> bool {
    if is_shown(&record.field) {
        return false;
    }
    let entries = owner.0.pointer("/metadata/managedFields").and_then(Value::as_array);
    let fields = || entries.into_iter().flatten().filter_map(|entry| entry.get("fieldsV1"));
    let noted = ["metadata", "annotations", keys::PAUSED_ANNOTATION];
    let field = || keys_of(&record.field);
    // a field without children is managed as a whole, unless another manager has taken over a part
    // of it
    let is_apart = fields().any(|fields| part(fields, field()) == OwnedPart::Itself);
    let mut by_who_noted = fields().filter(|fields| part(fields, noted) != OwnedPart::None).peekable();
    let is_theirs = |fields: &Value| match part(fields, field()) {
        OwnedPart::Itself => true,
        OwnedPart::Whole => !is_apart,
        OwnedPart::None => false,
    };
    by_who_noted.peek().is_some() && !by_who_noted.any(is_theirs)
}

/// Returns the `CronJob` that controls a `Job`. None: the object is of another kind, or has another
/// controller.
pub fn cron_job_of(job: &ObjectReference, metadata: &ObjectMeta) -> Option<OwnerReference> {
    let is = |api_version: &str, kind: &str, expected| group_of(api_version) == "batch" && kind == expected;
    let (api_version, kind) = (job.api_version.as_deref()?, job.kind.as_deref()?);
    let above = projection::controller(metadata)?;
    let is_both = is(api_version, kind, "Job") && is(&above.api_version, &above.kind, "CronJob");
    is_both.then(|| above.clone())
}

/// The effect of a paused Job, which hasn't ended, on its `CronJob`. Events on the `CronJob` report
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausedRun {
    /// The `CronJob` starts no other Job.
    HoldsUp,
    /// The `CronJob` starts others beside the Job.
    StaysBeside,
    /// The `CronJob` deletes the Job when it starts the next one.
    IsReplaced,
}

impl PausedRun {
    /// Reads the effect from `spec.concurrencyPolicy`. Without the field Jobs run beside each
    /// other, as in Kubernetes.
    pub fn of(cron_job: OwnerObject<'_>) -> Self {
        match cron_job.at("spec.concurrencyPolicy").as_str() {
            Some("Forbid") => Self::HoldsUp,
            Some("Replace") => Self::IsReplaced,
            _ => Self::StaysBeside,
        }
    }
}

/// Returns the merge patch that notes the end of the run, and the time of the last notice. `given`
/// None removes a noted time.
pub fn announce(owner: OwnerObject<'_>, Announcement { end, given }: Announcement) -> Value {
    let (end, given) = (end.to_string(), given.map(|at| at.to_string()));
    annotate(owner, &json!({keys::EXPIRES_AT_ANNOTATION: end, keys::NOTICE_GIVEN_AT_ANNOTATION: given}))
}

/// Returns the merge patch that removes the announcement of the end.
pub fn withdraw(owner: OwnerObject<'_>) -> Value {
    annotate(owner, &json!({keys::EXPIRES_AT_ANNOTATION: null, keys::NOTICE_GIVEN_AT_ANNOTATION: null}))
}

/// Returns the merge patch by which a pod shows the end of its workload's run. None removes the
/// end.
pub fn show_end(pod: OwnerObject<'_>, end: Option<Timestamp>) -> Value {
    annotate(pod, &json!({keys::EXPIRES_AT_ANNOTATION: end.map(|end| end.to_string())}))
}

/// Returns a merge patch that changes only annotations: null removes one.
pub fn annotate(owner: OwnerObject<'_>, annotations: &Value) -> Value {
    json!({"metadata": preconditioned(owner, annotations)})
}

/// Returns the metadata of a patch. With the object's uid and resourceVersion as preconditions the
/// patch can't hit another object of the same name, nor apply twice, nor undo a change that was
/// made since the object was read.
fn preconditioned(owner: OwnerObject<'_>, annotations: &Value) -> Value {
    let metadata = |key: &str| owner.0.get("metadata").and_then(|m| m.get(key)).cloned().unwrap_or_default();
    json!({
        "uid": metadata("uid"), "resourceVersion": metadata("resourceVersion"), "annotations": annotations,
    })
}

/// Returns the object in which a path leads to a value that a pause writes; empty for a path of the
/// status.
fn written(path: &str, value: Value) -> Map<String, Value> {
    if is_shown(path) { Map::new() } else { nested(path, value) }
}

/// Returns the object in which a path leads to a value: `{"spec": {"replicas": 0}}`.
pub fn nested(path: &str, value: Value) -> Map<String, Value> {
    let keys: Vec<_> = keys_of(path).collect();
    let inner = keys.into_iter().rev().fold(value, |value, key| json!({key: value}));
    if let Value::Object(outer) = inner { outer } else { Map::new() }
}

/// True if the object that the API server returned shows the pause and its record. A structural
/// schema prunes fields that it doesn't know, and the server still answers 200.
pub fn took(returned: OwnerObject<'_>, record: &PausedRecord) -> bool {
    let is_set = is_shown(&record.field) || returned.at(&record.field) == &record.value;
    let is_held = record.held.iter().all(|held| returned.at(&held.field) == held.value.as_str());
    is_set && is_held && returned.record().as_ref() == Some(record)
}

#[cfg(test)]
mod tests;
