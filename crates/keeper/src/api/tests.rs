//! The creation of a Command that exists, or that a quota delays.

use std::future::ready;

use super::*;
use crate::testing::client;

/// An API server that answers each request with status 409 and this reason.
fn server(reason: &'static str) -> Client {
    client(move |_, _| {
        ready((409, json!({"status": "Failure", "code": 409, "reason": reason, "message": "no"})))
    })
}

#[tokio::test]
async fn a_command_that_conflicts_with_the_count_of_a_quota_was_not_created() {
    let sent = async |reason| ObjectClient::new(server(reason)).command("ns", &json!({})).await;
    assert!(sent("AlreadyExists").await.is_ok());
    assert!(matches!(sent("Conflict").await, Err(ApiError::Stale(_))));
}
