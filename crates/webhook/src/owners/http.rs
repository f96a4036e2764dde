//! The route `POST /owners`, which the API server calls for creations and updates of owners. Each
//! body gets an answer.

use std::{sync::Arc, time::Instant};

use axum::{Router, extract::State, http::HeaderMap, middleware, response::Response, routing::post};
use tenure_service::log::{cut, of_callers};
use tracing::info;

use super::OwnerAnswers;
use crate::{
    Metrics,
    admission_review::{self, Request},
    http::{LargeBodies, ReceivedBody, json, limited, read, reject},
    large::{self, Unread},
    metrics::ReviewResult,
};

/// The warning for each owner if the answers are off.
const OFF: &str = "tenure: the creation of owners isn't answered: start tenure-webhook with --answer-owners, or set webhook.owners.enabled of its chart";

/// The start of the warning about an owner that is too large to be read, and admitted. A refusal
/// would keep the keeper from pausing the owner, and the ceiling holds in any case.
const UNREAD: &str = "tenure: not compared with the ceiling, which holds all the same";

/// Returns the route for owners. Without `answers`, the route admits all owners with a warning.
pub fn router(answers: Option<OwnerAnswers>, metrics: Metrics, bodies: &LargeBodies) -> Router {
    let unread = Unread { metrics: metrics.clone(), admitted: Some(UNREAD), is_logged: || of_callers() };
    let too_large = middleware::from_fn_with_state(unread, large::answer);
    let route = Router::new().route("/owners", post(review).route_layer(too_large));
    limited(route.with_state(Arc::new((answers, metrics))), bodies)
}

/// Answers a review, logs a refusal and counts the result.
async fn review(
    State(context): State<Arc<(Option<OwnerAnswers>, Metrics)>>,
    headers: HeaderMap,
    ReceivedBody { body, turn: _turn }: ReceivedBody,
) -> Response {
    let started = Instant::now();
    let (answers, metrics) = &*context;
    let request = match read(&headers, &body) {
        Ok(request) => request,
        Err(refusal) => return reject(metrics, refusal),
    };
    let response = match answers {
        Some(answers) => answers.review(&request).await,
        None => admission_review::AdmissionResponse::admit(&request, vec![OFF.to_owned()]),
    };
    let result = response.result();
    if result == ReviewResult::Refused && of_callers() {
        let Request { operation, kind, namespace, name, user_info, dry_run, .. } = &request;
        let texts = [operation, &kind.group, &kind.kind, namespace, name, &user_info.username];
        let [operation, group, kind, namespace, name, user] = texts.map(|text| cut(text));
        let reason = cut(response.reason());
        info!(%operation, %group, %kind, %namespace, %name, %user, dry_run, reason, "Refused an owner");
    }
    metrics.owner_answered(result, started.elapsed().as_secs_f64());
    json(&response)
}
