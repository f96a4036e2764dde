//! Events about workloads: their pauses, deletions, returns, notices and extensions.
//!
//! Controllers add an [`EventRecord`] to the [`EventQueue`], and the [`EventWriter`] writes the
//! events while this keeper leads. The name of an event follows from its record, so that a second
//! write creates no second event.

mod queue;
pub mod record;
mod writer;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::events::v1::Event,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams, core::ApiResource};
use serde_json::Value;
use tenure_service::call::{ApiError, call};
use tenure_types::{keys::EVENT_QUEUE_ANNOTATION, projection::WholeObject};

pub use queue::EventQueue;
pub use record::{DELETING, EventCause, EventRecord};
pub use writer::EventWriter;

use record::hash;

/// The `reportingController` of all events.
const CONTROLLER: &str = "tenure.dev/keeper";

/// The most other names that are tried for an event whose name is taken. The last of them can't be
/// guessed.
const OTHER_NAMES: usize = 4;

/// Creates events in the API server.
#[derive(Clone)]
pub struct Events {
    client: Client,
    /// The `reportingInstance`: the value of `HOSTNAME`, or `tenure-keeper`.
    instance: String,
}

impl Events {
    /// Creates a writer, and reads `HOSTNAME` from the environment.
    pub fn new(client: Client) -> Self {
        let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        Self { client, instance: instance.unwrap_or_else(|| "tenure-keeper".into()) }
    }

    /// Tries to write an event. Fails with [`ApiError::AlreadyExists`] if the event exists: its
    /// name follows from the record, so that a second write after an error or a crash creates no
    /// second event. Any user may have taken the name for another event: then the event gets
    /// another name.
    async fn write(&self, record: &EventRecord, now: Timestamp) -> Result<(), ApiError> {
        let mut event = self.event(record, now);
        let api: Api<Event> = Api::namespaced(self.client.clone(), record.namespace());
        // any user may have written an event of that name, with times that can't be decoded
        let events = ApiResource::erase::<Event>(&());
        let others: Api<WholeObject> = Api::namespaced_with(self.client.clone(), record.namespace(), &events);
        let first = event.metadata.name.clone().unwrap_or_default();
        let mut name = first.clone();
        for tries in 0..=OTHER_NAMES {
            event.metadata.name = Some(name.clone());
            let taken = match call(api.create(&PostParams::default(), &event)).await {
                Err(ApiError::AlreadyExists(taken)) => taken,
                // another request has changed the count of a quota
                Err(ApiError::Stale(_)) => continue,
                result => return result.map(drop),
            };
            let found = match call(others.get(&name)).await {
                Ok(found) if !is_same(&found, &event) => found,
                // without the right to read events, every event of the name counts
                Ok(_) | Err(ApiError::Forbidden(_)) => return Err(ApiError::AlreadyExists(taken)),
                // the other event is gone by now, and the name is free
                Err(ApiError::NotFound) => continue,
                Err(error) => return Err(error),
            };
            let uid = found.metadata.uid.unwrap_or_default();
            let can_be_guessed = tries < OTHER_NAMES.saturating_sub(1);
            let suffix = if can_be_guessed { hash(&uid) } else { RandomState::new().hash_one(&uid) };
            name = format!("{first}-{suffix:x}");
        }
        Err(ApiError::Timeout)
    }

    /// Returns the event for a record, as it is sent. The reason says whether its type is Normal or
    /// Warning.
    fn event(&self, record: &EventRecord, now: Timestamp) -> Event {
        let (object, namespace) = (&record.object, record.namespace());
        let (related, queue) = record.cause.clone().map(|cause| (cause.pod, cause.queue)).unzip();
        Event {
            metadata: ObjectMeta {
                name: Some(record.name()),
                namespace: Some(namespace.into()),
                annotations: queue.map(|queue| BTreeMap::from([(EVENT_QUEUE_ANNOTATION.into(), queue)])),
                ..ObjectMeta::default()
            },
            related: related.flatten().or_else(|| record.request.clone()),
            action: Some(record.action.into()),
            event_time: Some(MicroTime(record.time(now))),
            note: Some(record.longest_note().into()),
            reason: Some(record.reason.name().into()),
            regarding: Some(object.clone()),
            reporting_controller: Some(CONTROLLER.into()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if record.reason.properties().is_normal { "Normal" } else { "Warning" }.into()),
            ..Event::default()
        }
    }
}

