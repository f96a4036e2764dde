//! Requests without a socket.

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, Response, StatusCode, header::CONTENT_TYPE},
};
use http_body_util::BodyExt;
use tower::ServiceExt;

pub fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header(CONTENT_TYPE, "application/json").body(body.into()).unwrap()
}

/// The webhook's answer, whole.
pub async fn answer(webhook: Router, request: Request<Body>) -> (StatusCode, Option<String>, Bytes) {
    let response: Response<Body> = webhook.oneshot(request).await.unwrap();
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned());
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind, body)
}
