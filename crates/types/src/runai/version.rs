//! The versions of the Queue of the run.ai family. A flag of the webhook and the keeper says in
//! which version a cluster's queues are read.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::SPEC_ANNOTATIONS;

/// A version of the Queue of the run.ai family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueVersion {
    /// Tenure's own version.
    #[default]
    V3alpha1,
    /// KAI-Scheduler's version. The fields that only v3alpha1 has are annotations here.
    V2,
}

/// The error for an unknown version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be v3alpha1 or v2")]
pub struct UnknownQueueVersion;

/// The fields of floors, each with the annotation that holds its text in v2: the text as written in
/// v3alpha1, where v2 can't express it.
pub const FLOOR_ANNOTATIONS: [(&str, &str); 2] = [
    ("preemptMinRuntime", "tenure.dev/preempt-min-runtime"),
    ("reclaimMinRuntime", "tenure.dev/reclaim-min-runtime"),
];

impl QueueVersion {
    /// Returns the name, as in an apiVersion.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V3alpha1 => "v3alpha1",
            Self::V2 => "v2",
        }
    }

    /// Returns the path of a field of a v3alpha1 spec in an object of this version:
    /// `spec.maxDuration`, or `metadata.annotations[tenure.dev/max-duration]`.
    pub fn path(self, field: &str) -> String {
        let annotation = SPEC_ANNOTATIONS.iter().find(|(known, _)| self == Self::V2 && *known == field);
        annotation.map_or_else(|| format!("spec.{field}"), |(_, key)| format!("metadata.annotations[{key}]"))
    }
}

impl fmt::Display for QueueVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for QueueVersion {
    type Err = UnknownQueueVersion;

    fn from_str(text: &str) -> Result<Self, UnknownQueueVersion> {
        [Self::V3alpha1, Self::V2].into_iter().find(|known| known.name() == text).ok_or(UnknownQueueVersion)
    }
}
