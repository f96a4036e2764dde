//! The ways in which a list or a watch fails, and what each of them means for the next step of
//! `Follower`.

use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

use crate::call::retry_after;

/// The problem that was last logged, so that each problem is logged once.
#[derive(PartialEq, Eq)]
pub(super) enum LoggedProblem {
    None,
    Missing,
    Other(String),
}

/// The cause of a failed list or watch.
#[derive(Debug, Error)]
pub(super) enum WatchFailure {
    #[error("failed to list")]
    List(#[source] kube::Error),
    #[error("failed to begin a watch")]
    Begin(#[source] kube::Error),
    #[error("failed to watch")]
    Watch(#[source] kube::Error),
    #[error("the API server has ended the watch: {} ({})", .0.message, .0.code)]
    Ended(Box<Status>),
    #[error("the API server doesn't answer the watch")]
    Silent,
    #[error("the API server has cut the list short")]
    Unfinished,
    #[error("the API server's answer has no resourceVersion")]
    NoVersion,
    #[error(
        "the API server is at version {now}, and the watch was at {watched}: its data was restored. Listing all again"
    )]
    Restored { now: String, watched: String },
}

impl WatchFailure {
    /// True if the API server lacks the kind. By the code alone: about an unknown group the API
    /// server answers in plain text.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::List(kube::Error::Api(status)) if status.code == 404)
    }

    /// True if conversion failed. The API server has no code of its own for that, so the message
    /// decides.
    pub(super) fn is_unconverted(&self) -> bool {
        matches!(self, Self::List(kube::Error::Api(status)) if status.message.contains("conversion webhook"))
    }

    /// True if a watch can't go on: its version is too old, the kind is gone, or the data was
    /// restored. A new list decides.
    pub(super) fn needs_list(&self) -> bool {
        match self {
            Self::Begin(kube::Error::Api(status)) => [404, 410].contains(&status.code),
            Self::Ended(status) => status.code == 410,
            Self::List(_) | Self::Unfinished | Self::NoVersion | Self::Restored { .. } => true,
            Self::Begin(_) | Self::Watch(_) | Self::Silent => false,
        }
    }

    /// True if the API server has forgotten the watched version, as after a restart. No fault of
    /// the API server, so the failure is no warning.
    pub(super) fn is_expired(&self) -> bool {
        match self {
            Self::Begin(kube::Error::Api(status)) | Self::Ended(status) => status.code == 410,
            _ => false,
        }
    }

    /// True if the API server refuses to stream a list, for want of the feature or of a cache:
    /// pages may work. Such an API server answers at once, unlike one that is short of time.
    pub(super) fn refuses_streams(&self) -> bool {
        matches!(self, Self::List(kube::Error::Api(status)) if ![404, 410, 429].contains(&status.code))
    }

    /// True if a list got no answer of the API server, as without a connection.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self, Self::List(error) if !matches!(error, kube::Error::Api(_)))
    }

    /// Returns the time that the API server asks to wait before another try. Zero: it asks for
    /// none.
    pub(super) fn retry_after(&self) -> Duration {
        match self {
            Self::List(error) | Self::Begin(error) | Self::Watch(error) => retry_after(error),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_too_old_is_no_fault_and_lists_again() {
        let status = |code| Box::new(Status { code, ..Status::default() });
        let begin = |code| WatchFailure::Begin(kube::Error::Api(status(code)));
        for (failure, expired) in [
            (begin(410), true),
            (WatchFailure::Ended(status(410)), true),
            (begin(404), false),
            (WatchFailure::Ended(status(500)), false),
            (WatchFailure::Silent, false),
        ] {
            assert_eq!(failure.is_expired(), expired, "{failure}");
            assert!(!expired || failure.needs_list(), "{failure}");
        }
    }
}
