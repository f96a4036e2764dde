//! The bounds of what requests take: bytes, memory and time.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::StatusCode,
};
use http_body_util::BodyExt;
use tokio::{
    select,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use tower_http::timeout::TimeoutLayer;

use crate::review::MAX_BODY_BYTES;

/// Bytes of large bodies of reviews that are held at the same time, on all paths together.
const LARGE_IN_FLIGHT: usize = 4 * MAX_BODY_BYTES;

/// The size from which a body is large, in bytes: ten times an ordinary review.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;

/// Bytes of all other bodies, and of the beginnings of large ones.
const SMALL_IN_FLIGHT: usize = 16 * 1024 * 1024;

/// The longest time for a request, its turn and its body included.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The least bytes a second of a body after its first [`BODY_TIMEOUT`].
const LEAST_RATE: u64 = 1024 * 1024;

/// The bytes of bodies that are in memory. Clones share them: a process has one memory, however many paths lead into it. A body
/// takes them as they come, and not as its sender announces them: one that doesn't come is in the way of none.
#[derive(Clone, Debug)]
pub struct LargeBodies {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// The turn of a body that goes on although all bytes are taken: otherwise two halves could wait for each other.
    last: Arc<Semaphore>,
    largest: usize,
}

/// The turn of a request: the bytes that it takes until this is dropped, also where the work goes on without the caller.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    bytes: Vec<OwnedSemaphorePermit>,
    is_last: bool,
}

/// The reason why a body can't be read, and the status to answer with.
pub(crate) type Refusal = (StatusCode, String);

/// A body that was read to its end, and its turn.
pub(crate) struct Whole {
    pub body: Result<Bytes, Refusal>,
    pub turn: Turn,
}

impl Default for LargeBodies {
    fn default() -> Self {
        Self::new(LARGE_IN_FLIGHT, MAX_BODY_BYTES)
    }
}

impl LargeBodies {
    /// Turns for so many bytes of large bodies at the same time, and one more body. A body above `largest` is refused.
    pub(crate) fn new(in_flight: usize, largest: usize) -> Self {
        let [small, large, last] =
            [SMALL_IN_FLIGHT, in_flight, 1].map(|bytes| Arc::new(Semaphore::new(bytes)));
        Self { small, large, last, largest }
    }

    /// Reads a body.
    pub(crate) async fn read(&self, body: Body) -> Whole {
        let mut turn = Turn::default();
        let body = self.receive(body, &mut turn).await;
        Whole { body, turn }
    }

    async fn receive(&self, mut body: Body, turn: &mut Turn) -> Result<Bytes, Refusal> {
        let (mut begun, mut whole) = (Instant::now(), Vec::new());
        loop {
            let most = BODY_TIMEOUT + Duration::from_secs(whole.len() as u64 / LEAST_RATE);
            let frame = timeout_at(begun + most, body.frame()).await;
            let frame =
                frame.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the body comes too slowly".to_owned()))?;
            let Some(frame) = frame else { return Ok(whole.into()) };
            let frame = frame.map_err(|error| {
                (StatusCode::BAD_REQUEST, format!("Failed to buffer the request body: {error}"))
            })?;
            let Some(data) = frame.data_ref() else { continue };
            let length = whole.len().saturating_add(data.len());
            if length > self.largest {
                return Err((StatusCode::PAYLOAD_TOO_LARGE, "length limit exceeded".to_owned()));
            }
            let waits = Instant::now();
            self.take(turn, length, data.len()).await;
            // the sender isn't slow meanwhile
            begun += waits.elapsed();
            whole.extend_from_slice(data);
        }
    }

    /// Takes the next bytes of a body that has so many by then.
    async fn take(&self, turn: &mut Turn, length: usize, more: usize) {
        if turn.is_last {
            return;
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        // an error would mean that a semaphore was closed, which never happens
        let taken = if length as u64 <= LARGE_BYTES {
            Arc::clone(&self.small).acquire_many_owned(more).await
        } else {
            select! {
                biased;
                taken = Arc::clone(&self.large).acquire_many_owned(more) => taken,
                last = Arc::clone(&self.last).acquire_owned() => {
                    turn.is_last = true;
                    last
                }
            }
        };
        turn.bytes.extend(taken.ok());
    }
}

impl<S: Sync> FromRequest<S> for Whole {
    type Rejection = Infallible;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, Infallible> {
        let bodies: LargeBodies = request.extensions_mut().remove().unwrap_or_default();
        Ok(bodies.read(request.into_body()).await)
    }
}

/// Limits the size of bodies of reviews, the bytes of them that are held at the same time, and the time for that.
pub(crate) fn limited(router: Router, bodies: &LargeBodies) -> Router {
    router
        .layer(Extension(bodies.clone()))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, BODY_TIMEOUT))
}
