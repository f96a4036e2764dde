//! The HTTP side: each body gets an answer.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::HeaderMap,
    response::Response,
    routing::post,
};
use tracing::info;

use super::OwnerAnswers;
use crate::{
    Metrics,
    http::{LargeBodies, Limited, json, read, reject},
    metrics::ReviewResult,
    review::{Outgoing, Request},
};

const OFF: &str = "tenure: the creation of owners isn't answered: start tenure-webhook with --answer-owners, or set webhook.owners.enabled of its chart";

struct Context {
    answers: Option<OwnerAnswers>,
    metrics: Metrics,
}

/// The webhook's route for owners; without answers, one that admits all of them and says so.
pub fn router(answers: Option<OwnerAnswers>, metrics: Metrics, bodies: &LargeBodies) -> Router {
    let context = Arc::new(Context { answers, metrics });
    Router::new().route("/owners", post(review)).with_state(context).limited(bodies)
}

async fn review(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let started = Instant::now();
    let Context { answers, metrics } = &*context;
    let request = match read(&headers, &body) {
        Ok(request) => request,
        Err((status, message)) => return reject(metrics, status, message),
    };
    let (outgoing, result) = match answers {
        Some(answers) => answers.review(&request).await,
        None => (Outgoing::admit(&request, vec![OFF.to_owned()]), ReviewResult::Warned),
    };
    if result == ReviewResult::Refused {
        let Request { operation, kind, namespace, name, user_info, dry_run, .. } = &request;
        let (group, kind, user, reason) = (&kind.group, &kind.kind, &user_info.username, outgoing.reason());
        info!(%operation, %group, %kind, %namespace, %name, %user, dry_run, reason, "Refused an owner");
    }
    metrics.owner_answered(result, started.elapsed().as_secs_f64());
    json(&outgoing)
}
