//! The route `POST /scheduler/preempt`. Each request gets an answer: the nodes and victims that
//! remain, or a status with a message that says why there are none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use http_body_util::BodyExt;
use tenure_service::log::of_callers;
use tokio::task::spawn_blocking;
use tower_http::timeout::TimeoutLayer;
use tracing::{error, warn};

use super::{
    Extender,
    caller::{Caller, ExtenderCall},
};
use crate::{
    Metrics,
    http::{HttpRefusal, LARGE_BYTES, announced, is_plain_json, reject},
};

/// The largest request that is read, in bytes: the uids of all
/// [victims](tenure_types::extender::MOST_VICTIMS) that there may be, or whole pods of 20 KB, ten
/// of them on each of 150 nodes.
pub const MAX_PREEMPTION_BYTES: usize = 32 * 1024 * 1024;

/// The time limit for a turn, a body, and an answer. A scheduler waits for five seconds by default.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The message if the extender is off.
const OFF: &str = "the scheduler extender is off: start tenure-webhook with --scheduler-extender, or set schedulerExtender.enabled of its chart";

/// Returns the route for schedulers. Without an extender, the route answers with 404 and a message.
pub fn router(extender: Option<Extender>, metrics: Metrics) -> Router {
    let Some(extender) = extender else {
        let off = async move || {
            // an administrator has configured a scheduler to ask, and needs to know
            if of_callers() {
                warn!("A scheduler asks, but {OFF}");
            }
            reject(&metrics, (StatusCode::NOT_FOUND, OFF.into()))
        };
        return Router::new().route("/scheduler/preempt", post(off));
    };
    Router::new()
        .route("/scheduler/preempt", post(preempt))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, TIMEOUT))
        .with_state(Arc::new(extender))
}

/// Answers a request of a scheduler.
async fn preempt(State(extender): State<Arc<Extender>>, request: Request) -> Response {
    asked(&extender, request).await.unwrap_or_else(|refusal| reject(&extender.metrics, refusal))
}

/// Reads a request in its turn, and answers it. Errors: 415 for another type of body, 503 until all
/// watches are ready, 413 for a body that is too large, and 400 for one that can't be read.
async fn asked(extender: &Arc<Extender>, request: Request) -> Result<Response, HttpRefusal> {
    is_plain_json(request.headers())?;
    if let Some(awaited) = extender.sight.readiness.awaited() {
        let message = format!("not ready to answer a scheduler: waiting for {awaited}");
        return Err((StatusCode::SERVICE_UNAVAILABLE, message));
    }
    let length = announced(request.headers());
    let is_large = length.is_none_or(|bytes| bytes > LARGE_BYTES);
    let turns = if is_large { &extender.large } else { &extender.small };
    // an error would mean that the semaphore was closed, which never happens
    let turn = Arc::clone(turns).acquire_owned().await.ok();
    let body = read(request.into_body(), length).await?;
    let started = Instant::now();
    let call = ExtenderCall { extender: Extender::clone(extender), caller: Caller::default() };
    let (asked, caller) = (Arc::clone(extender), call.caller.clone());
    let answered = spawn_blocking(move || {
        // the work goes on if the caller leaves, and keeps its turn
        let _turn = turn;
        asked.answer(&body, &caller)
    });
    let answered = answered.await;
    call.answered();
    match answered {
        Ok(answered) => {
            let (answer, counts) = answered.map_err(|fault| (StatusCode::BAD_REQUEST, fault))?;
            extender.metrics.preemption_answered(&counts, started.elapsed().as_secs_f64());
            Ok(([(CONTENT_TYPE, "application/json")], answer).into_response())
        }
        Err(error) => {
            error!(%error, "Failed to answer a scheduler");
            Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
    }
}

/// Reads a body into one buffer as it arrives: to collect its parts first would take twice the
/// memory and more time. `length` is the announced length in bytes.
async fn read(mut body: Body, length: Option<u64>) -> Result<Vec<u8>, HttpRefusal> {
    let too_large = || {
        let message = format!(
            "the body is larger than {MAX_PREEMPTION_BYTES} bytes: set nodeCacheCapable: true for this extender in the KubeSchedulerConfiguration, and it is a hundredth of that"
        );
        (StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let length = length.map_or(Ok(0), |length| usize::try_from(length).map_err(|_| too_large()))?;
    if length > MAX_PREEMPTION_BYTES {
        return Err(too_large());
    }
    let mut whole = Vec::with_capacity(length);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            (StatusCode::BAD_REQUEST, format!("the body can't be read to its end: {error}"))
        })?;
        let Some(data) = frame.data_ref() else { continue };
        if whole.len().saturating_add(data.len()) > MAX_PREEMPTION_BYTES {
            return Err(too_large());
        }
        whole.extend_from_slice(data);
    }
    Ok(whole)
}
