//! The last check of the lead on a write's way: within the client, right before the connection
//! takes the write. Called by the layer of `client`.

use std::{future::poll_fn, pin::pin, task::Poll};

use tower::BoxError;

use super::Leadership;
use crate::call::ApiError;

impl Leadership {
    /// Returns the answer to a write, or [`ApiError::NotLeading`]. Each step of the write checks
    /// the lead again, because a process may be stopped while a connection for the write is made.
    /// What remains is the moment in which the connection hands the write to the operating system.
    pub(crate) async fn write<T>(
        &self,
        answer: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, BoxError> {
        // hyper sends nothing for a call that was dropped before its connection took it
        let mut answer = pin!(answer);
        poll_fn(|context| {
            let refused = || Poll::Ready(Err(ApiError::NotLeading.into()));
            if self.holds() { answer.as_mut().poll(context) } else { refused() }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures::FutureExt;
    use http::{Method, Request, Response};
    use kube::{
        Client,
        client::{Body, ClientBuilder},
    };
    use parking_lot::Mutex;
    use tokio::{
        sync::Notify,
        time::{Instant, advance},
    };

    use super::*;
    use crate::{
        call::{ApiError, call},
        client::api_layer,
        clock::ServerClock,
    };

    const TERM: Duration = Duration::from_secs(10);

    /// An API server that is connected to when `connected` says so, and the methods of the requests that reached it.
    fn client(lead: &Leadership, connected: &Arc<Notify>) -> (Client, Arc<Mutex<Vec<Method>>>) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (of_server, connected) = (Arc::clone(&taken), Arc::clone(connected));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (taken, connected) = (Arc::clone(&of_server), Arc::clone(&connected));
            async move {
                connected.notified().await;
                taken.lock().push(request.method().clone());
                Ok::<_, BoxError>(Response::new(Body::from(b"{}".to_vec())))
            }
        });
        let layer = api_layer(lead.clone(), ServerClock::default());
        (ClientBuilder::new(service, "default").with_layer(&layer).build(), taken)
    }

    async fn send(client: &Client, method: Method) -> Result<(), ApiError> {
        let request = Request::builder().method(method).uri("/api").body(Vec::new()).unwrap();
        call(client.request::<serde_json::Value>(request)).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_leader_writes_and_everyone_reads() {
        let (lead, connected) = (Leadership::not_yet(), Arc::new(Notify::new()));
        let (client, taken) = client(&lead, &connected);
        let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        for write in &writes {
            connected.notify_one();
            let refused = send(&client, write.clone()).await;
            assert!(matches!(refused, Err(ApiError::NotLeading)), "{write}: {refused:?}");
        }
        assert!(taken.lock().is_empty());
        send(&client, Method::GET).await.unwrap();
        assert_eq!(std::mem::take(&mut *taken.lock()), [Method::GET]);

        let now = Instant::now();
        lead.renew(now, now + TERM, false);
        for write in &writes {
            connected.notify_one();
            send(&client, write.clone()).await.unwrap();
        }
        assert_eq!(*taken.lock(), writes);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_for_its_connection_isnt_sent_when_the_term_is_over() {
        let (lead, connected) = (Leadership::not_yet(), Arc::new(Notify::new()));
        let (client, taken) = client(&lead, &connected);
        let now = Instant::now();
        lead.renew(now, now + TERM, false);
        let write = send(&client, Method::PATCH);
        tokio::pin!(write);
        assert!((&mut write).now_or_never().is_none());
        tokio::task::yield_now().await;
        assert!((&mut write).now_or_never().is_none());
        advance(TERM).await;
        connected.notify_one();
        let refused = write.await;
        assert!(matches!(refused, Err(ApiError::NotLeading)), "{refused:?}");
        assert!(taken.lock().is_empty());
    }
}
