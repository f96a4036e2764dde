//! The bounds of what requests take: bytes, memory and time.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{self, DefaultBodyLimit, State},
    http::StatusCode,
    middleware::{self, Next},
    response::Response,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::timeout::TimeoutLayer;

use super::announced;
use crate::review::MAX_BODY_BYTES;

/// Bytes of large requests that are read and reviewed at the same time, on all paths together: many large bodies can't
/// fill the memory. Others wait their turn, unread; those of ordinary size never wait.
const LARGE_IN_FLIGHT: usize = 16 * MAX_BODY_BYTES;

/// The size from which a request waits its turn, in bytes: ten times an ordinary review.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;

/// The longest time for a request, its turn and its body included.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The turns of large requests. Clones share them: a process has one memory, however many paths lead into it.
#[derive(Clone, Debug)]
pub struct LargeBodies {
    turns: Arc<Semaphore>,
    largest: u32,
}

impl Default for LargeBodies {
    fn default() -> Self {
        Self::new(LARGE_IN_FLIGHT, u32::try_from(MAX_BODY_BYTES).unwrap_or(u32::MAX))
    }
}

impl LargeBodies {
    /// Turns for so many bytes at the same time. What is larger than `largest` is refused before it is read.
    pub(crate) fn new(in_flight: usize, largest: u32) -> Self {
        Self { turns: Arc::new(Semaphore::new(in_flight)), largest }
    }

    /// Takes the turn of a body of an announced size. An ordinary one needs none. Without a size it may be the largest.
    pub(crate) async fn take(&self, announced: Option<u64>) -> Option<Turn> {
        if announced.is_some_and(|bytes| bytes <= LARGE_BYTES) {
            return None;
        }
        let bytes = announced.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(self.largest);
        // an error would mean that the semaphore was closed, which never happens
        let turn = Arc::clone(&self.turns).acquire_many_owned(bytes.min(self.largest)).await.ok()?;
        Some(Turn(Arc::new(turn)))
    }
}

/// Limits the size of bodies of reviews, the bytes of large ones that are read at the same time, and the time for that.
pub(crate) fn limited(router: Router, large: &LargeBodies) -> Router {
    router
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(large.clone(), take_turns))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, BODY_TIMEOUT))
}

/// The turn of a large request, for work that goes on when the caller leaves.
#[derive(Clone, Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "it is held")] Arc<OwnedSemaphorePermit>);

async fn take_turns(State(large): State<LargeBodies>, mut request: extract::Request, next: Next) -> Response {
    let turn = large.take(announced(request.headers())).await;
    request.extensions_mut().insert(turn.clone());
    let response = next.run(request).await;
    drop(turn);
    response
}
