//! The HTTP side: any body whatever gets an answer, a review or a status that says why not.

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
use tokio::sync::Semaphore;
use tower_http::timeout::TimeoutLayer;
use tracing::{debug, info};

use crate::{
    Metrics, Validator,
    metrics::Verdict,
    review::{Outgoing, Request},
};

/// The largest review that an API server sends holds two objects of 3 MiB.
pub const MAX_BODY_BYTES: usize = 7 * 1024 * 1024;

/// Large requests that are read and reviewed at the same time; others of them wait their turn, unread. So that many
/// large bodies can't fill the memory, and those of ordinary size never wait.
const LARGE_IN_FLIGHT: usize = 32;

/// Ten times an ordinary review.
const LARGE_BYTES: u64 = 64 * 1024;

/// For a client that doesn't send what it announced, and for a turn.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

struct Context {
    validator: Validator,
    metrics: Metrics,
}

/// The webhook's routes.
pub fn router(validator: Validator, metrics: Metrics) -> Router {
    Router::new()
        .route("/validate", post(validate))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::new(Semaphore::new(LARGE_IN_FLIGHT)), take_turns))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, BODY_TIMEOUT))
        .with_state(Arc::new(Context { validator, metrics }))
}

async fn take_turns(State(turns): State<Arc<Semaphore>>, request: extract::Request, next: Next) -> Response {
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_large = announced.is_none_or(|bytes: u64| bytes > LARGE_BYTES);
    // an error would mean that the semaphore was closed, which nobody does
    let _turn = if is_large { turns.acquire_owned().await.ok() } else { None };
    next.run(request).await
}

async fn validate(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let started = Instant::now();
    let Context { validator, metrics } = &*context;
    let reject = |status: StatusCode, message: String| {
        debug!(%status, error = message, "Rejected a request");
        metrics.rejected(status.as_u16());
        (status, message + "\n").into_response()
    };
    if let Err(message) = is_plain_json(&headers) {
        return reject(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return reject(rejection.status(), rejection.body_text()),
    };
    let request = match Request::read(&body) {
        Ok(request) => request,
        Err(malformed) => return reject(StatusCode::BAD_REQUEST, malformed.to_string()),
    };
    let (outgoing, group, verdict) = validator.review(&request);
    if verdict == Verdict::Refused {
        let Request { operation, kind, namespace, name, .. } = &request;
        info!(%operation, %group, kind = %kind.kind, %namespace, %name, "Refused an object");
    }
    metrics.reviewed(group, verdict, started.elapsed().as_secs_f64());
    json(&outgoing)
}

fn is_plain_json(headers: &HeaderMap) -> Result<(), String> {
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

fn json(outgoing: &Outgoing<'_>) -> Response {
    match serde_json::to_vec(outgoing) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
