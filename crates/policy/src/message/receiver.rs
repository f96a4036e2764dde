//! Receivers of messages.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use http::{Uri, uri::Scheme};
use serde::Deserialize;

use crate::{pause::RunEnd, reason::EventReason};

/// The source of messages where their receiver names none.
pub const DEFAULT_SOURCE: &str = "/tenure";

/// The rule for a URL, as in messages.
pub(crate) const NO_URL: &str = "must be a URL, such as https://example.com/path";
const NO_USER: &str = "must be a URL without user and password: set tokenFile";
const NO_HTTPS: &str =
    "must be an https URL: http is for loopback addresses, and others with allowHTTP: true";

/// A receiver of messages, by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The name in metrics and logs.
    pub name: String,
    /// The form of its messages.
    pub format: MessageFormat,
    /// The address to which messages are posted.
    pub url: ReceiverUrl,
    /// A file with a token, for header `Authorization: Bearer`.
    pub token_file: Option<String>,
    /// A file with the authorities, in PEM, that may have signed its certificate, in place of the public ones.
    pub ca_file: Option<String>,
    /// The source that messages name, for receivers of several clusters.
    pub source: String,
    /// The reasons of the messages that it gets; none: those that matter to most.
    pub reasons: Option<BTreeSet<EventReason>>,
    /// True if its URL may be of plain http.
    pub allow_http: bool,
}

/// The form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum MessageFormat {
    /// `CloudEvents` 1.0, structured, in JSON.
    CloudEvents,
    /// A text as incoming webhooks of Slack take it.
    Slack,
}

/// The address of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverUrl {
    /// The address itself.
    Of(SecretText),
    /// A file with the address, for one that is a secret.
    InFile(String),
}

/// A text that isn't shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<not shown>")
    }
}

impl Receiver {
    /// True if it gets messages of this reason, of which this is the note.
    pub fn wants(&self, reason: EventReason, note: &str) -> bool {
        match &self.reasons {
            Some(reasons) => reasons.contains(&reason),
            // a dry run tells nothing else about the end of a run
            None if reason == EventReason::MaxDurationExceeded => RunEnd::is_dry_run(note),
            None => !reason.properties().is_on_request,
        }
    }
}

/// Checks the URL of a receiver. An error says what it must be, and nothing of what it is.
pub fn check_url(url: &str, allow_http: bool) -> Result<Uri, &'static str> {
    let uri: Uri = url.parse().map_err(|_| NO_URL)?;
    let authority = uri.authority().ok_or(NO_URL)?;
    if authority.as_str().contains('@') {
        return Err(NO_USER);
    }
    let host = authority.host();
    let is_http = uri.scheme() == Some(&Scheme::HTTP);
    if host.is_empty() || !(is_http || uri.scheme() == Some(&Scheme::HTTPS)) {
        return Err(NO_URL);
    }
    if is_http && !allow_http && !is_loopback(host) {
        return Err(NO_HTTPS);
    }
    Ok(uri)
}

fn is_loopback(host: &str) -> bool {
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
