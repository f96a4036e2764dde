//! Reviews that are too large to be read.
//!
//! No object that can be stored makes one. But a status that is sent along and never stored can be as large as that.
//! Where the answer is no review, the API server lets the object pass as it is: a tenant could bypass the webhook. So
//! these reviews are refused.

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
    http::{MAX_BODY_BYTES, announced, json, reject},
    review::Outgoing,
};

/// The part of a body in which the uid is: an API server writes it behind the review's kind and version.
const START_BYTES: usize = 256;

/// Refuses requests whose announced length is too large; passes all others on.
pub async fn refuse(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    match announced(request.headers()) {
        Some(bytes) if bytes > MAX_BODY_BYTES as u64 => refuse_unread(&metrics, request, bytes).await,
        Some(_) | None => next.run(request).await,
    }
}

async fn refuse_unread(metrics: &Metrics, request: Request, bytes: u64) -> Response {
    let start = pass_over(request.into_body()).await;
    match uid(&String::from_utf8_lossy(&start)) {
        Some(uid) => {
            info!(bytes, "Refused an object that is too large to be reviewed");
            metrics.rejected(StatusCode::PAYLOAD_TOO_LARGE.as_u16());
            json(&Outgoing::too_large(uid, bytes))
        }
        None => reject(metrics, StatusCode::PAYLOAD_TOO_LARGE, "length limit exceeded".into()),
    }
}

/// Returns the start of a body. Receives the rest as well: a client that can't send all of it may not read the answer.
async fn pass_over(mut body: Body) -> Vec<u8> {
    let mut start = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let missing = START_BYTES.saturating_sub(start.len());
        start.extend(frame.data_ref().into_iter().flatten().take(missing));
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
