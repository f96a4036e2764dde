//! The routes `/validate` and `/mutate`, which the API server calls, joined with `/convert`.
//!
//! Each body gets an answer: a review, or a status with a message that says why there is no review.

mod envelope;
mod gate;

use std::{sync::Arc, time::Instant};

use axum::{Router, extract::State, http::HeaderMap, middleware, response::Response, routing::post};
use jiff::Timestamp;
use tenure_service::log::{cut, of_callers};
use tracing::info;

use crate::{
    Metrics, Mutator, Validator,
    admission_review::Request,
    convert,
    large::{self, Unread},
    metrics::ReviewResult,
};

pub(crate) use envelope::{
    CONVERSION, LONGEST_NAME, announced, answer, is_plain_json, json, read, reject, shown,
};
pub use gate::LargeBodies;
pub(crate) use gate::{HttpRefusal, LARGE_BYTES, ReceivedBody, RequestTurn, body_too_large, limited};

/// Returns the routes `/validate`, `/mutate` and `/convert`. `large` bounds the bodies of the first
/// two. Conversions have bounds of their own.
pub fn router(validator: Validator, mutator: Mutator, metrics: Metrics, large: &LargeBodies) -> Router {
    let conversion = convert::router(metrics.clone());
    let unread = Unread { metrics: metrics.clone(), admitted: None, is_logged: || of_callers() };
    let too_large = middleware::from_fn_with_state(unread, large::answer);
    let reviews = Router::new()
        .route("/validate", post(validate))
        .route("/mutate", post(mutate).route_layer(too_large))
        .with_state(Arc::new((validator, mutator, metrics)));
    limited(reviews, large).merge(conversion)
}

/// Answers a review of `/validate`, and logs a refusal.
async fn validate(
    State(context): State<Arc<(Validator, Mutator, Metrics)>>,
    headers: HeaderMap,
    ReceivedBody { body, turn: _turn }: ReceivedBody,
) -> Response {
    let started = Instant::now();
    let (validator, _, metrics) = &*context;
    let request = match read(&headers, &body) {
        Ok(request) => request,
        Err(refusal) => return reject(metrics, refusal),
    };
    let (response, group) = validator.review(&request).await;
    let verdict = response.result();
    if verdict == ReviewResult::Refused && of_callers() {
        let Request { operation, kind, namespace, name, user_info, .. } = &request;
        let texts = [operation, &kind.kind, namespace, name, &user_info.username];
        let [operation, kind, namespace, name, user] = texts.map(|text| cut(text));
        let reason = cut(response.reason());
        info!(%operation, %group, %kind, %namespace, %name, %user, reason, "Refused an object");
    }
    metrics.reviewed(group, verdict, started.elapsed().as_secs_f64());
    json(&response)
}

/// Answers a review of `/mutate`, by the local clock.
async fn mutate(
    State(context): State<Arc<(Validator, Mutator, Metrics)>>,
    headers: HeaderMap,
    ReceivedBody { body, turn: _turn }: ReceivedBody,
) -> Response {
    let (_, mutator, metrics) = &*context;
    answer(metrics, &headers, &body, |request, started| {
        let (response, labels) = mutator.review(request, Timestamp::now());
        metrics.mutated(labels, started.elapsed().as_secs_f64());
        json(&response)
    })
}
