//! `POST /convert`: Queues of one version as Queues of another, all those of a list in one request.

mod bounds;
mod review;

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
use tenure_service::callers::Peer;
use tokio::task::spawn_blocking;
use tower_http::timeout::TimeoutLayer;
use tracing::{error, warn};

use self::review::{ConversionResult, answer};
use crate::{
    Metrics,
    http::{LARGE_BYTES, LargeBodies, Refusal, Turn, Whole, is_plain_json, reject},
};

/// The largest conversion review that is read. An API server sends all objects of a list in one: 10,000 queues of 2 KB
/// are 20 MB. A review is held twice, as question and answer, and so twice this must fit a pod's memory.
pub const MAX_CONVERSION_BYTES: u32 = 128 * 1024 * 1024;

/// Bytes of large reviews that are held at the same time, beside one of the largest.
const IN_FLIGHT: usize = 32 * 1024 * 1024;

/// The time limit for a large review's turn, its body, and its conversion. An API server would wait for longer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The webhook's route for conversion. Large reviews take turns: one of the largest, and several of an ordinary list.
pub(crate) fn router(metrics: Metrics) -> Router {
    let turns = LargeBodies::new(IN_FLIGHT, MAX_CONVERSION_BYTES as usize);
    Router::new()
        .route("/convert", post(convert))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, TIMEOUT))
        .with_state(Arc::new((metrics, turns)))
}

async fn convert(State(context): State<Arc<(Metrics, LargeBodies)>>, request: Request) -> Response {
    let (metrics, turns) = &*context;
    converted(metrics, turns, request).await.unwrap_or_else(|refusal| reject(metrics, refusal))
}

async fn converted(metrics: &Metrics, turns: &LargeBodies, request: Request) -> Result<Response, Refusal> {
    is_plain_json(request.headers())?;
    let peer = Peer::of(request.extensions());
    let Whole { body, turn } = turns.read(request.into_body(), peer).await;
    let body = body?;
    let (started, is_large) = (Instant::now(), body.len() as u64 > LARGE_BYTES);
    // the turn goes with the body, which is converted to the end even if its client is gone
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
    if let Some(error) = failure {
        warn!(%version, objects, error, "Failed to convert queues");
    }
    let body = Bytes::from_owner(Held { bytes, _turn: turn });
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// An answer that gives up its turn when it has been sent.
struct Held {
    bytes: Vec<u8>,
    _turn: Turn,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
