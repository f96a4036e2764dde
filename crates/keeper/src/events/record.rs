//! The record of an act, from which its event and its message follow.
//!
//! All controllers create records. The name of the event depends on the record alone, apart from
//! the cause, and never on the keeper that writes it.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tenure_policy::{
    message::Message,
    pause::RunEnd,
    reason::{EventIdentity, EventReason},
};
use tenure_service::spans::Span;
use tenure_types::paused::PausedRecord;
use tracing::error;

/// The action of events about deleted objects.
pub const DELETING: &str = "Deleting";

/// The longest name of a queue that the API server accepts, in bytes.
const LONGEST_QUEUE_BYTES: usize = 253;

/// The longest note that the API server accepts, in bytes.
const LONGEST_NOTE_BYTES: usize = 1024;

/// An event about an object: something that happened to it, or will, and when.
#[derive(Clone, Debug)]
pub struct EventRecord {
    /// The object that the event is about.
    pub object: ObjectReference,
    /// The reason, which also decides the type and the name of the event.
    pub reason: EventReason,
    /// The action, as a CamelCase verb.
    pub action: &'static str,
    /// The message for people.
    pub note: String,
    /// The time of the act, or another time that distinguishes the event from others of its reason.
    pub at: Timestamp,
    /// The cause of the act. None: not known.
    pub cause: Option<EventCause>,
    /// The related Extension; part of the event's name. None: the event is about no Extension.
    pub request: Option<ObjectReference>,
    /// The end of the run that a notice announces. None: the event is no notice.
    pub end: Option<Timestamp>,
    /// The span of the act. The event is a part of it.
    pub span: Span,
}

/// The cause of an action.
#[derive(Clone, Debug)]
pub struct EventCause {
    /// The pod. None: the act is known by its record alone.
    pub pod: Option<ObjectReference>,
    /// The queue of that pod.
    pub queue: String,
}

impl EventCause {
    /// Returns the cause that a record names. None: the record has no possible name of a queue. Any
    /// user may write a record, with any text in place of the name.
    pub fn of(record: &PausedRecord) -> Option<Self> {
        let queue = Some(&record.queue).filter(|queue| (1..=LONGEST_QUEUE_BYTES).contains(&queue.len()))?;
        Some(Self { pod: None, queue: queue.clone() })
    }
}

impl EventRecord {
    /// Creates an event with no known cause.
    pub fn new(
        object: &ObjectReference,
        reason: EventReason,
        action: &'static str,
        note: String,
        at: Timestamp,
    ) -> Self {
        let (object, cause, request, end) = (object.clone(), None, None, None);
        let note = cut(note);
        Self { object, reason, action, note, at, cause, request, end, span: Span::default() }
    }

    /// Returns the namespace of the event. For a cluster-scoped object, that is `default`.
    pub fn namespace(&self) -> &str {
        self.object.namespace.as_deref().unwrap_or("default")
    }

    /// Returns the name of the event: 200 characters of the object's name, 8 of its uid, and a
    /// suffix. The suffix is a hash of the Extension and the step, a hash of the note, or the time
    /// in milliseconds and the letter of the reason.
    pub fn name(&self) -> String {
        let Self { object, reason, at, request, .. } = self;
        let of = |text: &Option<String>, length: usize| {
            text.as_deref().unwrap_or_default().chars().take(length).collect::<String>()
        };
        let (name, uid) = (of(&object.name, 200), of(&object.uid, 8));
        let name = format!("{}.{uid}", name.trim_end_matches(['-', '.']));
        if let Some(request) = request {
            // an extension is used once, and nothing notes when
            let at = Some(at).filter(|_| *reason != EventReason::ExtensionUsed).map(Timestamp::to_string);
            let uid = request.uid.as_deref().unwrap_or_default();
            let of_request = format!("{uid} {} {}", reason.name(), at.unwrap_or_default());
            return format!("{name}{:x}x", hash(&of_request));
        }
        match reason.properties().identity {
            EventIdentity::Note => format!("{name}{:x}o", hash(&self.note)),
            EventIdentity::Time(letter) => format!("{name}{:x}{letter}", at.as_millisecond()),
        }
    }

    /// Returns the time of the event. The event of a deletion is written before the deletion, and a
    /// dry run does nothing: for both, `at` is a deadline, and the event is of now. The time of any
    /// other event is `at`, but never later than now.
    pub fn time(&self, now: Timestamp) -> Timestamp {
        let is_of_now = self.action == DELETING || RunEnd::is_dry_run(&self.note);
        if is_of_now { now } else { now.min(self.at) }
    }

    /// Returns the note, cut to 1024 bytes at the end of a character.
    pub fn longest_note(&self) -> &str {
        self.note.get(..self.note.floor_char_boundary(LONGEST_NOTE_BYTES)).unwrap_or_default()
    }

