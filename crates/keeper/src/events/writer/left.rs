//! Events of deletions that were not yet written when this keeper loses the lead.
//!
//! Other events follow from records, and come again. Of a deletion nothing is left. If this keeper leads again soon, it
//! writes them, as far as the objects have been deleted: the loss may have come before the deletion.

use std::{collections::VecDeque, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use parking_lot::Mutex;
use tenure_policy::reason::EventReason;
use tenure_service::call::ApiError;
use tokio::time::{Instant, sleep_until};

use super::super::{DELETING, EventRecord};
use crate::{api::ObjectClient, handles::Handles};

/// The time for which these events are written after the lead was lost.
const LONGEST: Duration = Duration::from_mins(5);

/// The time after which the API server is asked again about an object that couldn't be read.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The events of deletions that were not written.
#[derive(Default)]
pub struct LeftEvents(Mutex<VecDeque<LeftEvent>>);

/// An event that was left.
#[derive(Clone)]
struct LeftEvent {
    event: EventRecord,
    /// The time at which the lead was lost.
    since: Instant,
    /// The earliest time of the next look.
    not_before: Instant,
}

impl LeftEvents {
    /// Keeps the events of deletions.
    pub fn keep(&self, events: impl IntoIterator<Item = EventRecord>) {
        let deletions = events.into_iter().filter(|event| event.action == DELETING);
        let now = Instant::now();
        self.0.lock().extend(deletions.map(|event| LeftEvent { event, since: now, not_before: now }));
    }

    /// Adds the events of what has been deleted to the queue again, and drops the others. An object that can't be read holds up
    /// no other: it is looked at again after them.
    pub async fn look(&self, Handles { objects, events, .. }: &Handles) {
        loop {
            // it stays in its place meanwhile, in case that this keeper loses the lead again
            let Some(LeftEvent { event, since, not_before }) = self.0.lock().front().cloned() else {
                return;
            };
            sleep_until(not_before).await;
            let is_deleted = is_deleted(objects, &event).await;
            let mut left = self.0.lock();
            left.pop_front();
            match is_deleted {
                _ if since.elapsed() > LONGEST => event.complain("the lead was lost before it was written"),
                Ok(true) => events.extend([event]),
                // it is told again with the deletion
                Ok(false) => {}
                Err(_) => {
                    let not_before = Instant::now() + AGAIN_AFTER;
                    left.push_back(LeftEvent { event, since, not_before });
                }
            }
        }
    }
}

/// True if the object that an event is about is gone, or is being deleted.
async fn is_deleted(objects: &ObjectClient, event: &EventRecord) -> Result<bool, ApiError> {
    let object = deleted_by(event).clone();
    let owner = OwnerReference {
        api_version: object.api_version.unwrap_or_default(),
        kind: object.kind.unwrap_or_default(),
        name: object.name.unwrap_or_default(),
        uid: object.uid.unwrap_or_default(),
        ..OwnerReference::default()
    };
    match objects.get(event.namespace(), &owner).await {
        Err(ApiError::NotFound) => Ok(true),
        found => {
            let metadata = found?.metadata;
            Ok(metadata.uid.as_deref() != Some(&owner.uid) || metadata.deletion_timestamp.is_some())
        }
    }
}

/// Returns the object that is deleted by the act that an event is about: the pod, where its owner isn't paused another time.
fn deleted_by(event: &EventRecord) -> &ObjectReference {
    let pod = event.cause.as_ref().and_then(|cause| cause.pod.as_ref());
    pod.filter(|_| event.reason == EventReason::PauseReversed).unwrap_or(&event.object)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use jiff::Timestamp;
    use kube::{Client, client::Body};
    use serde_json::json;
    use tenure_policy::config::Config;
    use tenure_service::clock::ServerClock;

    use super::*;
    use crate::{events::EventCause, testing};

    /// An API server that has the pods `there`, `going` and `other`, of which the last was created again. It fails to read
    /// `broken`.
    fn server() -> Client {
        let service = tower::service_fn(async |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let pod = |name: &str, uid: &str, deleted: Option<&str>| {
                json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "uid": uid, "deletionTimestamp": deleted},
                })
            };
            let pods = json!({"name": "pods", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"]});
            let (status, body) = match path.rsplit('/').next().unwrap() {
                "v1" => (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]})),
                "there" => (200, pod("there", "there", None)),
                "going" => (200, pod("going", "going", Some("2026-01-02T03:04:05Z"))),
                "other" => (200, pod("other", "of another", None)),
                "broken" => (500, json!({"status": "Failure", "code": 500, "reason": "", "message": "no"})),
                _ => (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no"}),
                ),
            };
            let response = Response::builder().status(status).header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
        });
        Client::new(service, "default")
    }

    fn event(name: &str, action: &'static str) -> EventRecord {
        let text = |text: &str| Some(text.to_owned());
        let (api_version, kind) = (text("v1"), text("Pod"));
        let (name, uid, namespace) = (text(name), text(name), text("team"));
        let object =
            ObjectReference { api_version, kind, name, uid, namespace, ..ObjectReference::default() };
        let (note, at) = (String::new(), Timestamp::UNIX_EPOCH);
        EventRecord {
            object,
            reason: EventReason::HeldUpByPausedJob,
            action,
            note,
            at,
            cause: None,
            request: None,
            end: None,
        }
    }

    fn handles() -> Handles {
        testing::handles(server(), ServerClock::default(), Config::default())
    }

    fn names(events: Vec<EventRecord>) -> Vec<String> {
        let mut names: Vec<_> = events.into_iter().filter_map(|event| event.object.name).collect();
        names.sort();
        names
    }

    /// Looks for so long; returns the names in the events that are told.
    async fn look(left: &LeftEvents, handles: &Handles, time: Duration) -> Vec<String> {
        let _ = tokio::time::timeout(time, left.look(handles)).await;
        names(handles.events.clear())
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_cannot_be_read_holds_up_the_event_of_no_other() {
        let (handles, left) = (handles(), LeftEvents::default());
        left.keep(["broken", "gone", "broken", "going"].map(|name| event(name, DELETING)));
        assert_eq!(look(&left, &handles, Duration::from_secs(5)).await, ["going", "gone"]);
        assert_eq!(left.0.lock().len(), 2, "they are looked at again");
        assert_eq!(look(&left, &handles, LONGEST * 2).await, [""; 0]);
        assert!(left.0.lock().is_empty(), "too long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn that_an_owner_is_not_paused_another_time_is_told_if_its_pod_was_deleted() {
        let (handles, left) = (handles(), LeftEvents::default());
        let undone = |pod: &str| {
            let cause = EventCause { pod: Some(event(pod, DELETING).object), queue: "q".into() };
            let at = Timestamp::from_second(pod.len().try_into().unwrap()).unwrap();
            EventRecord {
                reason: EventReason::PauseReversed,
                at,
                cause: Some(cause),
                ..event("there", DELETING)
            }
        };
        left.keep([undone("going"), undone("gone"), undone("there")]);
        assert_eq!(look(&left, &handles, LONGEST).await, ["there"; 2]);
        // an owner that is deleted itself is told by its own end
        let cause = EventCause { pod: Some(event("there", DELETING).object), queue: "q".into() };
        left.keep([EventRecord { cause: Some(cause), ..event("gone", DELETING) }]);
        assert_eq!(look(&left, &handles, LONGEST).await, ["gone"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_is_told_when_the_lead_comes_back_and_what_was_not_is_not() {
        let (handles, left) = (handles(), LeftEvents::default());
        let queue = &handles.events;
        queue.extend(["written", "gone", "gone-too"].map(|name| event(name, DELETING)));
        assert!(queue.written().is_some());
        let [stopped, refused] = [queue.work.take().unwrap(), queue.work.take().unwrap()];
        queue.extend(["there", "going", "other"].map(|name| event(name, DELETING)));
        queue.extend([event("owner", "Pausing")]);
        drop(stopped);
        queue.tried(refused, &Err(ApiError::NotLeading));
        left.keep(queue.clear());
        assert_eq!(queue.work.waiting(), 0);
        left.look(&handles).await;
        assert_eq!(names(queue.clear()), ["going", "gone", "gone-too", "other"]);
        left.keep([event("gone", DELETING)]);
        tokio::time::advance(LONGEST * 2).await;
        left.look(&handles).await;
        assert_eq!(queue.work.waiting(), 0, "too long ago");
    }
}
