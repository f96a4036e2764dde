//! Bodies as reviews, and answers as bodies.

use std::time::Instant;

use axum::{
    body::Bytes,
    extract::rejection::BytesRejection,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use tracing::debug;

use crate::{
    Metrics,
    review::{self, ADMISSION, Request},
};

/// The length of a body in bytes, if its sender announces it.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// Answers a review, or says why it is none.
pub(crate) fn answer(
    metrics: &Metrics,
    headers: &HeaderMap,
    body: &Result<Bytes, BytesRejection>,
    review: impl FnOnce(&Request<'_>, Instant) -> Response,
) -> Response {
    let started = Instant::now();
    match read(headers, body) {
        Ok(request) => review(&request, started),
        Err((status, message)) => reject(metrics, status, message),
    }
}

/// Reads a review. An error says why it is none, and with which status to answer that.
pub(crate) fn read<'b>(
    headers: &HeaderMap,
    body: &'b Result<Bytes, BytesRejection>,
) -> Result<Request<'b>, (StatusCode, String)> {
    is_plain_json(headers).map_err(|message| (StatusCode::UNSUPPORTED_MEDIA_TYPE, message))?;
    let body = body.as_ref().map_err(|rejection| (rejection.status(), rejection.body_text()))?;
    Request::read(body).map_err(|fault| (StatusCode::BAD_REQUEST, fault))
}

/// Answers what is no review.
pub(crate) fn reject(metrics: &Metrics, status: StatusCode, message: String) -> Response {
    debug!(%status, error = message, "Rejected a request");
    metrics.rejected(status.as_u16());
    (status, message + "\n").into_response()
}

pub(crate) fn is_plain_json(headers: &HeaderMap) -> Result<(), String> {
    let of =
        |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let kind = of(CONTENT_TYPE).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(format!("Content-Type is {kind:?}, but must be application/json"));
    }
    match of(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            Err(format!("Content-Encoding {encoding:?} is not supported"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn json(response: &review::Response<'_>) -> Response {
    match serde_json::to_vec(&ADMISSION.outgoing(response)) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
