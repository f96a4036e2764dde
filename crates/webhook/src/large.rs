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
    review::{MAX_BODY_BYTES, Outgoing},
};

/// The part of a body in which the uid is: an API server writes it behind the review's kind and version.
const START_BYTES: usize = 256;

/// Reviews that are admitted unread.
#[derive(Clone, Debug)]
pub struct Unread {
    pub metrics: Metrics,
    /// What that means, for the user who is warned.
    pub text: &'static str,
}

/// Refuses requests whose announced length is too large; passes all others on.
pub async fn refuse(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    match too_large(&request) {
        Some(bytes) => {
            answer_unread(&metrics, request, |uid| {
                info!(bytes, "Refused an object that is too large to be reviewed");
                json(&Outgoing::too_large(uid, bytes))
            })
            .await
        }
        None => next.run(request).await,
    }
}

/// Admits requests whose announced length is too large, with a warning; passes all others on.
pub async fn admit(State(Unread { metrics, text }): State<Unread>, request: Request, next: Next) -> Response {
    match too_large(&request) {
        Some(bytes) => {
            answer_unread(&metrics, request, |uid| {
                info!(bytes, "Admitted an object that is too large to be reviewed");
                json(&Outgoing::admit_unread(uid, bytes, text))
            })
            .await
        }
        None => next.run(request).await,
    }
}

/// The announced length of a request that is too large to be read.
fn too_large(request: &Request) -> Option<u64> {
    announced(request.headers()).filter(|bytes| *bytes > MAX_BODY_BYTES as u64)
}

/// Answers the review of a uid, of which nothing else is read.
async fn answer_unread(
    metrics: &Metrics,
    request: Request,
    answer: impl FnOnce(&str) -> Response,
) -> Response {
    let start = pass_over(request.into_body()).await;
    match uid(&String::from_utf8_lossy(&start)) {
        Some(uid) => {
            metrics.rejected(StatusCode::PAYLOAD_TOO_LARGE.as_u16());
            answer(uid)
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
