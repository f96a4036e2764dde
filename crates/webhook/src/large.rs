//! Answers reviews that are too large to be read, for `/mutate`, `/guard` and `/owners`.
//!
//! Two things make a review too large: a status that the request contains and the API server never
//! stores, or a stored object of a megabyte in which JSON writes each `<` with six bytes. Without a
//! review as the answer, the call counts as failed: the API server then follows the failure policy
//! of the webhook, not the intent of the review. So each review gets an explicit verdict: denied
//! where a tenant could bypass the webhook, allowed where a denial would block others.

use axum::{
    body::Body,
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use http_body_util::BodyExt;
use tracing::info;

use crate::{
    Metrics,
    admission_review::{self, MAX_BODY_BYTES},
    http::{announced, body_too_large, json, reject},
};

/// The bytes of a body's start that contain the uid: an API server writes the uid right after the
/// kind and the version of the review.
const START_BYTES: usize = 256;

/// What a route answers to reviews that are too large to be read.
#[derive(Clone)]
pub struct Unread {
    pub metrics: Metrics,
    /// The meaning of an admission without a reading, which begins the warning for the user. None:
    /// reviews are refused.
    pub admitted: Option<&'static str>,
    /// True if one more line about such reviews may be logged. The limit goes by the place in the
    /// code, so each route has a closure of its own.
    pub is_logged: fn() -> bool,
}

/// Answers a request whose announced length exceeds [`MAX_BODY_BYTES`]: only the uid is read.
/// Passes all other requests on. Without a readable uid the answer is 413.
pub async fn answer(State(unread): State<Unread>, request: Request, next: Next) -> Response {
    let Unread { metrics, admitted, is_logged } = unread;
    let too_large = announced(request.headers()).filter(|bytes| *bytes > MAX_BODY_BYTES as u64);
    let Some(bytes) = too_large else { return next.run(request).await };
    let start = pass_over(request.into_body(), usize::MAX).await;
    let start = String::from_utf8_lossy(&start);
    let Some(uid) = uid(&start) else {
        return reject(&metrics, body_too_large(MAX_BODY_BYTES));
    };
    metrics.rejected(StatusCode::PAYLOAD_TOO_LARGE.as_u16());
    if is_logged() {
        let is_admitted = admitted.is_some();
        info!(bytes, is_admitted, "Got an object that is too large to be reviewed");
    }
    match admitted {
        Some(meaning) => json(&admission_review::AdmissionResponse::admit_unread(uid, bytes, meaning)),
        None => json(&admission_review::AdmissionResponse::too_large(uid, bytes)),
    }
}

/// Receives and drops a body, up to `most` bytes: a client that can't send its whole body may not
/// read the answer. Returns the first [`START_BYTES`] bytes.
pub async fn pass_over(mut body: Body, mut most: usize) -> Vec<u8> {
    let mut start = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else { continue };
        start.extend(data.iter().take(START_BYTES.saturating_sub(start.len())));
        match most.checked_sub(data.len()) {
            Some(left) => most = left,
            None => break,
        }
    }
    start
}

/// Finds the uid in the start of a review, as an API server writes it. None: no uid, or an empty
/// one.
fn uid(start: &str) -> Option<&str> {
    let (_, uid) = start.split_once(r#""request":{"uid":""#)?;
    let (uid, _) = uid.split_once('"')?;
    (!uid.is_empty()).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uid_is_found_where_an_api_server_writes_it() {
        let start = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705a-2","kind":"#;
        assert_eq!(uid(start), Some("705a-2"));
        for none in ["", "{}", r#"{"request":{"uid":"705a"#, r#"{"request":{"uid":"","#, r#"{"uid":"705a","#]
        {
            assert_eq!(uid(none), None, "{none}");
        }
    }
}
