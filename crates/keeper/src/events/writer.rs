//! Writes the events that wait.
//!
//! `Args::lead` runs the [`EventWriter`] beside the controllers, in a dry run as well, and ends it
//! after them. The events of deletions outlast a lost lead. They are written when this keeper leads
//! again, if the deletions were done.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use tenure_policy::reason::EventReason;
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    limit::{WriteLimit, write_limit},
    work::{Lease, WorkLoop},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{EventRecord, Events, queue::QueuedEvent};
use crate::{
    api::{ObjectClient, refer},
    handles::Handles,
};

/// The longest time for writing the remaining events at the end.
const FOR_EVENTS: Duration = Duration::from_secs(5);

/// The time after a lost lead in which the events of deletions are still written.
const LONGEST: Duration = Duration::from_mins(5);

/// The time after which the API server is asked again about an object that couldn't be read.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The most events of one pause. The limit of events is that of pauses times this number.
const EVENTS_PER_WRITE: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// The controller of events.
pub struct EventWriter {
    handles: Arc<Handles>,
    events: Events,
    /// The limit of events.
    limit: WriteLimit,
}

impl EventWriter {
    /// Creates a writer with the limit of pauses times `EVENTS_PER_WRITE`.
    pub fn new(handles: Arc<Handles>) -> Self {
        let [rate, burst] =
            [handles.writes_per_second, handles.burst].map(|of| of.saturating_mul(EVENTS_PER_WRITE));
        let (events, limit) = (Events::new(handles.client.clone()), write_limit(rate, burst));
        Self { handles, events, limit }
    }

    /// Works whenever this keeper leads. Once `ended` is cancelled, no more events come, and the
    /// rest is written within five seconds.
    pub async fn run(&self, lead: &Leadership, ended: &CancellationToken) {
        let lost = || {
            self.handles.events.leave();
            self.handles.cluster.outbox.interrupted();
        };
        lead.work(ended, async || self.work(ended).await, lost).await;
    }

    /// Writes events until `ended`, and then those that still wait.
    async fn work(&self, ended: &CancellationToken) {
        let end = async {
            ended.cancelled().await;
            tokio::time::sleep(FOR_EVENTS).await;
        };
        let run = WorkLoop { queue: &self.handles.events.work, gate: None, end: ended, drains: true };
        let writes = run.work(|| {}, std::future::pending::<()>, async |event| self.write(event).await);
        tokio::select! {
            () = writes => {}
            () = end => warn!("Ended before all events were written"),
        }
    }

    /// Writes one event. If the lead was lost before, the event of a deletion is written only if
    /// the deletion was done.
    async fn write(&self, event: Lease<QueuedEvent>) {
        let Handles { events, objects, .. } = &*self.handles;
        let begun = self.handles.now();
        self.limit.until_ready().await;
        if let Some(left) = event.work.left_since() {
            match event.watch(is_deleted(objects, &event.work.record)).await {
                _ if left.elapsed() > LONGEST => {
                    event.work.record.complain("the lead was lost before it was written");
                    return event.done();
                }
                Ok(true) => events.release_left(&event.work),
                // the event comes again with the deletion
                Ok(false) => return event.done(),
                Err(_) => return event.again(AGAIN_AFTER),
            }
        }
        let result = event.watch(self.events.write(&event.work.record, self.handles.now())).await;
        if result.is_ok() {
            let record = &event.work.record;
            record.span.part("event", (begun, self.handles.now()), &[("reason", record.reason.name())]);
        }
        events.tried(event, &result);
    }
}

/// True if the object that is deleted by the act of an event is gone, or is being deleted. For an
/// event on an owner that isn't paused another time, that object is the pod. The event of a Job is
/// on its `CronJob`, and follows the deletion.
async fn is_deleted(objects: &ObjectClient, event: &EventRecord) -> Result<bool, ApiError> {
    if event.reason == EventReason::PausedJobDeleted {
        return Ok(true);
    }
    let pod = event.cause.as_ref().and_then(|cause| cause.pod.as_ref());
    let object = pod.filter(|_| event.reason == EventReason::PauseReversed).unwrap_or(&event.object);
    let [api_version, kind, name, uid] = [&object.api_version, &object.kind, &object.name, &object.uid]
        .map(|text| text.as_deref().unwrap_or_default());
    let found = objects.live(event.namespace(), &refer(api_version, kind, name, uid)).await?;
    Ok(found.is_none())
}