    /// Returns the message about the same act.
    pub fn message(&self, now: Timestamp) -> Message {
        let Self { object, reason, action: _, note: _, at: _, cause, request: _, end, span: _ } = self;
        let is_pod = |object: &ObjectReference| object.kind.as_deref() == Some("Pod");
        let pod = cause.as_ref().and_then(|cause| cause.pod.as_ref());
        let pod = pod.and_then(|pod| pod.name.clone().filter(|_| is_pod(pod)));
        Message {
            id: format!("{}/{}", object.namespace.as_deref().unwrap_or_default(), self.name()),
            reason: *reason,
            object: object.clone(),
            pod,
            queue: cause.as_ref().map(|cause| cause.queue.clone()),
            note: self.longest_note().to_owned(),
            time: self.time(now),
            deadline: *end,
        }
    }

    /// Logs an error that says why the event won't be written.
    pub fn complain(&self, why: &str) {
        let (namespace, object) = (self.namespace(), self.object.name.as_deref().unwrap_or_default());
        error!(%namespace, %object, reason = self.reason.name(), error = why, "Failed to write an event");
    }
}

/// Cuts a note at the length that the API server accepts: events wait, and a tenant's record may
/// have a long name of a queue.
fn cut(mut note: String) -> String {
    note.truncate(note.floor_char_boundary(LONGEST_NOTE_BYTES));
    note.shrink_to_fit();
    note
}

/// Returns a hash that each keeper computes alike.
pub fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An event on the object of this name.
    pub fn event(namespace: &str, name: &str) -> EventRecord {
        let object = ObjectReference {
            namespace: Some(namespace.into()),
            name: Some(name.into()),
            ..ObjectReference::default()
        };
        let (note, at) = (String::new(), Timestamp::UNIX_EPOCH);
        EventRecord::new(&object, EventReason::HeldUpByPausedJob, "", note, at)
    }

    pub fn event_record(object: &str, uid: &str, reason: EventReason) -> EventRecord {
        let at = Timestamp::from_millisecond(255).unwrap();
        let mut record = EventRecord { reason, at, ..event("default", object) };
        record.object.uid = Some(uid.into());
        record
    }

    #[test]
    fn an_events_name_follows_from_what_happened_and_is_never_too_long() {
        let of = |object, uid, reason| event_record(object, uid, reason).name();
        assert_eq!(of("test", "6ccd780c-baba", EventReason::MaxDurationExceeded), "test.6ccd780cff");
        assert_ne!(of("test", "00000000-baba", EventReason::MaxDurationExceeded), "test.6ccd780cff");
        assert_ne!(of("test", "6ccd780c-baba", EventReason::MaxDurationApproaching), "test.6ccd780cff");
        assert_ne!(of("test", "6ccd780c-baba", EventReason::ReturnRefused), "test.6ccd780cff");
        assert_ne!(of("test", "6ccd780c-baba", EventReason::RunEnded), "test.6ccd780cff");
        let by_note = |note: &str| {
            let record = event_record("test", "6ccd780c-baba", EventReason::InvalidMaxDuration);
            EventRecord { note: note.into(), ..record }.name()
        };
        assert_eq!(by_note("one"), by_note("one"));
        assert_ne!(by_note("one"), by_note("two"));
        let of_request = |request: &str, reason, milliseconds| {
            let at = Timestamp::from_millisecond(milliseconds).unwrap();
            let request = ObjectReference { uid: Some(request.into()), ..ObjectReference::default() };
            EventRecord { request: Some(request), at, ..event_record("test", "6ccd780c-baba", reason) }.name()
        };
        let granted = of_request("a", EventReason::ExtensionGranted, 1);
        assert_eq!(granted, of_request("a", EventReason::ExtensionGranted, 1));
        assert_ne!(granted, of_request("b", EventReason::ExtensionGranted, 1), "a request of the same text");
        assert_ne!(granted, of_request("a", EventReason::ExtensionGranted, 2), "granted again");
        assert_eq!(
            of_request("a", EventReason::ExtensionUsed, 1),
            of_request("a", EventReason::ExtensionUsed, 2)
        );
        let long = of(&format!("{}-rest", "x".repeat(199)), "u", EventReason::MaxDurationExceeded);
        assert!(long.len() < 253 && !long.contains("-."), "{long}");
    }

    #[test]
    fn a_note_is_cut_to_what_the_api_server_takes() {
        let of = |text: &str| {
            EventRecord { note: text.into(), ..event_record("", "", EventReason::RunEnded) }
                .longest_note()
                .to_owned()
        };
        assert_eq!(of("short"), "short");
        assert_eq!(of(&"x".repeat(1024)).len(), 1024);
        assert_eq!(of(&"€".repeat(1024)), "€".repeat(341), "whole characters");
    }
}
