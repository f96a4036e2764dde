//! Writes the events that wait.

mod left;

use std::{num::NonZeroU32, sync::Arc};

use tenure_service::{
    leadership::Leadership,
    limit::{WriteLimit, write_limit},
    work::{Lease, Run},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Events, FOR_EVENTS, queue::QueuedEvent};
use crate::handles::Handles;

use left::LeftEvents;

/// The most events of one pause: the limit of events is so many times that of pauses.
const EVENTS_PER_WRITE: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// Writes the events of all parts of the keeper.
pub struct EventWriter {
    handles: Arc<Handles>,
    events: Events,
    limit: WriteLimit,
    left: LeftEvents,
}

impl EventWriter {
    pub fn new(handles: Arc<Handles>) -> Self {
        let [rate, burst] =
            [handles.writes_per_second, handles.burst].map(|of| of.saturating_mul(EVENTS_PER_WRITE));
        let (events, limit) = (Events::new(handles.client.clone()), write_limit(rate, burst));
        Self { handles, events, limit, left: LeftEvents::default() }
    }

    /// Works whenever this keeper leads. Once `ended` says that no more events come, writes the rest, for a while.
    pub async fn run(&self, lead: &Leadership, ended: &CancellationToken) {
        let lost = || {
            self.left.keep(self.handles.events.clear());
            self.handles.cluster.outbox.interrupted();
        };
        lead.work(ended, async || self.work(ended).await, lost).await;
    }

    async fn work(&self, ended: &CancellationToken) {
        let end = async {
            ended.cancelled().await;
            tokio::time::sleep(FOR_EVENTS).await;
        };
        let run = Run { queue: &self.handles.events.work, gate: None, end: ended, drains: true };
        let writes = run.work(|| {}, std::future::pending::<()>, async |event| self.write(event).await);
        tokio::select! {
            () = async { tokio::join!(self.left.look(&self.handles), writes); } => {}
            () = end => warn!("Ended before all events were written"),
        }
    }

    async fn write(&self, event: Lease<QueuedEvent>) {
        self.handles.events.count();
        self.limit.until_ready().await;
        let result = event.watch(self.events.write(&event.work.record, self.handles.now())).await;
        self.handles.events.tried(event, &result);
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use http::{Request, Response};
    use kube::{Client, client::Body};
    use parking_lot::Mutex;
    use tenure_policy::config::Config;
    use tenure_service::clock::ServerClock;
    use tokio::time::Instant;

    use super::*;
    use crate::{events::record::tests::event, testing::handles};

    /// An API server that refuses the events of namespaces `quota-…`, doesn't answer for `hangs-…`, and notes when it took
    /// the event of another.
    fn server(taken: Arc<Mutex<Vec<Instant>>>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let taken = Arc::clone(&taken);
            async move {
                let path = request.uri().path().to_owned();
                let (status, body) = if path.contains("/quota-") {
                    (
                        403,
                        r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "message": "exceeded quota"}"#,
                    )
                } else if path.contains("/hangs-") {
                    std::future::pending().await
                } else {
                    taken.lock().push(Instant::now());
                    (201, r#"{"metadata": {}, "eventTime": null}"#)
                };
                let response = Response::builder().status(status).header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Body::from(body.as_bytes().to_vec())).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn writer(taken: &Arc<Mutex<Vec<Instant>>>) -> EventWriter {
        let handles = handles(server(Arc::clone(taken)), ServerClock::default(), Config::default());
        EventWriter::new(Arc::new(handles))
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_whose_events_hang_or_are_refused_hold_up_no_other() {
        let (taken, lead, ended) = (Arc::default(), Leadership::always(), CancellationToken::new());
        let writer = writer(&taken);
        let queue = writer.handles.events.clone();
        let trouble = ["quota-a", "quota-b", "hangs-a", "hangs-b", "hangs-c"];
        queue.extend(trouble.iter().flat_map(|name| (0..500).map(|number| event(name, &number.to_string()))));
        let told = async {
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
            longest = told => assert!(longest <= Duration::from_secs(2), "{longest:?}"),
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
}
