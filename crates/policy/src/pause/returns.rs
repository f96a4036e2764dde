//! The automatic return of a paused owner, and the patch that the return writes.
//!
//! The index reads the return of each paused owner, and the keeper writes the patch when its time
//! has come.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use tenure_types::paused::PausedRecord;

use super::{
    DEACTIVATED, OwnerObject, deactivate, forget, is_deactivation, is_inactive, is_ours, record_on,
    requeue_state_on, resume, was_set_since,
};
use crate::owner_table::PauseRule;

/// The automatic return of a paused owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// The owner stays paused until a user resumes it.
    Never,
    /// The owner comes back at this time.
    Requeue(Timestamp),
    /// The owner was deactivated, and a user has activated it since. It comes back at once.
    Reactivate,
    /// A user has deactivated the owner since it was paused, and the record doesn't say so yet. The
    /// owner doesn't come back. The record must be changed, so that a later activation is
    /// recognized.
    Deactivate,
}

impl Return {
    /// Reads the return of an object that has the record of a pause.
    pub fn of(record: &PausedRecord, metadata: &ObjectMeta) -> Self {
        match (is_inactive(metadata), is_deactivation(record)) {
            (true, true) => Self::Never,
            (true, false) => Self::Deactivate,
            (false, true) => Self::Reactivate,
            (false, false) => requeue_state_on(metadata).requeue_at.map_or(Self::Never, Self::Requeue),
        }
    }

    /// Returns the time of the next action on the object. None: there is none. `Timestamp::MIN`: a
    /// user has changed the annotation, so the action is due at once.
    pub const fn at(self) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::Requeue(at) => Some(at),
            Self::Reactivate | Self::Deactivate => Some(Timestamp::MIN),
        }
    }

    /// True if the keeper resumes the owner.
    pub const fn comes_back(self) -> bool {
        matches!(self, Self::Requeue(_) | Self::Reactivate)
    }

    /// Returns the patch of a return whose time has come. If another writer has set the field since
    /// the pause, the field stays, and only the record is removed.
    pub fn patch(self, owner: OwnerObject<'_>, record: &PausedRecord) -> ReturnPatch {
        if self == Self::Deactivate {
            return ReturnPatch::Return(deactivate(owner, record));
        }
        // a user who activates the owner wants it to run, even if another writer has set the field
        // since
        let set_since = self != Self::Reactivate && was_set_since(owner, record);
        if is_ours(owner, record) && !set_since {
            ReturnPatch::Return(resume(owner, record))
        } else {
            ReturnPatch::Forget(forget(owner, record))
        }
    }
}

/// True if the record of an object's pause says that the object stays paused until a user resumes
/// it. False for an object that a user has deactivated: the pause is that user's.
pub fn stays(record: &PausedRecord, metadata: &ObjectMeta) -> bool {
    let is_own = record.uid.is_some() && record.uid == metadata.uid;
    is_own && record.reason != DEACTIVATED && Return::of(record, metadata) == Return::Never
}

/// True if an object, as it was just read, is still paused by the field of its record, has not
/// ended, and [`stays`] paused. The keeper asks this before it deletes a paused Job of a `CronJob`.
pub fn may_be_dropped<'r>(
    owner: OwnerObject<'_>,
    metadata: &ObjectMeta,
    mut rules: impl Iterator<Item = &'r PauseRule>,
) -> bool {
    let Some(record) = record_on(metadata).filter(|record| stays(record, metadata)) else { return false };
    let is_paused = rules.any(|rule| rule.field == record.field && owner.is_paused(rule));
    is_paused && !owner.is_finished() && !was_set_since(owner, &record)
}

/// The patch of a return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReturnPatch {
    /// Resumes or deactivates the owner.
    Return(Value),
    /// Removes the record only: the field is no longer Tenure's to set.
    Forget(Value),
}

