//! `AdmissionReview` v1, as far as an answer needs it. Requests borrow from the body; objects in them stay raw
//! until their kind is known.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_policy::field::FieldError;
use thiserror::Error;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Why a body is no request for a review.
#[derive(Debug, Error)]
pub enum Malformed {
    /// It isn't JSON, or not of the right shape.
    #[error("not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// It is something else.
    #[error("not an AdmissionReview of {API_VERSION}: apiVersion is {0:?}, kind is {1:?}")]
    OtherKind(String, String),
    /// It is an answer, or nothing.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// It can't be answered.
    #[error("the AdmissionReview's request has no uid")]
    NoUid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming<'b> {
    #[serde(borrow, default)]
    api_version: Cow<'b, str>,
    #[serde(borrow, default)]
    kind: Cow<'b, str>,
    #[serde(borrow)]
    request: Option<Request<'b>>,
}

/// What the API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'b> {
    /// To be repeated in the answer.
    #[serde(borrow, default)]
    pub uid: Cow<'b, str>,
    /// Of the object.
    #[serde(borrow, default)]
    pub kind: Kind<'b>,
    /// CREATE, UPDATE, DELETE or CONNECT.
    #[serde(borrow, default)]
    pub operation: Cow<'b, str>,
    /// Empty if the API server is to generate it.
    #[serde(borrow, default)]
    pub name: Cow<'b, str>,
    /// Empty for cluster-scoped objects.
    #[serde(borrow, default)]
    pub namespace: Cow<'b, str>,
    /// As it shall be.
    #[serde(borrow)]
    pub object: Option<&'b RawValue>,
    /// As it is.
    #[serde(borrow)]
    pub old_object: Option<&'b RawValue>,
}

/// Group and kind of an object.
#[derive(Debug, Default, Deserialize)]
pub struct Kind<'b> {
    /// Empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'b, str>,
    /// Such as Queue.
    #[serde(borrow, default)]
    pub kind: Cow<'b, str>,
}

impl<'b> Request<'b> {
    /// The request in a body.
    pub fn read(body: &'b [u8]) -> Result<Self, Malformed> {
        let Incoming { api_version, kind, request } = serde_json::from_slice(body)?;
        if api_version != API_VERSION || kind != KIND {
            return Err(Malformed::OtherKind(api_version.into(), kind.into()));
        }
        request.ok_or(Malformed::NoRequest).and_then(|request| match &*request.uid {
            "" => Err(Malformed::NoUid),
            _ => Ok(request),
        })
    }
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outgoing<'b> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'b>,
}

#[derive(Debug, Serialize)]
struct Response<'b> {
    uid: &'b str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl<'b> Outgoing<'b> {
    /// Yes.
    pub fn admit(request: &'b Request<'_>, warnings: Vec<String>) -> Self {
        Self::of(request, None, warnings)
    }

    /// No, as the API server itself would say it: 422 with a cause for each field.
    pub fn refuse(
        request: &'b Request<'_>,
        name: &str,
        errors: &[FieldError],
        warnings: Vec<String>,
    ) -> Self {
        let status = invalid(&request.kind, name, errors);
        Self::of(request, Some(status), warnings)
    }

    fn of(request: &'b Request<'_>, status: Option<Status>, warnings: Vec<String>) -> Self {
        let response = Response { uid: &request.uid, allowed: status.is_none(), status, warnings };
        Self { api_version: API_VERSION, kind: KIND, response }
    }
}

fn invalid(kind: &Kind<'_>, name: &str, errors: &[FieldError]) -> Status {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let text = match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let cause = |error: &FieldError| StatusCause {
        field: Some(error.field.clone()),
        message: Some(error.message()),
        reason: Some("FieldValueInvalid".into()),
    };
    Status {
        code: Some(422),
        message: Some(format!("{}.{} \"{name}\" is invalid: {text}", kind.kind, kind.group)),
        reason: Some("Invalid".into()),
        status: Some("Failure".into()),
        details: Some(StatusDetails {
            causes: Some(errors.iter().map(cause).collect()),
            group: Some(kind.group.to_string()),
            kind: Some(kind.kind.to_string()),
            name: Some(name.into()),
            ..StatusDetails::default()
        }),
        ..Status::default()
    }
}
