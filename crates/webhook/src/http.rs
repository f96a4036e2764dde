//! The HTTP side: each body gets an answer, a review or a status that says why not.

mod envelope;
mod gate;

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::HeaderMap,
    middleware,
    response::Response,
    routing::post,
};
use jiff::Timestamp;
use tracing::info;

use crate::{Metrics, Mutator, Validator, convert, large, metrics::ReviewResult, review::Request};

pub(crate) use envelope::{announced, answer, is_plain_json, json, read, reject};
pub use gate::LargeBodies;
pub(crate) use gate::{LARGE_BYTES, Limited, Turn};

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