/// True if a found event says the same as this one about the same object, from any keeper.
fn is_same(found: &WholeObject, event: &Event) -> bool {
    let text = |path: &str| found.value.pointer(path).and_then(Value::as_str);
    let uid = event.regarding.as_ref().and_then(|object| object.uid.as_deref());
    let Event { reason, note, type_, reporting_controller, .. } = event;
    let texts = [
        ("/reason", reason),
        ("/note", note),
        ("/type", type_),
        ("/reportingController", reporting_controller),
    ];
    text("/regarding/uid") == uid && texts.iter().all(|(path, own)| text(path) == own.as_deref())
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, hash_map::Entry},
        future::ready,
        sync::Arc,
    };

    use http::Method;
    use parking_lot::Mutex;
    use serde_json::json;
    use tenure_policy::{
        pause::{MAX_DURATION_EXCEEDED, PausedObject},
        reason::EventReason,
    };
    use tenure_types::{
        journal::JournalAct,
        paused::{PausedRecord, RequeueState},
    };

    use super::{record::tests::event_record, *};
    use crate::{action::events_of, testing::client};

    /// An API server that keeps events by name. Before each of the first `taken` creations, another
    /// user takes the name.
    fn server(kept: &Arc<Mutex<HashMap<String, Value>>>, taken: usize) -> Client {
        server_with_quota(kept, taken, 0)
    }

    /// Such a server, where a quota conflicts with the first `conflicts` creations.
    fn server_with_quota(
        kept: &Arc<Mutex<HashMap<String, Value>>>,
        taken: usize,
        conflicts: usize,
    ) -> Client {
        let (kept, left) = (Arc::clone(kept), Arc::new(Mutex::new((taken, conflicts))));
        client(move |head, mut event| {
            let is_creation = head.method == Method::POST;
            let (mut kept, mut left) = (kept.lock(), left.lock());
            let (taken, conflicts) = &mut *left;
            ready(if is_creation && *conflicts > 0 {
                *conflicts -= 1;
                (409, json!({"status": "Failure", "message": "no", "reason": "Conflict", "code": 409}))
            } else if is_creation {
                let name = event["metadata"]["name"].as_str().unwrap().to_owned();
                if *taken > 0 {
                    *taken -= 1;
                    let late = "9999-12-31T23:59:59.000000Z";
                    let metadata = json!({"name": name, "uid": name, "managedFields": [{"time": late}]});
                    let foreign = json!({"metadata": metadata, "eventTime": late, "note": "x"});
                    kept.insert(name.clone(), foreign);
                }
                event["metadata"]["uid"] = json!(name);
                let exists =
                    json!({"status": "Failure", "message": "exists", "reason": "AlreadyExists", "code": 409});
                match kept.entry(name) {
                    Entry::Occupied(_) => (409, exists),
                    Entry::Vacant(free) => (201, free.insert(event).clone()),
                }
            } else {
                let name = head.uri.path().rsplit('/').next().unwrap_or_default();
                (200, kept.get(name).cloned().unwrap_or_default())
            })
        })
    }

    #[tokio::test]
    async fn an_event_whose_name_any_user_has_taken_is_written_all_the_same_and_once() {
        for taken in [0, 1, 2, OTHER_NAMES] {
            let kept = Arc::default();
            let events = Events::new(server(&kept, taken));
            let record = EventRecord {
                note: "told".into(),
                ..event_record("web", "6ccd780c", EventReason::MaxDurationExceeded)
            };
            let now = Timestamp::from_millisecond(300).unwrap();
            assert!(events.write(&record, now).await.is_ok(), "{taken}");
            let again = Events { instance: "another keeper".into(), ..events.clone() };
            let exists = again.write(&record, now).await;
            if taken < OTHER_NAMES {
                assert!(matches!(exists, Err(ApiError::AlreadyExists(_))), "{taken}: {exists:?}");
            }
            let ours = kept.lock().values().filter(|event| event["note"] == "told").count();
            assert!(ours == 1 || taken == OTHER_NAMES, "{taken}: {ours}");
        }
    }

    #[tokio::test]
    async fn an_event_whose_creation_conflicts_with_the_count_of_a_quota_is_not_taken_for_written() {
        for (conflicts, expected) in [(1, 1), (OTHER_NAMES, 1), (usize::MAX, 0)] {
            let kept = Arc::default();
            let events = Events::new(server_with_quota(&kept, 0, conflicts));
            let record = event_record("web", "6ccd780c", EventReason::MaxDurationExceeded);
            let written = events.write(&record, Timestamp::UNIX_EPOCH).await;
            assert_eq!((kept.lock().len(), written.is_ok()), (expected, expected == 1), "{conflicts}");
            assert!(written.err().is_none_or(|error| error.is_open()), "it is tried again");
        }
    }

    #[tokio::test]
    async fn an_event_that_is_repaired_by_the_record_of_a_pause_has_its_queue() {
        let record = |queue: &str| {
            let record = json!({
                "reason": MAX_DURATION_EXCEEDED, "at": "2026-01-01T00:00:00Z", "queue": queue, "field": "spec.replicas",
                "value": 0, "previousValue": 2,
            });
            serde_json::from_value::<PausedRecord>(record).unwrap()
        };
        let (kept, known) = (Arc::default(), PausedObject::default());
        let events = Events::new(server(&kept, 0));
        let repaired = events_of(
            &JournalAct::Paused { record: record("research"), state: RequeueState::default() },
            &known,
        );
        assert!(repaired.len() >= 2);
        for record in &repaired {
            events.write(record, Timestamp::MAX).await.unwrap();
        }
        for event in kept.lock().values() {
            assert_eq!(event["metadata"]["annotations"], json!({"tenure.dev/queue": "research"}), "{event}");
            assert_eq!(event["related"], Value::Null);
        }
        // any user may write a record
        for queue in ["", &"x".repeat(254)] {
            assert!(EventCause::of(&record(queue)).is_none(), "{queue}");
        }
    }
}
