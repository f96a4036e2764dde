//! Reads and writes the journal of the acts on an object.
//!
//! Each patch of the keeper that pauses, resumes or gives a notice adds its act. If the keeper ends
//! before it has emitted the events of an act, the next keeper emits them by the journal. Tenants
//! may write a journal: it decides on events and nothing else.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tenure_types::{
    journal::{Journal, JournalAct},
    keys,
};

use super::owner::{annotation_on, is_read, noted};

/// The age up to which a missing event is written. The API server keeps events for an hour: much
/// later, an event would appear twice.
pub const EVENT_REPAIR: SignedDuration = SignedDuration::from_mins(5);

/// The most acts in a journal. The events of older acts are lost if they weren't written.
pub const MOST_ACTS: usize = 16;

/// True if a time is within [`EVENT_REPAIR`] of `now`, in the past or the future. Always true
/// before the API server's clock is known: `now` is [`Timestamp::MIN`] then.
pub fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(at);
    now == Timestamp::MIN || (age < EVENT_REPAIR && age > -EVENT_REPAIR)
}

/// Returns the recent acts in an object's journal, the latest last. At most [`MOST_ACTS`], since
/// tenants may write more. A journal with another uid was copied from another object, and counts
/// for nothing.
pub fn acts_on(metadata: &ObjectMeta, now: Timestamp) -> Vec<JournalAct> {
    let is_own = |journal: &Journal| Some(&journal.uid) == metadata.uid.as_ref();
    let journal = noted::<Journal>(metadata, keys::ACTS_ANNOTATION).filter(is_own);
    let mut acts = journal.map_or_else(Vec::new, |journal| journal.acts);
    acts.retain(|act| is_recent(act.at(), now));
    acts.drain(..acts.len().saturating_sub(MOST_ACTS));
    acts
}

/// Returns the parts of an object's metadata that [`acts_on`] reads, as text. Acts that were read
/// may take sixty times as much memory, and tenants may write any.
pub fn journal_on(metadata: &ObjectMeta) -> ObjectMeta {
    let text = annotation_on(metadata, keys::ACTS_ANNOTATION).filter(|text| is_read(text));
    let annotations = text.map(|text| [(keys::ACTS_ANNOTATION.to_owned(), text.to_owned())].into());
    ObjectMeta { uid: metadata.uid.clone(), annotations, ..ObjectMeta::default() }
}

/// True if an object has a journal, its own or a copy.
pub fn has_journal(metadata: &ObjectMeta) -> bool {
    annotation_on(metadata, keys::ACTS_ANNOTATION).is_some()
}

/// Returns a merge patch of annotations that also writes the journal: the recent acts of the
/// object, and `act` after them.
///
/// A journal without recent acts is removed. A patch without annotations is returned as it is.
pub fn with_act(mut patch: Value, metadata: &ObjectMeta, act: Option<JournalAct>, now: Timestamp) -> Value {
    let mut acts = acts_on(metadata, now);
    acts.extend(act);
    acts.drain(..acts.len().saturating_sub(MOST_ACTS));
    let uid = metadata.uid.clone().unwrap_or_default();
    let Some(annotations) = patch.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return patch;
    };
    if !acts.is_empty() {
        let journal = json!(Journal { uid, acts }).to_string();
        annotations.insert(keys::ACTS_ANNOTATION.to_owned(), journal.into());
    } else if has_journal(metadata) {
        annotations.insert(keys::ACTS_ANNOTATION.to_owned(), Value::Null);
    }
    patch
}

#[cfg(test)]
mod tests {
    use tenure_types::{
        journal::{AtEnd, GivenNotice, ReturnRecord},
        paused::{PausedRecord, RequeueState},
    };

    use super::*;
    use crate::pause::{OwnerObject, annotate};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn record(second: i64) -> Value {
        json!({
            "reason": "MaxDurationExceeded", "at": at(second), "queue": "q", "field": "spec.replicas", "value": 0,
            "previousValue": 2,
        })
    }

    fn pause(second: i64) -> JournalAct {
        let record: PausedRecord = serde_json::from_value(record(second)).unwrap();
        JournalAct::Paused { record, state: RequeueState::default() }
    }

