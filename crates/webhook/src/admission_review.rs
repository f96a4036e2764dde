//! `AdmissionReview` v1, as far as an answer needs it. Requests borrow from the body; objects stay
//! raw.
//!
//! All admission routes take a [`Request`] and answer by an [`AdmissionResponse`]. `http/envelope.rs` reads
//! and writes them.

use std::{borrow::Cow, collections::BTreeMap};

use json_patch::Patch;
use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_policy::field::FieldError;

use crate::metrics::ReviewResult;

/// The largest admission review that is read, in bytes. A review of objects that can be stored
/// holds at most two of 3 MiB.
pub const MAX_BODY_BYTES: usize = 7 * 1024 * 1024;

/// The request in a review, as the API server sends it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'b> {
    /// The uid of the review, which the answer repeats.
    #[serde(borrow, default)]
    pub uid: Cow<'b, str>,
    /// The kind of the object.
    #[serde(borrow, default)]
    pub kind: GroupVersionKind<'b>,
    /// CREATE, UPDATE, DELETE or CONNECT.
    #[serde(borrow, default)]
    pub operation: Cow<'b, str>,
    /// The name of the object. Empty if the API server is to generate it.
    #[serde(borrow, default)]
    pub name: Cow<'b, str>,
    /// The namespace of the object. Empty for cluster-scoped objects.
    #[serde(borrow, default)]
    pub namespace: Cow<'b, str>,
    /// The subresource of the request. Empty for the object itself.
    #[serde(borrow, default)]
    pub sub_resource: Cow<'b, str>,
    /// The user who asks.
    #[serde(borrow, default)]
    pub user_info: UserInfo<'b>,
    /// True for a dry run.
    #[serde(default)]
    pub dry_run: bool,
    /// The object as the request writes it. None for a deletion.
    #[serde(borrow)]
    pub object: Option<&'b RawValue>,
    /// The object as it is stored. None for a creation.
    #[serde(borrow)]
    pub old_object: Option<&'b RawValue>,
}

/// A user, as the API server has authenticated it.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo<'b> {
    /// The name, such as `system:serviceaccount:kai-scheduler:scheduler`.
    #[serde(borrow, default)]
    pub username: Cow<'b, str>,
    /// The groups: a list of names, which is parsed only where it is needed.
    #[serde(borrow)]
    pub groups: Option<&'b RawValue>,
}

/// Group, version and kind of an object.
#[derive(Debug, Default, Deserialize)]
pub struct GroupVersionKind<'b> {
    /// The API group. Empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'b, str>,
    /// The version, such as v3alpha1.
    #[serde(borrow, default)]
    pub version: Cow<'b, str>,
    /// The kind, such as Queue.
    #[serde(borrow, default)]
    pub kind: Cow<'b, str>,
}

/// The part of an object that doesn't depend on its kind.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
}

/// The metadata of an object, as far as reviews of all kinds need it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    name: String,
    /// The time of the deletion, as text. None: the object isn't being deleted.
    pub deletion_timestamp: Option<String>,
}

impl Metadata {
    /// Reads the metadata of an object. Empty if the object can't be read.
    pub fn read(object: &RawValue) -> Self {
        serde_json::from_str::<Object>(object.get()).unwrap_or_default().metadata
    }
}

impl Request<'_> {
    /// Returns the name of the object. A generated name is in the object and not in the request.
    pub fn object_name(&self) -> String {
        match (&*self.name, self.object) {
            ("", Some(object)) => Metadata::read(object).name,
            (name, _) => name.to_owned(),
        }
    }
}

/// Returns the warning about an object of a kind that has no review.
pub fn unknown(request: &Request<'_>) -> String {
    let (group, kind) = (&request.kind.group, &request.kind.kind);
    format!(
        "tenure: kind {kind:?} of group {group:?} isn't reviewed: remove it from the rules of the webhook configuration"
    )
}

/// The answer to a request. Without a status, the request is admitted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionResponse<'b> {
    uid: &'b str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(flatten)]
    patch: Option<JsonPatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonPatch {
    patch_type: &'static str,
    /// The operations as JSON, in base64 on the wire.
    patch: ByteString,
}

