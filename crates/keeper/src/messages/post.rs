//! Posts a message to its receiver.
//!
//! The task of a receiver has one [`Poster`]. Files with URLs, tokens and authorities are read for
//! each message, so that a change counts at once. No error shows a URL or a token.

use std::{io, str, time::Duration};

use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy;
use jiff::Timestamp;
use parking_lot::Mutex;
use tenure_policy::message::{Message, Receiver, ReceiverUrl, check_url};
use thiserror::Error;
use tokio::{fs::File, io::AsyncReadExt, time::timeout};

use super::connect::{BadAuthorities, HttpClient, client};

/// The longest time of a try, from the first byte that is read from a file to the head of the
/// answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time for the body of an answer whose status is known. After it, the connection isn't
/// used again.
const PATIENCE_FOR_BODY: Duration = Duration::from_secs(1);
/// The longest body that is read, in bytes. After a longer one, the connection isn't used again.
const LONGEST_BODY: usize = 64 * 1024;

/// The longest file of a URL or a token, in bytes.
const LONGEST_SECRET: u64 = 16 * 1024;
/// The longest file of authorities, in bytes.
const LONGEST_AUTHORITIES: u64 = 1024 * 1024;

/// The `User-Agent` of all messages.
const AGENT: &str = concat!("tenure-keeper/", env!("CARGO_PKG_VERSION"));

