//! Reviews that are too large to be read.
//!
//! A status that is sent along and never stored can be as large as that, and so can a stored object of a megabyte, which
//! JSON writes with six bytes for each `<`. An answer that is no review is a failed call to the API server: it lets the
//! object pass or not, as the webhook's failure policy says, and not as the review is meant. So each of these reviews
//! gets an answer: no where a tenant could bypass the webhook, and yes where a refusal would be in the way of others.

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
    http::{announced, json, reject},
    review::{self, MAX_BODY_BYTES},
};

/// The part of a body in which the uid is: an API server writes it behind the review's kind and version.
const START_BYTES: usize = 256;

/// The metrics, and the meaning of an admission without a reading, for the user who is warned. None: reviews are refused.
pub type Unread = (Metrics, Option<&'static str>);

/// Answers requests whose announced length is too large, of which only the uid is read; passes all others on.
pub async fn answer(State((metrics, admitted)): State<Unread>, request: Request, next: Next) -> Response {
    let too_large = announced(request.headers()).filter(|bytes| *bytes > MAX_BODY_BYTES as u64);
    let Some(bytes) = too_large else { return next.run(request).await };
    let start = pass_over(request.into_body(), usize::MAX).await;
    let start = String::from_utf8_lossy(&start);
    let Some(uid) = uid(&start) else {
        return reject(&metrics, (StatusCode::PAYLOAD_TOO_LARGE, "length limit exceeded".into()));
    };
    metrics.rejected(StatusCode::PAYLOAD_TOO_LARGE.as_u16());
    if let Some(meaning) = admitted {
        info!(bytes, "Admitted an object that is too large to be reviewed");
        json(&review::Response::admit_unread(uid, bytes, meaning))
    } else {
        info!(bytes, "Refused an object that is too large to be reviewed");
        json(&review::Response::too_large(uid, bytes))
    }
}

/// Receives a body, to these bytes at most: a client that can't send all of it may not read the answer. Returns its start.
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
