//! `POST /convert`: converts Queues from one version to another.
//!
//! The API server sends all objects of a list in one request. All of them are converted, or none.
//! The conversion itself is in `tenure_types::runai::conversion`.

mod bounds;
mod conversion_review;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use tenure_service::{
    callers::Peer,
    log::{cut, of_callers},
};
use tokio::task::spawn_blocking;
use tower_http::timeout::TimeoutLayer;
use tracing::{error, warn};

use self::conversion_review::{ConversionResult, answer};
use crate::{
    Metrics,
    http::{HttpRefusal, LARGE_BYTES, LargeBodies, ReceivedBody, RequestTurn, is_plain_json, reject},
};

/// The largest conversion review that is read, in bytes. An API server sends all objects of a list
/// in one review: 10,000 queues of 2 KB are 20 MB. A review is held twice, as request and as
/// response, so a pod needs memory for twice this size.
pub const MAX_CONVERSION_BYTES: u32 = 128 * 1024 * 1024;

/// The bytes of large reviews in memory at the same time, beside one review of the largest size.
const IN_FLIGHT: usize = 32 * 1024 * 1024;

/// The time limit of a review: its turn, its body and its conversion. An API server would wait
/// longer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the route for conversion. Large reviews take turns: there is room for one of the
/// largest, and for several of an ordinary list.
pub(crate) fn router(metrics: Metrics) -> Router {
    let turns = LargeBodies::new(IN_FLIGHT, MAX_CONVERSION_BYTES as usize);
    Router::new()
        .route("/convert", post(convert))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, TIMEOUT))
        .with_state(Arc::new((metrics, turns)))
}

/// Answers a conversion review, or rejects a body that isn't one.
async fn convert(State(context): State<Arc<(Metrics, LargeBodies)>>, request: Request) -> Response {
    let (metrics, turns) = &*context;
    converted(metrics, turns, request).await.unwrap_or_else(|refusal| reject(metrics, refusal))
}

/// Reads and converts a review, a large one on a thread of its own, and counts the result.
async fn converted(
    metrics: &Metrics,
    turns: &LargeBodies,
    request: Request,
) -> Result<Response, HttpRefusal> {
    is_plain_json(request.headers())?;
    let peer = Peer::of(request.extensions());
    let ReceivedBody { body, turn } = turns.read(request.into_body(), peer).await;
    let body = body?;
    let (started, is_large) = (Instant::now(), body.len() as u64 > LARGE_BYTES);
    // the turn moves with the body, which is converted to the end even if the client is gone
    let converted = move || (answer(&body), turn);
    let converted = if is_large { spawn_blocking(converted).await } else { Ok(converted()) };
    let (result, turn) = match converted {
        Ok(converted) => converted,
        Err(error) => {
            error!(%error, "Failed to convert");
            return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        }
    };
    let fault = |fault| (StatusCode::BAD_REQUEST, fault);
    let ConversionResult { bytes, version, objects, failure } = result.map_err(fault)?;
    metrics.converted(version, failure.is_none(), objects, started.elapsed().as_secs_f64());
    if let Some(error) = failure.as_deref().filter(|_| of_callers()) {
        warn!(%version, objects, error = cut(error), "Failed to convert queues");
    }
    let body = Bytes::from_owner(AnswerBytes { bytes, _turn: turn });
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// The bytes of an answer. Their turn ends when they have been sent.
struct AnswerBytes {
    bytes: Vec<u8>,
    _turn: RequestTurn,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