/// The reason why a message wasn't taken. Shows no URL and no token.
#[derive(Debug, Error)]
pub enum PostError {
    /// The receiver was taken out of the configuration.
    #[error("it was taken out of the configuration")]
    NoReceiver,
    /// The file of this field can't be read.
    #[error("{field}: can't be read")]
    Unreadable { field: &'static str, source: io::Error },
    /// The URL or the file of this field isn't as expected.
    #[error("{field}: {expected}")]
    Invalid { field: &'static str, expected: &'static str },
    /// The file of authorities has no certificates, or bad ones.
    #[error("caFile: must be certificates in PEM")]
    Authorities(#[from] BadAuthorities),
    #[error("no answer within {PATIENCE:?}")]
    Timeout,
    #[error("no answer")]
    NoAnswer(#[from] legacy::Error),
    /// The receiver answered with another status than success, and may have asked for a rest.
    #[error("it answers {status}")]
    Status { status: StatusCode, retry_after: Option<Duration> },
}

/// The consequence of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// The receiver has taken the message.
    Sent,
    /// The receiver will never accept this message, but may accept others.
    BodyRefused,
    /// The receiver will never accept this message, and accepts no others in its present state.
    Refused,
    /// The message is worth another try, after the wait that the receiver asks for. None: the
    /// receiver asks for no wait.
    Failed(Option<Duration>),
}

impl PostOutcome {
    /// Returns the consequence of a result. A client error is a refusal, apart from 408 and 429.
    pub fn of(result: &Result<(), PostError>) -> Self {
        let may_pass = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        // not 400: receivers answer so to all messages of a format that they don't know
        let of_body = [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
        match result {
            Ok(()) => Self::Sent,
            Err(PostError::Status { status, .. }) if of_body.contains(status) => Self::BodyRefused,
            Err(PostError::Status { status, .. })
                if status.is_client_error() && !may_pass.contains(status) =>
            {
                Self::Refused
            }
            Err(PostError::Status { retry_after, .. }) => Self::Failed(*retry_after),
            Err(_) => Self::Failed(None),
        }
    }
}

/// Posts messages to one receiver over connections that are kept.
#[derive(Debug, Default)]
pub struct Poster {
    /// The client, and the authorities that it was made for. None in place of authorities: the
    /// public ones.
    client: Mutex<Option<(Option<Vec<u8>>, HttpClient)>>,
}

impl Poster {
    /// Posts a message, by files as they are now. Fails for any answer but a success.
    pub async fn post(&self, receiver: &Receiver, message: &Message) -> Result<(), PostError> {
        let answer = timeout(PATIENCE, self.try_to_post(receiver, message))
            .await
            .map_err(|_| PostError::Timeout)??;
        let (status, retry_after) = (answer.status(), answer.headers().get(RETRY_AFTER).and_then(rest));
        // the body is read so that the connection can be used again
        let rest = Limited::new(answer.into_body(), LONGEST_BODY).collect();
        drop(timeout(PATIENCE_FOR_BODY, rest).await);
        if status.is_success() { Ok(()) } else { Err(PostError::Status { status, retry_after }) }
    }

    /// Sends the request, and returns the head of the answer.
    async fn try_to_post(
        &self,
        receiver: &Receiver,
        message: &Message,
    ) -> Result<http::Response<Incoming>, PostError> {
        let (media_type, body) = message.body(receiver);
        let mut request = Request::new(Full::new(Bytes::from(body)));
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, url(receiver).await?);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(authorization) = authorization(receiver).await? {
            headers.insert(AUTHORIZATION, authorization);
        }
        let client = self.client(receiver).await?;
        Ok(client.request(request).await?)
    }

    /// Returns the client for a receiver. Makes another one if the authorities have changed.
    async fn client(&self, receiver: &Receiver) -> Result<HttpClient, PostError> {
        let authorities = match &receiver.ca_file {
            Some(file) => Some(read("caFile", file, LONGEST_AUTHORITIES).await?),
            None => None,
        };
        let mut known = self.client.lock();
        if let Some((of, client)) = &*known
            && *of == authorities
        {
            return Ok(client.clone());
        }
        let made = client(authorities.as_deref())?;
        *known = Some((authorities, made.clone()));
        Ok(made)
    }
}

/// Returns the URL of a receiver, from the configuration or from its file.
async fn url(receiver: &Receiver) -> Result<Uri, PostError> {
    let (field, url) = match &receiver.url {
        ReceiverUrl::Of(url) => ("url", url.0.clone()),
        ReceiverUrl::InFile(file) => ("urlFile", text("urlFile", file).await?),
    };
    check_url(&url, receiver.allow_http).map_err(|expected| PostError::Invalid { field, expected })
}

/// Returns the header with the token of a receiver. None: the receiver has no token.
async fn authorization(receiver: &Receiver) -> Result<Option<HeaderValue>, PostError> {
    let Some(file) = &receiver.token_file else { return Ok(None) };
    let token = text("tokenFile", file).await?;
    let bad = |_| PostError::Invalid {
        field: "tokenFile",
        expected: "must be a token of visible ASCII characters on one line",
    };
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(bad)?;
    header.set_sensitive(true);
    Ok(Some(header))
}

/// Returns the text of a file, without the white space around it. An empty text is an error.
async fn text(field: &'static str, file: &str) -> Result<String, PostError> {
    let bytes = read(field, file, LONGEST_SECRET).await?;
    let text = str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
    if text.is_empty() {
        return Err(PostError::Invalid { field, expected: "must be a file that isn't empty, in UTF-8" });
    }
    Ok(text.to_owned())
}

/// Reads a file of at most `longest` bytes.
async fn read(field: &'static str, file: &str, longest: u64) -> Result<Vec<u8>, PostError> {
    let unreadable = |source| PostError::Unreadable { field, source };
    let mut bytes = Vec::new();
    let file = File::open(file).await.map_err(unreadable)?;
    file.take(longest.saturating_add(1)).read_to_end(&mut bytes).await.map_err(unreadable)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > longest) {
        return Err(PostError::Invalid { field, expected: "must be a shorter file" });
    }
    Ok(bytes)
}

/// Returns the rest that a receiver asks for: seconds, or a time. None: the header has neither, or
/// the time is past.
fn rest(header: &HeaderValue) -> Option<Duration> {
    let text = header.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(until.duration_since(Timestamp::now())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_never_be_taken_is_told_from_what_is_worth_another_try() {
        let of = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            PostOutcome::of(&Err(PostError::Status { status, retry_after: None }))
        };
        for status in [413, 422] {
            assert_eq!(of(status), PostOutcome::BodyRefused, "{status}");
        }
        for status in [400, 401, 403, 404, 410] {
            assert_eq!(of(status), PostOutcome::Refused, "{status}");
        }
        for status in [301, 302, 308, 408, 429, 500, 502, 503] {
            assert_eq!(of(status), PostOutcome::Failed(None), "{status}");
        }
        assert_eq!(PostOutcome::of(&Err(PostError::Timeout)), PostOutcome::Failed(None));
        assert_eq!(PostOutcome::of(&Ok(())), PostOutcome::Sent);
    }

    #[test]
    fn a_rest_is_a_number_of_seconds_or_a_time() {
        let of = |text: &str| rest(&HeaderValue::from_str(text).unwrap());
        assert_eq!(of("30"), Some(Duration::from_secs(30)));
        assert_eq!(of("Thu, 01 Jan 1970 00:00:00 GMT"), None, "it is over");
        assert!(of("Fri, 01 Jan 2100 00:00:00 GMT").is_some_and(|rest| rest > Duration::from_hours(24)));
        for bad in ["", "soon", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
