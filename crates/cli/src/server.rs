//! What the API server says, in kubectl's words, and what time it has.

use anyhow::{Error, anyhow};
use http::{Request, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{Client, client::Body};

/// Clocks that differ by less count as the same: a Date header is cut to the second.
const SAME: SignedDuration = SignedDuration::from_secs(2);

/// The beginning of messages that say by themselves whose they are.
pub const FROM_SERVER: &str = "Error from server";

/// An error of a call, as kubectl shows it.
pub fn explain(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => match status.reason.as_str() {
            "" => anyhow!("{FROM_SERVER}: {}", status.message),
            reason => anyhow!("{FROM_SERVER} ({reason}): {}", status.message),
        },
        other => Error::new(other).context("no answer from the API server"),
    }
}

/// Whether the API server doesn't allow it.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The API server's clock, by which everything else goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    ahead: SignedDuration,
}

impl Clock {
    /// As the API server shows it; ours if it can't be told.
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
