//! Reads bodies as reviews, and writes answers as bodies.
//!
//! All routes of admission and `/convert` use these functions. A request that isn't a review gets
//! an HTTP status with a message, never a verdict.

use std::{borrow::Cow, time::Instant};

use axum::{
    body::Bytes,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::HttpRefusal;
use crate::{
    Metrics,
    admission_review::{self, Request},
};

/// The longest name, version or uid that an answer repeats. A uid of an API server has 36 bytes.
pub(crate) const LONGEST_NAME: usize = 253;

/// A kind of review. The API server sends the request in an envelope of this kind, and expects the
/// response in an envelope of the same kind.
pub(crate) struct ReviewKind {
    api_version: &'static str,
    /// The name.
    kind: &'static str,
    /// The name with its article, for messages.
    a_kind: &'static str,
}

/// The envelope of reviews of writes.
const ADMISSION: ReviewKind =
    ReviewKind { api_version: "admission.k8s.io/v1", kind: "AdmissionReview", a_kind: "an AdmissionReview" };

/// The envelope of reviews that convert objects to another version.
pub(crate) const CONVERSION: ReviewKind = ReviewKind {
    api_version: "apiextensions.k8s.io/v1",
    kind: "ConversionReview",
    a_kind: "a ConversionReview",
};

/// A received envelope. Absent texts are empty.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming<'b, R> {
    #[serde(borrow, default)]
    api_version: Cow<'b, str>,
    #[serde(borrow, default)]
    kind: Cow<'b, str>,
    request: Option<R>,
}

/// A response in its envelope.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResponseEnvelope<R> {
    api_version: &'static str,
    kind: &'static str,
    response: R,
}

impl ReviewKind {
    /// Reads the request in a body. Fails with a message if the body isn't JSON, is a review of
    /// another kind or version, or has no request.
    pub(crate) fn read<'b, R: Deserialize<'b>>(&self, body: &'b [u8]) -> Result<R, String> {
        let Self { api_version: expected, kind: own, a_kind } = self;
        let Incoming { api_version, kind, request } =
            serde_json::from_slice(body).map_err(|error| format!("not {a_kind}: {error}"))?;
        if api_version != *expected || kind != *own {
            let (api_version, kind) = (shown(&api_version), shown(&kind));
            return Err(format!(
                "not {a_kind} of {expected}: apiVersion is {api_version:?}, kind is {kind:?}"
            ));
        }
        request.ok_or_else(|| format!("the {own} has no request"))
    }

    /// Puts a response into its envelope.
    pub(crate) const fn outgoing<R>(&self, response: R) -> ResponseEnvelope<R> {
        ResponseEnvelope { api_version: self.api_version, kind: self.kind, response }
    }
}

/// Returns the first [`LONGEST_NAME`] characters of a name, for messages.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// Returns the length of a body in bytes, as its sender announces it. None: the sender doesn't.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// Answers a request by `review`, which gets the request and the time at which the work began. A
/// body that isn't a review gets a status.
pub(crate) fn answer(
    metrics: &Metrics,
    headers: &HeaderMap,
    body: &Result<Bytes, HttpRefusal>,
    review: impl FnOnce(&Request<'_>, Instant) -> Response,
) -> Response {
    let started = Instant::now();
    match read(headers, body) {
        Ok(request) => review(&request, started),
        Err(refusal) => reject(metrics, refusal),
    }
}

/// Reads an admission review. Errors: 415 for another type or encoding of the body, the refusal of
/// the body itself, and 400 for a body that isn't a review or has no uid.
pub(crate) fn read<'b>(
    headers: &HeaderMap,
    body: &'b Result<Bytes, HttpRefusal>,
) -> Result<Request<'b>, HttpRefusal> {
    is_plain_json(headers)?;
    let body = body.as_ref().map_err(Clone::clone)?;
    let request = ADMISSION.read(body).and_then(|request: Request<'_>| match &*request.uid {
        "" => Err("the AdmissionReview's request has no uid".to_owned()),
        _ => Ok(request),
    });
    request.map_err(|fault| (StatusCode::BAD_REQUEST, fault))
}

/// Answers a request that isn't a review, with the status and the message of the refusal. The
/// status counts in the metrics.
pub(crate) fn reject(metrics: &Metrics, (status, message): HttpRefusal) -> Response {
    debug!(%status, error = message, "Rejected a request");
    metrics.rejected(status.as_u16());
    (status, message + "\n").into_response()
}

/// Checks that a body is `application/json` without an encoding. The error has status 415.
pub(crate) fn is_plain_json(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let of =
        |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let kind = of(CONTENT_TYPE).unwrap_or_default();
    let message = if kind.split(';').next().map(str::trim) != Some("application/json") {
        format!("Content-Type is {kind:?}, but must be application/json")
    } else if let Some(encoding) = of(CONTENT_ENCODING).filter(|encoding| encoding != "identity") {
        format!("Content-Encoding {encoding:?} is not supported")
    } else {
        return Ok(());
    };
    Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

/// Returns an `AdmissionReview` with this response.
pub(crate) fn json(response: &admission_review::AdmissionResponse<'_>) -> Response {
    match serde_json::to_vec(&ADMISSION.outgoing(response)) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
