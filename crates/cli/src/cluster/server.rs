//! The errors of the API server, in kubectl's words, and the API server's clock.
//!
//! Called by all commands that ask a cluster. An error about a missing right says who gives the
//! right.

use anyhow::{Error, anyhow};
use http::{Request, Uri, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{Client, client::Body, core::Status};

use crate::print::with_causes;

/// Clocks that differ by less than this count as equal: a Date header is cut to the second.
const SAME: SignedDuration = SignedDuration::from_secs(2);

/// The beginning of messages that name their origin: they need no `error:` before them.
pub const FROM_SERVER: &str = "Error from server";

/// Returns an error of a call as kubectl shows it. If a right is missing, the error says who gives
/// it.
pub fn explain(error: kube::Error) -> Error {
    let giver = match &error {
        kube::Error::Api(status) => giver(status),
        _ => "",
    };
    explain_given_by(error, giver)
}

/// Returns an error of a call. `giver` says who gives a missing right. Empty: nothing is added.
pub fn explain_given_by(error: kube::Error, giver: &str) -> Error {
    let giver = if giver.is_empty() || !lacks_right(&error) { String::new() } else { format!(": {giver}") };
    match error {
        kube::Error::Api(status) => match status.reason.as_str() {
            "" => anyhow!("{FROM_SERVER}: {}", status.message),
            reason => anyhow!("{FROM_SERVER} ({reason}): {}{giver}", status.message),
        },
        kube::Error::HyperError(_) | kube::Error::Service(_) => {
            anyhow!("no answer from the API server: {}", Error::new(error).root_cause())
        }
        other => Error::new(other).context("no answer from the API server"),
    }
}

/// True if the user lacks a right. A denial by an admission policy is forbidden, too, but no role
/// allows it.
fn lacks_right(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.message.contains(" cannot "))
}

/// Returns a sentence about who gives the right that an answer reports as missing. Empty for a path
/// that is no resource.
fn giver(status: &Status) -> &'static str {
    let of = status.details.as_ref().map_or("", |details| details.kind.as_str());
    match of {
        // a path that is no resource
        "" => "",
        "queues" | "priorityclasses" => {
            "an administrator of Tenure gives this right, by users.seeQueues of the chart"
        }
        _ if status.message.ends_with("at the cluster scope") => {
            "an administrator of the cluster gives this right, by a ClusterRoleBinding"
        }
        _ => {
            "an administrator of the namespace gives this right, by a RoleBinding to ClusterRole view or edit"
        }
    }
}

/// Returns an error of the first calls. It names the server and what to check.
pub fn unreachable(error: kube::Error, server: &Uri) -> Error {
    let server = server.to_string();
    let server = server.trim_end_matches('/');
    let (failed, cause, remedy) = match &error {
        kube::Error::Api(status) if status.reason == NO_STATUS => ("reach", NO_API.into(), ADDRESS),
        kube::Error::Api(status) if status.code == 401 => ("log in to", status.message.clone(), USER),
        kube::Error::Api(_) => return explain(error),
        kube::Error::SerdeError(_) => ("reach", NO_API.into(), ADDRESS),
        kube::Error::Auth(_) => ("log in to", with_causes(&Error::new(error)), USER),
        _ => {
            let (cause, is_trust) = root_cause(error);
            let (failed, remedy) = if is_trust { ("trust", AUTHORITY) } else { ("reach", ADDRESS) };
            (failed, cause, remedy)
        }
    };
    anyhow!("cannot {failed} the API server at {server}: {cause}: {remedy}")
}

/// Returns the root cause of an error of a call, and true if the server's certificate isn't
/// trusted.
pub fn root_cause(error: kube::Error) -> (String, bool) {
    let error = Error::new(error);
    let cause = error.root_cause();
    let text = cause.to_string();
    let is_trust = cause.is::<rustls::Error>() && text.contains("certificate");
    (text, is_trust)
}

/// The reason that kube gives to an answer that isn't a Status.
const NO_STATUS: &str = "Failed to parse error data";
const NO_API: &str = "the server there is not an API server";

const ADDRESS: &str =
    "check that it runs, and that the server of the kubeconfig's context, or --server, is right";
const AUTHORITY: &str = "check the certificate-authority of the kubeconfig's context";
const USER: &str = "check the user of the kubeconfig's context";

/// True if the API server refused the request with 403 Forbidden.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The API server's clock, with which all times are compared. It is read once, from a Date header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// The time by which the API server's clock is ahead of ours. Negative if it is behind.
    ahead: SignedDuration,
}

impl Clock {
    /// Reads the clock from an answer of the API server. Without an answer, the local clock counts.
    pub async fn of(client: &Client) -> Self {
        let Ok(request) = Request::get("/version").body(Body::empty()) else { return Self::default() };
        let response = client.send(request).await.ok();
        let date = response.as_ref().and_then(|response| response.headers().get(DATE));
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date.as_bytes()).ok());
        date.map_or_else(Self::default, |date| Self::compared(date, Timestamp::now()))
    }

    fn compared(date: Timestamp, ours: Timestamp) -> Self {
        let ahead = date.duration_since(ours);
        if ahead.abs() < SAME { Self::default() } else { Self { ahead } }
    }

    /// Returns the present time of the API server's clock.
    pub fn now(self) -> Timestamp {
        Timestamp::now().saturating_add(self.ahead).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clocks_that_really_differ_are_set_right() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(Clock::compared(at(100), at(101)).ahead, SignedDuration::ZERO);
        assert_eq!(Clock::compared(at(160), at(100)).ahead, SignedDuration::from_mins(1));
        assert_eq!(Clock::compared(at(40), at(100)).ahead, -SignedDuration::from_mins(1));
    }
}