#[cfg(test)]
mod tests {
    use http::Method;
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::Client;
    use parking_lot::Mutex;
    use serde_json::json;
    use tenure_policy::config::Config;
    use tenure_service::clock::ServerClock;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::{
        events::{DELETING, EventCause, record::tests::event},
        testing::{client, handles},
    };

    /// The events that an API server took: when, and the names of their objects.
    type Taken = Arc<Mutex<Vec<(Instant, String)>>>;

    /// An API server that refuses the events of namespaces `quota-…`, doesn't answer for `hangs-…`, and notes the events of
    /// others. It has the pods `there`, `going` and `other`, of which the last was created again, and fails to read `broken-…`.
    fn server(taken: Taken) -> Client {
        client(move |head, event| {
            let taken = Arc::clone(&taken);
            async move {
                let path = head.uri.path();
                let pod = |name: &str, uid: &str, deleted: Option<&str>| {
                    let metadata = json!({"name": name, "uid": uid, "deletionTimestamp": deleted});
                    (200, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
                };
                let failed = |code: u16, reason: &str, message: &str| {
                    let (kind, status) = ("Status", "Failure");
                    (
                        code,
                        json!({"kind": kind, "apiVersion": "v1", "status": status, "code": code, "reason": reason, "message": message}),
                    )
                };
                if head.method == Method::GET {
                    match path.rsplit('/').next().unwrap() {
                        "there" => pod("there", "there", None),
                        "going" => pod("going", "going", Some("2026-01-02T03:04:05Z")),
                        "other" => pod("other", "of another", None),
                        broken if broken.starts_with("broken-") => failed(500, "", "no"),
                        _ => failed(404, "NotFound", "no"),
                    }
                } else if path.contains("/quota-") {
                    failed(403, "", "exceeded quota")
                } else if path.contains("/hangs-") {
                    std::future::pending().await
                } else {
                    let name = event["regarding"]["name"].as_str().unwrap_or_default().to_owned();
                    taken.lock().push((Instant::now(), name));
                    (201, json!({"metadata": {}, "eventTime": null}))
                }
            }
        })
    }

    fn writer(taken: &Taken) -> EventWriter {
        let handles = handles(server(Arc::clone(taken)), ServerClock::default(), Config::default());
        EventWriter::new(Arc::new(handles))
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_whose_events_hang_or_are_refused_hold_up_no_other() {
        let (taken, lead, ended) = (Arc::default(), Leadership::always(), CancellationToken::new());
        let writer = writer(&taken);
        let queue = writer.handles.events.clone();
        let failing = ["quota-a", "quota-b", "hangs-a", "hangs-b", "hangs-c"];
        queue.extend(failing.iter().flat_map(|name| (0..500).map(|number| event(name, &number.to_string()))));
        let longest_wait = async {
            let mut longest = Duration::ZERO;
            for number in 0..30 {
                let (sent, before) = (Instant::now(), taken.lock().len());
                queue.extend([event("fine", &number.to_string())]);
                while taken.lock().len() == before {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                longest = longest.max(sent.elapsed());
            }
            longest
        };
        tokio::select! {
            () = writer.run(&lead, &ended) => unreachable!(),
            longest = longest_wait => assert!(longest <= Duration::from_secs(2), "{longest:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_what_can_be_written_is_and_the_rest_is_left() {
        let (taken, ended) = (Arc::default(), CancellationToken::new());
        let writer = writer(&taken);
        let queue = writer.handles.events.clone();
        queue.extend((0..100).map(|number| event("fine", &number.to_string())));
        ended.cancel();
        let begun = Instant::now();
        writer.work(&ended).await;
        assert_eq!((taken.lock().len(), begun.elapsed() < Duration::from_secs(1)), (100, true));
        queue.extend([event("hangs-a", "0")]);
        writer.work(&ended).await;
        assert!(begun.elapsed() >= FOR_EVENTS);
    }

    /// An event about the deletion of a pod.
    fn deletion(name: &str) -> EventRecord {
        let text = |text: &str| Some(text.to_owned());
        let (api_version, kind) = (text("v1"), text("Pod"));
        let (name, uid, namespace) = (text(name), text(name), text("team"));
        let object =
            ObjectReference { api_version, kind, name, uid, namespace, ..ObjectReference::default() };
        let reason = EventReason::HeldUpByPausedJob;
        EventRecord::new(&object, reason, DELETING, String::new(), Timestamp::UNIX_EPOCH)
    }

    /// Loses the lead before these events were written.
    fn leave(writer: &EventWriter, events: impl IntoIterator<Item = EventRecord>) {
        writer.handles.events.extend(events);
        writer.handles.events.leave();
    }

    /// Leads for `time`. Returns the names in the events that are written.
    async fn lead(writer: &EventWriter, taken: &Taken, time: Duration) -> Vec<String> {
        taken.lock().clear();
        let _ = timeout(time, writer.work(&CancellationToken::new())).await;
        let mut names: Vec<_> = taken.lock().iter().map(|(_, name)| name.clone()).collect();
        names.sort();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_cannot_be_read_holds_up_the_event_of_no_other() {
        let taken = Taken::default();
        let writer = writer(&taken);
        leave(&writer, ["broken-a", "gone", "broken-b", "going"].map(deletion));
        assert_eq!(lead(&writer, &taken, Duration::from_secs(5)).await, ["going", "gone"]);
        assert_eq!(writer.handles.events.work.total(), 2, "they are looked at again");
        assert_eq!(lead(&writer, &taken, LONGEST * 2).await, [""; 0]);
        assert_eq!(writer.handles.events.work.total(), 0, "too long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn that_an_owner_is_not_paused_another_time_is_recorded_if_its_pod_was_deleted() {
        let taken = Taken::default();
        let writer = writer(&taken);
        let undone = |(number, pod): (usize, &str)| {
            let cause = EventCause { pod: Some(deletion(pod).object), queue: "q".into() };
            let at = Timestamp::from_second(number.try_into().unwrap()).unwrap();
            let reason = EventReason::PauseReversed;
            EventRecord { reason, at, cause: Some(cause), ..deletion("there") }
        };
        leave(&writer, ["going", "gone", "there"].into_iter().enumerate().map(undone));
        assert_eq!(lead(&writer, &taken, LONGEST).await, ["there"; 2]);
        // an owner that is deleted itself has the event of its own end
        let cause = EventCause { pod: Some(deletion("there").object), queue: "q".into() };
        leave(&writer, [EventRecord { cause: Some(cause), ..deletion("gone") }]);
        assert_eq!(lead(&writer, &taken, LONGEST).await, ["gone"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_job_has_its_event_on_its_cron_job_which_stays() {
        let taken = Taken::default();
        let writer = writer(&taken);
        leave(&writer, [EventRecord { reason: EventReason::PausedJobDeleted, ..deletion("there") }]);
        assert_eq!(lead(&writer, &taken, LONGEST).await, ["there"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_is_recorded_when_the_lead_comes_back_and_what_was_not_is_not() {
        let taken = Taken::default();
        let writer = writer(&taken);
        let queue = &writer.handles.events;
        queue.extend(["written", "gone", "gone-too"].map(deletion));
        assert!(queue.written().is_some());
        let [stopped, refused] = [queue.work.take().unwrap(), queue.work.take().unwrap()];
        queue.extend(["there", "going", "other"].map(deletion));
        queue.extend([EventRecord { action: "Pausing", ..deletion("owner") }]);
        drop(stopped);
        queue.tried(refused, &Err(ApiError::NotLeading));
        queue.leave();
        assert_eq!(queue.work.waiting(), 5, "those of deletions");
        assert_eq!(lead(&writer, &taken, LONGEST).await, ["going", "gone", "gone-too", "other"]);
        assert_eq!(queue.work.waiting(), 0);
        leave(&writer, [deletion("gone")]);
        tokio::time::advance(LONGEST * 2).await;
        assert_eq!(lead(&writer, &taken, LONGEST).await, [""; 0], "too long ago");
        assert_eq!(queue.work.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_is_recorded_again_while_its_left_event_is_judged_is_recorded() {
        let taken = Taken::default();
        let writer = writer(&taken);
        let queue = &writer.handles.events;
        leave(&writer, [deletion("there")]);
        let left = queue.work.take().unwrap();
        queue.record_first(Vec::new(), vec![deletion("there")]).await;
        writer.write(left).await;
        assert!(taken.lock().is_empty(), "it was not deleted then");
        assert_eq!(lead(&writer, &taken, LONGEST).await, ["there"]);
    }
}
