//! The automatic return of a paused owner, and the patch that it writes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use tenure_types::paused::PausedRecord;

use super::{
    OwnerObject, deactivate, forget, is_deactivation, is_inactive, is_ours, requeue_state_on, resume,
    was_set_since,
};

/// The automatic return of a paused owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// The owner stays paused until a user resumes it.
    Never,
    /// The owner comes back at this time.
    Requeue(Timestamp),
    /// The owner was deactivated, and isn't any more.
    Reactivate,
    /// A person has deactivated the owner since it was paused, which the record doesn't say yet. The owner doesn't come
    /// back, and the record is to be changed, so that a later activation is recognized.
    Deactivate,
}

impl Return {
    /// Reads the return from an object that bears the record of a pause.
    pub fn of(record: &PausedRecord, metadata: &ObjectMeta) -> Self {
        match (is_inactive(metadata), is_deactivation(record)) {
            (true, true) => Self::Never,
            (true, false) => Self::Deactivate,
            (false, true) => Self::Reactivate,
            (false, false) => requeue_state_on(metadata).requeue_at.map_or(Self::Never, Self::Requeue),
        }
    }

    /// Returns the time of the next action; `Timestamp::MIN` if a user has changed the annotation, and it is due at once.
    pub const fn at(self) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::Requeue(at) => Some(at),
            Self::Reactivate | Self::Deactivate => Some(Timestamp::MIN),
        }
    }

    /// True if the owner comes back by itself.
    pub const fn comes_back(self) -> bool {
        matches!(self, Self::Requeue(_) | Self::Reactivate)
    }

    /// Returns the patch that a return at its time writes.
    pub fn patch(self, owner: OwnerObject<'_>, record: &PausedRecord) -> ReturnPatch {
        if self == Self::Deactivate {
            return ReturnPatch::Return(deactivate(owner, record));
        }
        // a person who activates it wants it to run, even if another has set the field since
        let set_since = self != Self::Reactivate && was_set_since(owner, record);
        if is_ours(owner, record) && !set_since {
            ReturnPatch::Return(resume(owner, record))
        } else {
            ReturnPatch::Forget(forget(owner, record))
        }
    }
}

/// The patch of a return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReturnPatch {
    /// Resumes or deactivates the owner.
    Return(Value),
    /// Removes the record alone: the field isn't Tenure's to set any more.
    Forget(Value),
}

impl ReturnPatch {
    /// Returns the patch.
    pub const fn get(&self) -> &Value {
        let (Self::Return(patch) | Self::Forget(patch)) = self;
        patch
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

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
}