impl<'b> AdmissionResponse<'b> {
    /// Admits the request, with warnings for the user.
    pub fn admit(request: &'b Request<'_>, warnings: Vec<String>) -> Self {
        Self::of(&request.uid, None, warnings)
    }

    /// Returns this answer with a patch of the object.
    pub fn patched(self, patch: Option<&Patch>) -> Self {
        let patch = patch.and_then(|patch| serde_json::to_vec(patch).ok());
        let patch = patch.map(|patch| JsonPatch { patch_type: "JSONPatch", patch: ByteString(patch) });
        Self { patch, ..self }
    }

    /// Refuses the request if there are errors, as the API server would: with 422 and a cause for
    /// each field. Admits it otherwise. Warnings reach the user either way.
    pub fn of_findings(request: &'b Request<'_>, errors: &[FieldError], warnings: Vec<String>) -> Self {
        let status = (!errors.is_empty()).then(|| invalid(&request.kind, request.object_name(), errors));
        Self::of(&request.uid, status, warnings)
    }

    /// Refuses a review that is too large to be read, with 413. `bytes` is the size of the review.
    pub fn too_large(uid: &'b str, bytes: u64) -> Self {
        let message = format!(
            "the object is too large to be reviewed: its review takes {bytes} bytes, and the webhook reads at most {MAX_BODY_BYTES}: shorten its annotations and its status, or leave the status out"
        );
        Self::of(uid, Some(failure(413, "RequestEntityTooLarge", message, None)), Vec::new())
    }

    /// Admits a review that is too large to be read, with a warning that begins with `text`, the
    /// meaning of the admission.
    pub fn admit_unread(uid: &'b str, bytes: u64, text: &str) -> Self {
        let warning =
            format!("{text}: its review takes {bytes} bytes, and the webhook reads at most {MAX_BODY_BYTES}");
        Self::of(uid, None, vec![warning])
    }

    /// Refuses a deletion or eviction with 429, as disruption budgets do: clients that drain nodes
    /// then try again. `retry_after` is in seconds.
    pub fn later(request: &'b Request<'_>, pod: &str, message: String, retry_after: i32) -> Self {
        let details = StatusDetails {
            kind: Some("pods".into()),
            name: Some(pod.into()),
            retry_after_seconds: Some(retry_after),
            ..StatusDetails::default()
        };
        let status = failure(429, "TooManyRequests", message, Some(details));
        Self::of(&request.uid, Some(status), Vec::new())
    }

    /// Returns the result for the metrics.
    pub const fn result(&self) -> ReviewResult {
        match (self.allowed, self.warnings.is_empty()) {
            (false, _) => ReviewResult::Refused,
            (true, false) => ReviewResult::Warned,
            (true, true) => ReviewResult::Admitted,
        }
    }

    /// Returns the message of a refusal. Empty if the request is admitted.
    pub fn reason(&self) -> &str {
        self.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default()
    }

    /// Returns this answer with annotations for the audit log of the API server.
    pub fn audited(self, audit_annotations: BTreeMap<&'static str, String>) -> Self {
        Self { audit_annotations, ..self }
    }

    /// Refuses the request with the status. None: admits the request.
    fn of(uid: &'b str, status: Option<Status>, warnings: Vec<String>) -> Self {
        let (allowed, patch, audit_annotations) = (status.is_none(), None, BTreeMap::new());
        Self { uid, allowed, status, patch, warnings, audit_annotations }
    }
}

/// Creates the status of a refusal. `reason` is a word of the API, such as Invalid.
fn failure(code: i32, reason: &str, message: String, details: Option<StatusDetails>) -> Status {
    Status {
        code: Some(code),
        message: Some(message),
        reason: Some(reason.into()),
        status: Some("Failure".into()),
        details,
        ..Status::default()
    }
}

/// Creates the status of an object with errors, in the words of the API server.
fn invalid(kind: &GroupVersionKind<'_>, name: String, errors: &[FieldError]) -> Status {
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
    let message = format!("{}.{} \"{name}\" is invalid: {text}", kind.kind, kind.group);
    let details = StatusDetails {
        causes: Some(errors.iter().map(cause).collect()),
        group: Some(kind.group.to_string()),
        kind: Some(kind.kind.to_string()),
        name: Some(name),
        ..StatusDetails::default()
    };
    failure(422, "Invalid", message, Some(details))
}
