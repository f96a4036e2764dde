//! Writes the events that wait.

mod left;

use tenure_service::{
    clock::ServerClock,
    leadership::Leadership,
    limit::WriteLimit,
    work::{Lease, Run},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{EventQueue, Events, FOR_EVENTS, queue::QueuedEvent};
use crate::recent::EventOutbox;

pub use left::LeftEvents;

/// Writes the events of all parts of the keeper.
pub struct EventWriter {
    pub events: Events,
    pub queue: EventQueue,
    pub limit: WriteLimit,
    pub clock: ServerClock,
    pub outbox: EventOutbox,
    pub left: LeftEvents,
}

impl EventWriter {
    /// Works whenever this keeper leads. Once `ended` says that no more events come, writes the rest, for a while.
    pub async fn run(&self, lead: &Leadership, ended: &CancellationToken) {
        let lost = || {
            self.left.keep(self.queue.clear());
            self.outbox.interrupted();
        };
        lead.work(ended, async || self.work(ended).await, lost).await;
    }

    async fn work(&self, ended: &CancellationToken) {
        let end = async {
            ended.cancelled().await;
            tokio::time::sleep(FOR_EVENTS).await;
        };
        let run = Run { queue: &self.queue.work, gate: None, end: ended, drains: true };
        let writes = run.work(|| {}, std::future::pending::<()>, async |event| self.write(event).await);
        tokio::select! {
            () = async { tokio::join!(self.left.look(&self.queue), writes); } => {}
            () = end => warn!("Ended before all events were written"),
        }
    }

    async fn write(&self, event: Lease<QueuedEvent>) {
        self.queue.count();
        self.limit.until_ready().await;
        let result = event.watch(self.events.write(&event.work.record, self.clock.now())).await;
        self.queue.tried(event, &result);
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, num::NonZeroU32, sync::Arc, time::Duration};

    use http::{Request, Response};
    use kube::{Client, client::Body};
    use parking_lot::Mutex;
    use prometheus_client::registry::Registry;
    use tenure_service::limit::write_limit;
    use tokio::time::Instant;

    use super::*;
    use crate::{api::ObjectClient, events::record::tests::event, metrics::Metrics};

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
        let many = NonZeroU32::new(10_000).unwrap();
        EventWriter {
            events: Events::new(server(Arc::clone(taken))),
            queue: EventQueue::new(Metrics::register(&mut Registry::default()), EventOutbox::default()),
            limit: write_limit(many, many),
            clock: ServerClock::default(),
            outbox: EventOutbox::default(),
            left: LeftEvents::new(ObjectClient::new(server(Arc::clone(taken)))),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_whose_events_hang_or_are_refused_hold_up_no_other() {
        let (taken, lead, ended) = (Arc::default(), Leadership::always(), CancellationToken::new());
        let writer = writer(&taken);
        let queue = writer.queue.clone();
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
        let queue = writer.queue.clone();
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
