//! Events about paused and deleted objects.

mod queue;
mod writer;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tenure_policy::extension::{
    EXTENSION_DENIED, EXTENSION_EXPIRED, EXTENSION_GRANTED, EXTENSION_REQUESTED, EXTENSION_USED,
};
use tenure_policy::pause::{
    INVALID_MAX_DURATION, MAX_DURATION_APPROACHING, MAX_DURATION_IGNORED, PAUSE_REVERSED, REACTIVATED,
    REQUEUED, RETURN_REFUSED, RUN_ENDED,
};
use tenure_service::{
    call::{ApiError, call},
    leadership::Leadership,
};
use tenure_types::keys::EVENT_QUEUE_ANNOTATION;
use tracing::error;

pub use queue::EventQueue;
pub use writer::EventWriter;

const CONTROLLER: &str = "tenure.dev/keeper";

/// The time for writing the remaining events at the end.
const FOR_EVENTS: Duration = Duration::from_secs(5);

/// The reasons of events that are no warnings.
const NORMAL: [&str; 5] = [REQUEUED, REACTIVATED, EXTENSION_REQUESTED, EXTENSION_GRANTED, EXTENSION_USED];

/// The reasons of events that are known by their note, and not by a time: they are about an annotation, or a request.
const BY_NOTE: [&str; 7] = [
    INVALID_MAX_DURATION,
    MAX_DURATION_IGNORED,
    EXTENSION_REQUESTED,
    EXTENSION_GRANTED,
    EXTENSION_DENIED,
    EXTENSION_USED,
    EXTENSION_EXPIRED,
];

/// The longest note that the API server accepts.
const LONGEST_NOTE_BYTES: usize = 1024;

/// Writes events.
#[derive(Clone)]
pub struct Events {
    client: Client,
    lead: Leadership,
    instance: String,
}

/// An event about an object: something that happened to it, or will, and when.
#[derive(Debug)]
pub struct EventRecord {
    /// The object that the event is about.
    pub object: ObjectReference,
    /// The reason, as a CamelCase word.
    pub reason: &'static str,
    /// The action, as a CamelCase verb.
    pub action: &'static str,
    /// The message for people.
    pub note: String,
    /// The time of the action, or another time that tells it from other events of its reason.
    pub at: Timestamp,
    /// The pod that caused the action, and its queue, if they are known.
    pub cause: Option<(ObjectReference, String)>,
}

impl Events {
    pub fn new(client: Client, lead: Leadership) -> Self {
        let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        Self { client, lead, instance: instance.unwrap_or_else(|| "tenure-keeper".into()) }
    }

    /// Tries to write an event. One that exists already is [`ApiError::Stale`]: its name follows from the happening, so
    /// that a second write after an error or a crash creates no second event. The event is a warning, unless a workload
    /// comes back.
    async fn write(&self, happening: &EventRecord, now: Timestamp) -> Result<(), ApiError> {
        let (object, namespace) = (&happening.object, happening.namespace());
        let (related, queue) = happening.cause.clone().unzip();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name(happening)),
                namespace: Some(namespace.into()),
                annotations: queue.map(|queue| BTreeMap::from([(EVENT_QUEUE_ANNOTATION.into(), queue)])),
                ..ObjectMeta::default()
            },
            related,
            action: Some(happening.action.into()),
            event_time: Some(MicroTime(now.min(happening.at))),
            note: Some(note(happening).into()),
            reason: Some(happening.reason.into()),
            regarding: Some(object.clone()),
            reporting_controller: Some(CONTROLLER.into()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if NORMAL.contains(&happening.reason) { "Normal" } else { "Warning" }.into()),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if !self.lead.holds() {
            return Err(ApiError::NotLeading);
        }
        call(api.create(&PostParams::default(), &event)).await.map(drop)
    }
}

impl EventRecord {
    /// The namespace of the event. That of a cluster-scoped object is in the default namespace.
    fn namespace(&self) -> &str {
        self.object.namespace.as_deref().unwrap_or("default")
    }

    /// Logs that the event won't be written.
    fn complain(&self, why: &str) {
        let (namespace, object) = (self.namespace(), self.object.name.as_deref().unwrap_or_default());
        error!(%namespace, %object, reason = self.reason, error = why, "Failed to write an event");
    }
}

fn note(EventRecord { note, .. }: &EventRecord) -> &str {
    note.get(..note.floor_char_boundary(LONGEST_NOTE_BYTES)).unwrap_or_default()
}

fn name(happening: &EventRecord) -> String {
    let EventRecord { object, reason, at, .. } = happening;
    let of = |text: &Option<String>, length: usize| {
        text.as_deref().unwrap_or_default().chars().take(length).collect::<String>()
    };
    let (name, uid) = (of(&object.name, 200), of(&object.uid, 8));
    if BY_NOTE.contains(reason) {
        let mut hasher = DefaultHasher::new();
        happening.note.hash(&mut hasher);
        return format!("{}.{uid}{:x}o", name.trim_end_matches(['-', '.']), hasher.finish());
    }
    let kind = match *reason {
        MAX_DURATION_APPROACHING => "a",
        PAUSE_REVERSED => "r",
        RUN_ENDED => "w",
        REQUEUED | REACTIVATED => "b",
        RETURN_REFUSED => "f",
        _ => "",
    };
    format!("{}.{uid}{:x}{kind}", name.trim_end_matches(['-', '.']), at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use tenure_policy::pause::MAX_DURATION_EXCEEDED;

    use super::*;

    fn happening(object: &str, uid: &str, reason: &'static str) -> EventRecord {
        let object = ObjectReference {
            name: Some(object.into()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        let at = Timestamp::from_millisecond(255).unwrap();
        EventRecord { object, reason, action: "", note: String::new(), at, cause: None }
    }

    #[test]
    fn an_events_name_follows_from_what_happened_and_is_never_too_long() {
        let of = |object, uid, reason| name(&happening(object, uid, reason));
        assert_eq!(of("test", "6ccd780c-baba", MAX_DURATION_EXCEEDED), "test.6ccd780cff");
        assert_ne!(of("test", "00000000-baba", MAX_DURATION_EXCEEDED), "test.6ccd780cff");
        assert_ne!(of("test", "6ccd780c-baba", MAX_DURATION_APPROACHING), "test.6ccd780cff");
        assert_ne!(of("test", "6ccd780c-baba", RETURN_REFUSED), "test.6ccd780cff");
        assert_ne!(of("test", "6ccd780c-baba", RUN_ENDED), "test.6ccd780cff");
        let by_note = |note: &str| {
            let happening = happening("test", "6ccd780c-baba", INVALID_MAX_DURATION);
            name(&EventRecord { note: note.into(), ..happening })
        };
        assert_eq!(by_note("one"), by_note("one"));
        assert_ne!(by_note("one"), by_note("two"));
        let long = of(&format!("{}-rest", "x".repeat(199)), "u", MAX_DURATION_EXCEEDED);
        assert!(long.len() < 253 && !long.contains("-."), "{long}");
    }

    #[test]
    fn a_note_is_cut_to_what_the_api_server_takes() {
        let of = |text: &str| note(&EventRecord { note: text.into(), ..happening("", "", "") }).to_owned();
        assert_eq!(of("short"), "short");
        assert_eq!(of(&"x".repeat(1024)).len(), 1024);
        assert_eq!(of(&"€".repeat(1024)), "€".repeat(341), "whole characters");
    }
}
