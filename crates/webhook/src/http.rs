//! The HTTP side: each body gets an answer, a review or a status that says why not.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::{self, DefaultBodyLimit, State, rejection::BytesRejection},
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::timeout::TimeoutLayer;
use tracing::{debug, info};

use crate::{
    Metrics, Mutator, Validator, convert, large,
    metrics::ReviewResult,
    review::{Outgoing, Request},
};

/// The largest review of objects that can be stored holds two of 3 MiB.
pub const MAX_BODY_BYTES: usize = 7 * 1024 * 1024;

/// Bytes of large requests that are read and reviewed at the same time, on all paths together; others of them wait their
/// turn, unread. So that many large bodies can't fill the memory, and those of ordinary size never wait.
const LARGE_IN_FLIGHT: usize = 16 * MAX_BODY_BYTES;

/// The size from which a request waits its turn, in bytes: ten times an ordinary review.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;

/// The longest time for a request, its turn and its body included.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

struct Context {
    validator: Validator,
    mutator: Mutator,
    metrics: Metrics,
}

/// The webhook's routes.
pub fn router(validator: Validator, mutator: Mutator, metrics: Metrics, large: &LargeBodies) -> Router {
    let conversion = convert::router(metrics.clone());
    let too_large = middleware::from_fn_with_state(metrics.clone(), large::refuse);
    Router::new()
        .route("/validate", post(validate))
        .route("/mutate", post(mutate).route_layer(too_large))
        .with_state(Arc::new(Context { validator, mutator, metrics }))
        .limited(large)
        .merge(conversion)
}

/// The turns of large requests. Clones share them: a process has one memory, however many paths lead into it.
#[derive(Clone, Debug)]
pub struct LargeBodies(Arc<Semaphore>);

impl Default for LargeBodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_IN_FLIGHT)))
    }
}

impl LargeBodies {
    /// Takes the turn of a body of an announced size. One of ordinary size needs none, and one whose size isn't announced
    /// may be the largest.
    async fn take(self, announced: Option<u64>) -> Option<Turn> {
        if announced.is_some_and(|bytes| bytes <= LARGE_BYTES) {
            return None;
        }
        let bytes = announced.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(MAX_BODY_BYTES);
        // what is larger is refused before it is read
        let bytes = u32::try_from(bytes.min(MAX_BODY_BYTES)).unwrap_or(u32::MAX);
        // an error would mean that the semaphore was closed, which never happens
        let turn = self.0.acquire_many_owned(bytes).await.ok()?;
        Some(Turn(Arc::new(turn)))
    }
}

/// The bounds of what reviews may take.
pub(crate) trait Limited {
    /// With a limit to how large a body is, how many bytes of large ones are read at the same time, and how long that
    /// takes.
    fn limited(self, large: &LargeBodies) -> Self;
}

impl Limited for Router {
    fn limited(self, large: &LargeBodies) -> Self {
        self.layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .layer(middleware::from_fn_with_state(large.clone(), take_turns))
            .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, BODY_TIMEOUT))
    }
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

/// The length of a body in bytes, if its sender announces it.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

async fn validate(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let started = Instant::now();
    let Context { validator, mutator: _, metrics } = &*context;
    let request = match read(&headers, &body) {
        Ok(request) => request,
        Err((status, message)) => return reject(metrics, status, message),
    };
    let (outgoing, group, verdict) = validator.review(&request).await;
    if verdict == ReviewResult::Refused {
        let Request { operation, kind, namespace, name, user_info, .. } = &request;
        let (user, reason) = (&user_info.username, outgoing.reason());
        info!(%operation, %group, kind = %kind.kind, %namespace, %name, %user, reason, "Refused an object");
    }
    metrics.reviewed(group, verdict, started.elapsed().as_secs_f64());
    json(&outgoing)
}

async fn mutate(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    answer(&context.metrics, &headers, &body, |request, started| {
        let (outgoing, labels) = context.mutator.review(request, Timestamp::now());
        context.metrics.mutated(&labels, started.elapsed().as_secs_f64());
        json(&outgoing)
    })
}

/// Answers a review, or says why it is none.
pub(crate) fn answer(
    metrics: &Metrics,
    headers: &HeaderMap,
    body: &Result<Bytes, BytesRejection>,
    review: impl FnOnce(&Request<'_>, Instant) -> Response,
) -> Response {
    let started = Instant::now();
    match read(headers, body) {
        Ok(request) => review(&request, started),
        Err((status, message)) => reject(metrics, status, message),
    }
}

/// Reads a review. An error says why it is none, and with which status to answer that.
pub(crate) fn read<'b>(
    headers: &HeaderMap,
    body: &'b Result<Bytes, BytesRejection>,
) -> Result<Request<'b>, (StatusCode, String)> {
    is_plain_json(headers).map_err(|message| (StatusCode::UNSUPPORTED_MEDIA_TYPE, message))?;
    let body = body.as_ref().map_err(|rejection| (rejection.status(), rejection.body_text()))?;
    Request::read(body).map_err(|malformed| (StatusCode::BAD_REQUEST, malformed.to_string()))
}

/// Answers what is no review.
pub(crate) fn reject(metrics: &Metrics, status: StatusCode, message: String) -> Response {
    debug!(%status, error = message, "Rejected a request");
    metrics.rejected(status.as_u16());
    (status, message + "\n").into_response()
}

pub(crate) fn is_plain_json(headers: &HeaderMap) -> Result<(), String> {
    let of =
        |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let kind = of(CONTENT_TYPE).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(format!("Content-Type is {kind:?}, but must be application/json"));
    }
    match of(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            Err(format!("Content-Encoding {encoding:?} is not supported"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn json(outgoing: &Outgoing<'_>) -> Response {
    match serde_json::to_vec(outgoing) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