impl ReturnPatch {
    /// Returns the merge patch.
    pub const fn get(&self) -> &Value {
        let (Self::Return(patch) | Self::Forget(patch)) = self;
        patch
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::{Value, json};

    use super::*;
    use crate::owner_table::OwnerTable;

    #[test]
    fn a_return_sets_the_field_back_unless_it_is_anothers_by_now() {
        let record = json!({
            "reason": "PodsReadyTimeout", "at": "2026-01-02T03:04:05Z", "queue": "q", "field": "spec.replicas",
            "value": 0, "previousValue": 2,
        });
        let record: PausedRecord = serde_json::from_value(record).unwrap();
        let keeper = json!({"fieldsV1": {
            "f:metadata": {"f:annotations": {"f:tenure.dev/paused": {}}}, "f:spec": {"f:replicas": {}},
        }});
        let noted = json!({"fieldsV1": {"f:metadata": {"f:annotations": {"f:tenure.dev/paused": {}}}}});
        let person = json!({"fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let (ours, theirs) = (json!([keeper]), json!([noted, person]));
        let requeue = Return::Requeue(Timestamp::UNIX_EPOCH);
        let (resumed, left) = (Some(json!(2)), None);
        for (back, replicas, managers, field, is_forgotten) in [
            (requeue, 0, &ours, &resumed, false),
            (requeue, 0, &Value::Null, &resumed, false),
            (requeue, 0, &theirs, &left, true),
            (requeue, 3, &ours, &left, true),
            (Return::Never, 0, &ours, &resumed, false),
            (Return::Reactivate, 0, &ours, &resumed, false),
            (Return::Reactivate, 0, &theirs, &resumed, false),
            (Return::Reactivate, 3, &ours, &left, true),
            (Return::Deactivate, 0, &ours, &left, false),
            (Return::Deactivate, 3, &theirs, &left, false),
        ] {
            let owner = json!({
                "metadata": {"uid": "u", "resourceVersion": "7", "managedFields": managers},
                "spec": {"replicas": replicas},
            });
            let patch = back.patch(OwnerObject(&owner), &record);
            let case = format!("{back:?}, {replicas}, {managers}");
            assert_eq!(matches!(patch, ReturnPatch::Forget(_)), is_forgotten, "{case}");
            let written = patch.get();
            assert_eq!(written.pointer("/spec/replicas"), field.as_ref(), "{case}");
            assert_eq!(written["metadata"]["resourceVersion"], "7", "{case}");
            let keeps_record = !written["metadata"]["annotations"]["tenure.dev/paused"].is_null();
            assert_eq!(keeps_record, back == Return::Deactivate, "{case}");
        }
    }

    fn dropped(change: impl FnOnce(&mut Value)) -> bool {
        let record = json!({
            "reason": "MaxDurationExceeded", "at": "2026-01-02T03:04:05Z", "queue": "q", "uid": "job", "field": "spec.suspend",
            "value": true, "previousValue": false,
        });
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": true}, "record": record,
            "metadata": {"uid": "job", "annotations": {}},
        });
        change(&mut job);
        job["metadata"]["annotations"]["tenure.dev/paused"] = job["record"].to_string().into();
        let metadata: ObjectMeta = serde_json::from_value(job["metadata"].clone()).unwrap();
        let (table, job_ref) = (
            OwnerTable::default(),
            OwnerReference {
                api_version: "batch/v1".into(),
                kind: "Job".into(),
                ..OwnerReference::default()
            },
        );
        may_be_dropped(OwnerObject(&job), &metadata, table.rules(&job_ref))
    }

    #[test]
    fn what_stays_paused_by_its_own_record_may_be_dropped() {
        assert!(dropped(|_| {}));
        assert!(dropped(|job| {
            job["record"]["reason"] = "WorkloadInactive".into();
            job["metadata"]["annotations"]["tenure.dev/active"] = "false".into();
        }));
    }

    #[test]
    fn what_runs_comes_back_has_ended_or_is_a_persons_is_not_dropped() {
        let is_kept = |what: &str, change: fn(&mut Value)| assert!(!dropped(change), "{what}");
        is_kept("runs", |job| job["spec"]["suspend"] = false.into());
        is_kept("another's record", |job| job["record"]["uid"] = "other".into());
        is_kept("a record that doesn't say whose it is", |job| job["record"]["uid"] = Value::Null);
        is_kept("a record of another field", |job| job["record"]["field"] = "spec.replicas".into());
        is_kept("a person's", |job| job["record"]["reason"] = "Deactivated".into());
        is_kept("deactivated since", |job| {
            job["metadata"]["annotations"]["tenure.dev/active"] = "false".into();
        });
        is_kept("comes back", |job| {
            let state = r#"{"count":0,"requeueAt":"2026-01-02T03:14:05Z"}"#;
            job["metadata"]["annotations"]["tenure.dev/requeue-state"] = state.into();
        });
        is_kept("has ended", |job| {
            job["status"]["conditions"] = json!([{"type": "Failed", "status": "True"}]);
        });
        is_kept("paused by a person", |job| {
            let noted = json!({"fieldsV1": {"f:metadata": {"f:annotations": {"f:tenure.dev/paused": {}}}}});
            let set = json!({"fieldsV1": {"f:spec": {"f:suspend": {}}}});
            job["metadata"]["managedFields"] = json!([noted, set]);
        });
    }
}
