//! Earlier pauses whose events may not have been written yet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tenure_types::{keys, paused::OwedPause};

use super::{OwnerObject, owner::noted};

/// The most earlier pauses that are kept on an object. Events of older ones are lost.
pub const MOST_OWED: usize = 3;

/// Returns the earlier pauses whose events may not have been written, as an object bears them: the latest ones, since any
/// user who may write the object may write more.
pub fn owed_on(metadata: &ObjectMeta) -> Vec<OwedPause> {
    let mut owed: Vec<OwedPause> = noted(metadata, keys::OWED_EVENTS_ANNOTATION).unwrap_or_default();
    owed.drain(..owed.len().saturating_sub(MOST_OWED));
    owed
}

/// Returns a merge patch that also notes earlier pauses whose events may not have been written, the latest last, in place
/// of any that the object bears.
pub fn with_owed(mut patch: Value, owner: OwnerObject<'_>, owed: &[OwedPause]) -> Value {
    let latest = owed.get(owed.len().saturating_sub(MOST_OWED)..).unwrap_or_default();
    let bears_any = owner.annotation(keys::OWED_EVENTS_ANNOTATION).is_some();
    let value = if latest.is_empty() { Value::Null } else { json!(latest).to_string().into() };
    if let Some(annotations) = patch.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        && (bears_any || !latest.is_empty())
    {
        annotations.insert(keys::OWED_EVENTS_ANNOTATION.to_owned(), value);
    }
    patch
}

#[cfg(test)]
mod tests {
    use tenure_types::paused::{PausedRecord, RequeueState};

    use super::*;

    fn pause(second: i64) -> OwedPause {
        let record = json!({
            "reason": "MaxDurationExceeded", "at": jiff::Timestamp::from_second(second).unwrap(), "queue": "q",
            "field": "spec.replicas", "value": 0, "previousValue": 2,
        });
        let record: PausedRecord = serde_json::from_value(record).unwrap();
        OwedPause { record, state: RequeueState::default(), returned: None }
    }

    fn patched(owner: &Value, owed: &[OwedPause]) -> Value {
        let patch = json!({"metadata": {"uid": "u", "annotations": {"tenure.dev/paused": null}}});
        let mut object = owner.clone();
        json_patch::merge(&mut object, &with_owed(patch, OwnerObject(owner), owed));
        object
    }

    fn borne(object: &Value) -> Vec<OwedPause> {
        owed_on(&serde_json::from_value(object["metadata"].clone()).unwrap())
    }

    #[test]
    fn an_object_bears_the_latest_pauses_that_are_owed_until_none_is() {
        let owner = json!({"metadata": {"uid": "u"}});
        let three: Vec<_> = [1, 2, 3].map(pause).into();
        let object = patched(&owner, &three);
        assert_eq!(borne(&object), three);
        let five: Vec<_> = [1, 2, 3, 4, 5].map(pause).into();
        assert_eq!(borne(&patched(&object, &five)), [3, 4, 5].map(pause));
        let bare = patched(&object, &[]);
        assert_eq!((borne(&bare), &bare["metadata"]["annotations"]), (Vec::new(), &json!({})));
        assert_eq!(patched(&owner, &[])["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn a_list_that_any_user_has_written_is_cut_or_ignored() {
        let object = |text: String| json!({"metadata": {"annotations": {"tenure.dev/owed-events": text}}});
        let many: Vec<_> = (0..20).map(pause).collect();
        assert_eq!(borne(&object(json!(many).to_string())), [17, 18, 19].map(pause));
        for bad in ["", "[]", "{}", "[1]", "soon"] {
            assert_eq!(borne(&object(bad.into())), [], "{bad}");
        }
    }
}
