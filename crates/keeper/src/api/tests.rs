//! The creation of a Command that exists, or that a quota delays.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::convert::Infallible;

use http::Response;
use kube::client::Body;

use super::*;

/// An API server that answers each request with status 409 and this reason.
fn server(reason: &'static str) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        let status = json!({"status": "Failure", "code": 409, "reason": reason, "message": "no"});
        let response = Response::builder().status(409).header("content-type", "application/json");
        Ok::<_, Infallible>(response.body(Body::from(status.to_string().into_bytes())).unwrap())
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_command_that_conflicts_with_the_count_of_a_quota_was_not_created() {
    let sent = async |reason| ObjectClient::new(server(reason)).command("ns", &json!({})).await;
    assert!(sent("AlreadyExists").await.is_ok());
    assert!(matches!(sent("Conflict").await, Err(ApiError::Stale(_))));
}
