//! `AdmissionReview` v1, as far as an answer needs it. Requests borrow from the body; objects in them stay raw
//! until their kind is known.

use std::{borrow::Cow, collections::BTreeMap};

use json_patch::Patch;
use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_policy::field::FieldError;
use thiserror::Error;

/// The largest review of objects that can be stored holds two of 3 MiB.
pub const MAX_BODY_BYTES: usize = 7 * 1024 * 1024;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The reason why a body is no request for a review.
#[derive(Debug, Error)]
pub enum MalformedReview {
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

/// The request in a review, as the API server sends it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'b> {
    /// To be repeated in the answer.
    #[serde(borrow, default)]
    pub uid: Cow<'b, str>,
    /// The kind of the object.
    #[serde(borrow, default)]
    pub kind: GroupVersionKind<'b>,
    /// CREATE, UPDATE, DELETE or CONNECT.
    #[serde(borrow, default)]
    pub operation: Cow<'b, str>,
    /// Empty if the API server is to generate it.
    #[serde(borrow, default)]
    pub name: Cow<'b, str>,
    /// Empty for cluster-scoped objects.
    #[serde(borrow, default)]
    pub namespace: Cow<'b, str>,
    /// The subresource of the object; mostly empty.
    #[serde(borrow, default)]
    pub sub_resource: Cow<'b, str>,
    /// The user who asks.
    #[serde(borrow, default)]
    pub user_info: UserInfo<'b>,
    /// True for a dry run.
    #[serde(default)]
    pub dry_run: bool,
    /// The object as it is to be.
    #[serde(borrow)]
    pub object: Option<&'b RawValue>,
    /// The object as it is.
    #[serde(borrow)]
    pub old_object: Option<&'b RawValue>,
}

/// A user, as the API server has authenticated it.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo<'b> {
    /// Such as `system:serviceaccount:kai-scheduler:scheduler`.
    #[serde(borrow, default)]
    pub username: Cow<'b, str>,
    /// A list of names; few ask for it.
    #[serde(borrow)]
    pub groups: Option<&'b RawValue>,
}

/// Group, version and kind of an object.
#[derive(Debug, Default, Deserialize)]
pub struct GroupVersionKind<'b> {
    /// Empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'b, str>,
    /// Such as v3alpha1.
    #[serde(borrow, default)]
    pub version: Cow<'b, str>,
    /// Such as Queue.
    #[serde(borrow, default)]
    pub kind: Cow<'b, str>,
}

impl<'b> Request<'b> {
    /// The request in a body.
    pub fn read(body: &'b [u8]) -> Result<Self, MalformedReview> {
        let Incoming { api_version, kind, request } = serde_json::from_slice(body)?;
        if api_version != API_VERSION || kind != KIND {
            return Err(MalformedReview::OtherKind(api_version.into(), kind.into()));
        }
        request.ok_or(MalformedReview::NoRequest).and_then(|request| match &*request.uid {
            "" => Err(MalformedReview::NoUid),
            _ => Ok(request),
        })
    }
}

/// Returns the warning about an object of a kind that has no review.
pub fn unknown(request: &Request<'_>) -> String {
    let (group, kind) = (&request.kind.group, &request.kind.kind);
    format!("tenure: nothing is known of kind {kind:?} of group {group:?}: not reviewed")
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
    #[serde(flatten)]
    patch: Option<JsonPatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(rename = "auditAnnotations", skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct JsonPatch {
    #[serde(rename = "patchType")]
    type_: &'static str,
    /// In base64 on the wire.
    patch: ByteString,
}

impl JsonPatch {
    fn of(patch: &Patch) -> Option<Self> {
        let patch = ByteString(serde_json::to_vec(patch).ok()?);
        Some(Self { type_: "JSONPatch", patch })
    }
}

impl<'b> Outgoing<'b> {
    /// Admits the request.
    pub fn admit(request: &'b Request<'_>, warnings: Vec<String>) -> Self {
        Self::of(&request.uid, None, None, warnings)
    }

    /// Admits the request, with a patch.
    pub fn patch(request: &'b Request<'_>, patch: Option<&Patch>, warnings: Vec<String>) -> Self {
        Self::of(&request.uid, None, patch.and_then(JsonPatch::of), warnings)
    }

    /// Refuses the request as the API server would: 422 with a cause for each field.
    pub fn refuse(
        request: &'b Request<'_>,
        name: &str,
        errors: &[FieldError],
        warnings: Vec<String>,
    ) -> Self {
        let status = invalid(&request.kind, name, errors);
        Self::of(&request.uid, Some(status), None, warnings)
    }

    /// Refuses a review that is too large to be read.
    pub fn too_large(uid: &'b str, bytes: u64) -> Self {
        Self::of(uid, Some(too_large(bytes)), None, Vec::new())
    }

    /// Admits a review that is too large to be read, with a warning. `text` says what that means.
    pub fn admit_unread(uid: &'b str, bytes: u64, text: &str) -> Self {
        let warning =
            format!("{text}: its review takes {bytes} bytes, and no more than {MAX_BODY_BYTES} are read");
        Self::of(uid, None, None, vec![warning])
    }

    /// Refuses a deletion or eviction with 429: the pod is still protected.
    pub fn later(request: &'b Request<'_>, pod: &str, message: String, retry_after: i32) -> Self {
        Self::of(&request.uid, Some(too_early(pod, message, retry_after)), None, Vec::new())
    }

    /// The message of a refusal; empty if it is none.
    pub fn reason(&self) -> &str {
        self.response.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default()
    }

    /// The same, with what the API server is to write into its audit log.
    pub fn audited(mut self, annotations: BTreeMap<&'static str, String>) -> Self {
        self.response.audit_annotations = annotations;
        self
    }

    fn of(uid: &'b str, status: Option<Status>, patch: Option<JsonPatch>, warnings: Vec<String>) -> Self {
        let allowed = status.is_none();
        let response = Response { uid, allowed, status, patch, warnings, audit_annotations: BTreeMap::new() };
        Self { api_version: API_VERSION, kind: KIND, response }
    }
}

fn too_large(bytes: u64) -> Status {
    Status {
        code: Some(413),
        message: Some(format!(
            "the object is too large to be reviewed: with what is stored of it, it takes {bytes} bytes, and no more than {MAX_BODY_BYTES} are read: shorten its annotations and its status, or leave the status out"
        )),
        reason: Some("RequestEntityTooLarge".into()),
        status: Some("Failure".into()),
        ..Status::default()
    }
}

/// The answer that disruption budgets give as well: clients that drain nodes know it, and try again.
fn too_early(pod: &str, message: String, retry_after: i32) -> Status {
    Status {
        code: Some(429),
        message: Some(message),
        reason: Some("TooManyRequests".into()),
        status: Some("Failure".into()),
        details: Some(StatusDetails {
            kind: Some("pods".into()),
            name: Some(pod.into()),
            retry_after_seconds: Some(retry_after),
            ..StatusDetails::default()
        }),
        ..Status::default()
    }
}

fn invalid(kind: &GroupVersionKind<'_>, name: &str, errors: &[FieldError]) -> Status {
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
