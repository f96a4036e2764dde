//! Calls to the API server with a time limit, and the causes of their failures. The keeper's
//! controllers and the webhook make their calls by [`call`], and decide by the variant of
//! [`ApiError`].

use std::time::Duration;

use http::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use kube::{core::Status, error::DiscoveryError};
use tenure_types::wait::Wait;
use thiserror::Error;
use tokio::time::Instant;

/// The timeout of one call. kube's client has no limit of its own.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which [`persist`] tries.
const PATIENCE: Duration = Duration::from_mins(1);
/// The waits between the tries of [`persist`].
const RETRY: Wait = Wait { first: Duration::from_millis(100), last: Duration::from_secs(5) };

/// The longest wait that the API server may ask for. It asks for 32 seconds at most.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The beginnings of the errors of etcd, and of its client, about an object that is too large to be
/// stored. An error that an admission webhook repeats begins in another way.
const TOO_LARGE: [&str; 2] = [
    "etcdserver: request is too large",
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max",
];

/// The API server refuses calls for a while: a 429 with plain text as its body. kube drops the
/// headers of an answer, so this error keeps the time in `Retry-After`. A 429 about an object is a
/// `Status` instead, which contains the time.
#[derive(Clone, Copy, Debug, Error)]
#[error("too many requests: the API server asks to try again after {retry_after:?}")]
pub(crate) struct Throttled {
    retry_after: Duration,
}

impl Throttled {
    /// Reads an answer. None: the answer is no 429 in plain text, or has no `Retry-After` in
    /// seconds.
    pub(crate) fn of<B>(response: &Response<B>) -> Option<Self> {
        let header = |headers: &HeaderMap, name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let is_status = header(response.headers(), CONTENT_TYPE).is_some_and(|kind| kind.contains("json"));
        if response.status() != StatusCode::TOO_MANY_REQUESTS || is_status {
            return None;
        }
        let seconds = header(response.headers(), RETRY_AFTER)?.parse().ok()?;
        Some(Self { retry_after: Duration::from_secs(seconds) })
    }
}

/// Returns the time that the API server asks to wait before another try, a minute at most. Zero: it
/// asks for none.
pub(crate) fn retry_after(error: &kube::Error) -> Duration {
    let asked = match error {
        kube::Error::Api(status) if status.code == 429 => {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Duration::from_secs(seconds.into())
        }
        kube::Error::Service(cause) => {
            cause.downcast_ref().map_or(Duration::ZERO, |throttled: &Throttled| throttled.retry_after)
        }
        _ => Duration::ZERO,
    };
    asked.min(LONGEST_RETRY_AFTER)
}

/// The cause of a failed call to the API server, by the action that it needs.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The object doesn't exist or no longer exists, its namespace is being deleted, or its kind
    /// doesn't exist.
    #[error("not found")]
    NotFound,
    /// This process lacks the right.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The object was changed, or replaced by another of the same name, since it was read. Of a
    /// creation: another request has changed the count of a quota.
    #[error("changed since it was read: {0}")]
    Stale(String),
    /// An object of this name exists, so none was created.
    #[error("exists already: {0}")]
    AlreadyExists(String),
    /// Other managers own these fields, and the apply didn't force them.
    #[error("owned by others: {}", .0.join(", "))]
    Owned(Vec<String>),
    /// The served schema has no such field.
    #[error("unknown field: {0}")]
    UnknownField(String),
    /// The API server, an admission webhook or a policy refuses the call.
    #[error("refused: {0}")]
    Refused(String),
    /// With this change, the object would be too large to be stored, or its annotations too long.
    #[error("too large: {0}")]
    TooLarge(String),
    /// This process doesn't lead. If it led when a write began, the write may have been done.
    #[error("not the leader")]
    NotLeading,
    /// Any other failure, worth another try. The call may have been done.
    #[error("no good answer")]
    Other(#[source] Box<kube::Error>),
    /// The API server didn't answer in time. The call may have been done.
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(*status),
            kube::Error::Service(cause) if matches!(cause.downcast_ref(), Some(Self::NotLeading)) => {
                Self::NotLeading
            }
            kube::Error::Discovery(DiscoveryError::MissingKind(_) | DiscoveryError::MissingApiGroup(_)) => {
                Self::NotFound
            }
            error => Self::Other(Box::new(error)),
        }
    }
}

impl ApiError {
    /// Returns the cause that an error status of the API server shows, by its code and, where codes
    /// are ambiguous, by its message.
    fn of_status(status: Status) -> Self {
        let has = |text| status.message.contains(text);
        match status.code {
            404 => Self::NotFound,
            // a namespace that is being deleted accepts no new objects
            403 if has("being terminated") => Self::NotFound,
            403 => Self::Forbidden(status.message),
            400 | 422 if has("unknown field") => Self::UnknownField(status.message),
            // the answer to an apply
            500 if has("field not declared in schema") => Self::UnknownField(status.message),
            _ if is_too_large(&status) => Self::TooLarge(status.message),
            409 if status.is_already_exists() => Self::AlreadyExists(status.message),
            // another uid in a patch is 409 or, where it is taken for an attempt to change it, 422
            409 => owned(&status).map_or_else(|| Self::Stale(status.message), Self::Owned),
            422 if is_about(&status, "metadata.uid") => Self::Stale(status.message),
            400 | 405..=407 | 410..=428 => Self::Refused(status.message),
            _ => Self::Other(Box::new(kube::Error::Api(Box::new(status)))),
        }
    }

    /// True if the object is gone or was changed since it was read, or this process doesn't lead. The
    /// watches will show what is left to do, so that is no failure.
    pub const fn is_overtaken(&self) -> bool {
        matches!(self, Self::NotFound | Self::Stale(_) | Self::NotLeading)
    }

