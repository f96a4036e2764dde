//! The route `POST /guard`. Each body gets an answer, and a request that can't be read is never
//! refused.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    middleware,
    response::{IntoResponse, Response},
    routing::post,
};
use tenure_service::log::of_callers;
use tokio::task::spawn_blocking;
use tracing::error;

use super::{Guard, GuardResponse};
use crate::{
    Metrics,
    http::{LargeBodies, ReceivedBody, answer, json, limited},
    large::{self, Unread},
};

/// The warning for each review if the guard is off.
const OFF: &str = "tenure: the guard is off, and keeps nothing: start tenure-webhook with --guard, or set guard.enabled of its chart";

/// The start of the warning about a review that is too large to be read, and admitted.
const UNREAD: &str = "tenure: the pod isn't guarded";

/// Returns the route for deletions and evictions. Without a guard, the route admits all of them
/// with a warning.
pub fn router(guard: Option<Guard>, metrics: Metrics, bodies: &LargeBodies) -> Router {
    let unread = Unread { metrics: metrics.clone(), admitted: Some(UNREAD), is_logged: || of_callers() };
    let too_large = middleware::from_fn_with_state(unread, large::answer);
    let route = Router::new().route("/guard", post(review).route_layer(too_large));
    limited(route.with_state(Arc::new((guard, metrics))), bodies)
}

/// Answers a review on a thread that may wait for locks, and counts the verdict.
async fn review(
    State(context): State<Arc<(Option<Guard>, Metrics)>>,
    headers: HeaderMap,
    ReceivedBody { body, turn }: ReceivedBody,
) -> Response {
    // the index may be locked for as long as a scheduler is answered
    let reviewed = spawn_blocking(move || {
        let _turn = turn;
        let (guard, metrics) = &*context;
        answer(metrics, &headers, &body, |request, started| {
            let GuardResponse { response, operation, reason } = match guard {
                Some(guard) => guard.review(request),
                None => GuardResponse::admitted(request, "other", "off", OFF.to_owned()),
            };
            metrics.guarded(operation, reason, started.elapsed().as_secs_f64());
            json(&response)
        })
    });
    reviewed.await.unwrap_or_else(|error| {
        error!(%error, "Failed to answer a review");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
}