    fn object(uid: &str, annotations: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"uid": uid, "annotations": annotations})).unwrap()
    }

    /// Returns the metadata after a write that notes an act.
    fn noting(metadata: &ObjectMeta, act: Option<JournalAct>, now: i64) -> ObjectMeta {
        let mut object = json!({"metadata": metadata});
        let patch = annotate(OwnerObject(&object), &json!({}));
        json_patch::merge(&mut object, &with_act(patch, metadata, act, at(now)));
        serde_json::from_value(object["metadata"].clone()).unwrap()
    }

    #[test]
    fn the_journal_alone_shows_the_same_acts() {
        let acts = json!(Journal { uid: "a".into(), acts: vec![pause(1)] }).to_string();
        let other = json!(Journal { uid: "b".into(), acts: Vec::new() }).to_string();
        for annotations in [
            json!({keys::ACTS_ANNOTATION: acts, "team": "x"}),
            json!({keys::ACTS_ANNOTATION: other, keys::PAUSED_ANNOTATION: record(2).to_string()}),
            json!({keys::ACTS_ANNOTATION: "x".repeat(20_000), keys::PAUSED_ANNOTATION: record(2).to_string()}),
            json!({keys::PAUSED_ANNOTATION: record(2).to_string()}),
            json!({}),
        ] {
            let metadata = object("a", &annotations);
            let journal = journal_on(&metadata);
            assert_eq!(acts_on(&journal, at(3)), acts_on(&metadata, at(3)), "{annotations}");
            assert!(journal.annotations.unwrap_or_default().values().all(|text| text.len() < 20_000));
        }
    }

    #[test]
    fn a_journal_is_stable_on_the_wire() {
        let notice = GivenNotice {
            queue: "q".into(),
            end: at(9),
            at: at(5),
            then: AtEnd::Requeued("5m".parse().unwrap()),
            more: None,
        };
        let returned = ReturnRecord { at: at(7), early: true, reactivated: false };
        let record: PausedRecord = serde_json::from_value(record(6)).unwrap();
        let acts = vec![
            JournalAct::Noticed(notice),
            JournalAct::Returned { record, state: RequeueState::default(), returned },
        ];
        let journal = Journal { uid: "u".into(), acts };
        let text = r#"{"uid":"u","acts":[{"act":"noticed","queue":"q","end":"2027-01-15T08:00:09Z","at":"2027-01-15T08:00:05Z","then":{"requeued":"5m"}},{"act":"returned","record":{"reason":"MaxDurationExceeded","at":"2027-01-15T08:00:06Z","queue":"q","field":"spec.replicas","value":0,"previousValue":2},"state":{"count":0},"returned":{"at":"2027-01-15T08:00:07Z","early":true,"reactivated":false}}]}"#;
        assert_eq!(serde_json::to_string(&journal).unwrap(), text);
        assert_eq!(serde_json::from_str::<Journal>(text).unwrap(), journal);
    }

    #[test]
    fn an_object_bears_its_latest_acts_for_some_minutes() {
        let bare = object("u", &Value::Null);
        let one = noting(&bare, Some(pause(1)), 1);
        let two = noting(&one, Some(pause(200)), 200);
        assert_eq!(acts_on(&two, at(201)), [pause(1), pause(200)]);
        assert_eq!(acts_on(&two, at(301)), [pause(200)], "the first was five minutes ago");
        assert_eq!(acts_on(&two, Timestamp::MIN).len(), 2, "before the clock is known");
        assert!(has_journal(&noting(&two, None, 400)) && !has_journal(&noting(&two, None, 501)));
        let many = (0..20).fold(bare, |object, second| noting(&object, Some(pause(second)), second));
        assert_eq!(acts_on(&many, at(20)), (4..20).map(pause).collect::<Vec<_>>());
        assert_eq!(acts_on(&many, at(-400)), [], "any user may note a time far ahead");
    }

    #[test]
    fn a_journal_that_any_user_has_written_or_a_controller_has_copied_says_nothing() {
        let own = noting(&object("u", &Value::Null), Some(pause(1)), 1);
        let copy = ObjectMeta { uid: Some("of a ReplicaSet".into()), ..own };
        assert_eq!((acts_on(&copy, at(2)), has_journal(&copy)), (Vec::new(), true));
        let with_record = json!({"tenure.dev/paused": record(1).to_string(), "tenure.dev/acts": "copied"});
        assert_eq!(acts_on(&object("u", &with_record), at(2)), []);
        for bad in ["", "[]", "{}", r#"{"uid": "u", "acts": [1]}"#, "soon"] {
            assert_eq!(acts_on(&object("u", &json!({"tenure.dev/acts": bad})), at(2)), [], "{bad}");
        }
    }
}
