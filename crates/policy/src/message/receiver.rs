//! The receivers of messages, as the configuration lists them: their URL, their form, and the
//! reasons that they want.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use http::{Uri, uri::Scheme};
use serde::Deserialize;

use crate::{pause::RunEnd, reason::EventReason};

/// The source of messages whose receiver sets none.
pub const DEFAULT_SOURCE: &str = "/tenure";

/// The rule for a URL, in the words of an error.
pub(crate) const NO_URL: &str = "must be a URL, such as https://example.com/path";
const NO_USER: &str = "must be a URL without user and password: set tokenFile";
const NO_HTTPS: &str =
    "must be an https URL: http is for loopback addresses, and others with allowHTTP: true";

/// A receiver of messages, which the keeper posts by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The name of the receiver in metrics and logs.
    pub name: String,
    /// The form of its messages.
    pub format: MessageFormat,
    /// The address to post messages to.
    pub url: ReceiverUrl,
    /// The path of a file with a token for header `Authorization: Bearer`. None: no such header.
    pub token_file: Option<String>,
    /// The path of a file with CA certificates in PEM, which replace the public ones. None: the
    /// public ones count.
    pub ca_file: Option<String>,
    /// The source named in messages, so that a receiver can tell clusters apart.
    pub source: String,
    /// The reasons of the messages that the receiver gets. None: all reasons but those that are
    /// only sent on request.
    pub reasons: Option<BTreeSet<EventReason>>,
    /// True if the URL may use plain http for any host.
    pub allow_http: bool,
}

/// The form of a message's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum MessageFormat {
    /// `CloudEvents` 1.0, structured, in JSON.
    CloudEvents,
    /// JSON with a text, as incoming webhooks of Slack take it.
    Slack,
}

/// The address of a receiver, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverUrl {
    /// The address itself, written in the configuration.
    Of(SecretText),
    /// The path of a file with the address.
    InFile(String),
}

/// A text that isn't shown in logs: its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<not shown>")
    }
}

impl Receiver {
    /// True if the receiver gets messages of this reason. `note` is the text of the event.
    pub fn wants(&self, reason: EventReason, note: &str) -> bool {
        match &self.reasons {
            Some(reasons) => reasons.contains(&reason),
            // a dry run emits no other message about the end of a run
            None if reason == EventReason::MaxDurationExceeded => RunEnd::is_dry_run(note),
            None => !reason.properties().is_on_request,
        }
    }
}

/// Checks the URL of a receiver, and returns it parsed. An error says what the URL must be, and
/// shows nothing of it.
///
/// Plain http is for loopback addresses, unless `allow_http` is set. A URL with a user or a
/// password is refused.
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

/// True for `localhost` and for the literal loopback addresses of IPv4 and IPv6.
fn is_loopback(host: &str) -> bool {
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