    /// True if the API server, an admission webhook or a policy has refused the call: then nothing
    /// was done.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::Refused(_) | Self::TooLarge(_))
    }

    /// True if the API server takes no more calls for a while. A 429 about an object isn't that: any
    /// admission webhook may answer with it.
    pub fn is_throttled(&self) -> bool {
        let Self::Other(error) = self else { return false };
        matches!(&**error, kube::Error::Service(cause) if cause.is::<Throttled>())
    }

    /// Returns the time that the API server asks to wait before another try. Zero: it asks for
    /// none.
    fn retry_after(&self) -> Duration {
        if let Self::Other(error) = self { retry_after(error) } else { Duration::ZERO }
    }

    /// True if the API server has not decided anything, as far as is known.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Other(_) | Self::Timeout)
    }
}

/// True if a field made a call fail. Messages don't show that: they begin with the object's name,
/// which may read like a field.
fn is_about(status: &Status, field: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.field == field)
}

/// True if the API server itself finds an object too large. An admission webhook may answer with any
/// code, but not with such a message.
fn is_too_large(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let is_too_long = status.code == 422
        && !status.message.starts_with("admission webhook")
        && causes.any(|cause| cause.field == "metadata.annotations" && cause.reason == "FieldValueTooLong");
    is_too_long || TOO_LARGE.iter().any(|beginning| status.message.starts_with(beginning))
}

/// Returns the fields that made an apply fail because other managers own them. None: it failed for
/// another reason.
fn owned(status: &Status) -> Option<Vec<String>> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let owned =
        causes.filter(|cause| cause.reason == "FieldManagerConflict").map(|cause| cause.field.clone());
    Some(owned.collect()).filter(|owned: &Vec<String>| !owned.is_empty())
}

/// Tries until the API server has decided, for a minute at most: for changes that must not be left
/// half done. A server that has just started forbids everything for a moment, so
/// [`ApiError::Forbidden`] counts as no decision here. Returns the last result.
pub async fn persist<T>(attempt: impl AsyncFn() -> Result<T, ApiError>) -> Result<T, ApiError> {
    let patience = Instant::now() + PATIENCE;
    let mut failures = 0;
    loop {
        match attempt().await {
            Err(error)
                if (error.is_open() || matches!(error, ApiError::Forbidden(_)))
                    && Instant::now() < patience =>
            {
                tokio::time::sleep(error.retry_after() + RETRY.jittered(failures)).await;
            }
            result => return result,
        }
        failures = failures.saturating_add(1);
    }
}

/// Returns the result of a call, or [`ApiError::Timeout`] after 10 seconds.
pub async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    tokio::time::timeout(TIMEOUT, call).await.map_err(|_| ApiError::Timeout)?.map_err(ApiError::from)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(code: u16, message: &str, fields: &[&str]) -> ApiError {
        let causes: Vec<Value> = fields
            .iter()
            .map(|field| json!({"reason": "FieldValueInvalid", "message": "Invalid value", "field": field}))
            .collect();
        let status = json!({
            "status": "Failure", "code": code, "message": message, "reason": "Invalid", "details": {"causes": causes},
        });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap())).into()
    }

    #[test]
    fn an_object_is_replaced_by_another_only_if_its_uid_is_refused() {
        let immutable = "Deployment.apps \"web\" is invalid: metadata.uid: Invalid value: field is immutable";
        assert!(matches!(of(422, immutable, &["metadata.uid"]), ApiError::Stale(_)));
        let full = "Deployment.apps \"metadata.uid\" is invalid: metadata.annotations: Too long";
        assert!(of(422, full, &["metadata.annotations"]).is_refusal());
        assert!(of(422, full, &[]).is_refusal());
    }

    #[test]
    fn an_object_is_too_large_only_if_the_api_server_itself_says_so() {
        let full = "Pod \"admission webhook\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes";
        let webhook = "admission webhook \"a.b.c\" denied the request: ";
        let of = |code: u16, message: &str, reason: &str| -> ApiError {
            let cause = json!({"reason": reason, "message": "a", "field": "metadata.annotations"});
            let status = json!({"status": "Failure", "code": code, "message": message, "details": {"causes": [cause]}});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap())).into()
        };
        for (code, message) in [(500, TOO_LARGE[0]), (500, TOO_LARGE[1]), (400, TOO_LARGE[0]), (422, full)] {
            let error = of(code, message, "FieldValueTooLong");
            assert!(matches!(error, ApiError::TooLarge(_)) && error.is_refusal(), "{message}");
        }
        for (code, message) in [(500, TOO_LARGE[0]), (413, "Request entity too large"), (422, full)] {
            let error = of(code, &format!("{webhook}{message}"), "FieldValueTooLong");
            assert!(!matches!(error, ApiError::TooLarge(_)), "{message}");
        }
        let failed =
            "Internal error occurred: failed calling webhook \"a.b.c\": etcdserver: request is too large";
        assert!(of(500, failed, "").is_open());
        assert!(matches!(of(422, full, "FieldValueInvalid"), ApiError::Refused(_)));
    }

    #[test]
    fn only_the_reason_tells_an_object_that_exists_from_a_conflict() {
        let of = |reason: &str| -> ApiError {
            let message = "Operation cannot be fulfilled on resourcequotas \"quota\": it already exists";
            let status = json!({"status": "Failure", "code": 409, "message": message, "reason": reason});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap())).into()
        };
        assert!(matches!(of("AlreadyExists"), ApiError::AlreadyExists(_)));
        for reason in ["Conflict", ""] {
            assert!(matches!(of(reason), ApiError::Stale(_)), "{reason:?}");
        }
    }
}
