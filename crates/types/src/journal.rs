//! The journal of Tenure's acts on an object in the last minutes: pauses, returns and notices.
//!
//! `tenure_policy` writes and reads the journal for the keeper. Its only use is to write the events
//! of an act that an earlier keeper couldn't write.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    ExtendedDuration,
    paused::{PausedRecord, RequeueState},
};

/// The value of annotation [`crate::keys::ACTS_ANNOTATION`], as JSON. The patch of an act also
/// writes the journal. So if a keeper ends before it writes the events of an act, another keeper
/// can. The journal decides which events are written, and nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// The uid of the object. Controllers copy annotations to other objects.
    pub uid: String,
    /// The acts, the latest last.
    pub acts: Vec<JournalAct>,
}

/// An act on an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "camelCase")]
pub enum JournalAct {
    /// The object was paused.
    Paused {
        /// The record of the pause.
        record: PausedRecord,
        /// The state of its return.
        #[serde(default)]
        state: RequeueState,
    },
    /// The object came back from a pause.
    Returned {
        /// The record of the pause.
        record: PausedRecord,
        /// The state of its return, as it was in the pause.
        #[serde(default)]
        state: RequeueState,
        /// The return.
        returned: ReturnRecord,
    },
    /// The object got a notice of the end of its run.
    Noticed(GivenNotice),
}

impl JournalAct {
    /// Returns the time of the act, by the API server's clock.
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Paused { record, .. } => record.at,
            Self::Returned { returned, .. } => returned.at,
            Self::Noticed(notice) => notice.at,
        }
    }
}

/// A return from a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReturnRecord {
    /// The time of the return, by the API server's clock.
    pub at: Timestamp,
    /// True if the owner came back before its time.
    #[serde(default)]
    pub early: bool,
    /// True if the owner came back because it was activated.
    #[serde(default)]
    pub reactivated: bool,
}

/// A notice before the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenNotice {
    /// The queue whose ceiling ends the run.
    pub queue: String,
    /// The end of the run.
    pub end: Timestamp,
    /// The time at which the notice was given.
    pub at: Timestamp,
    /// The action at the end.
    pub then: AtEnd,
    /// The time that the run may still get. None: no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<MoreTime>,
}

/// The time that a run may still get by extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoreTime {
    /// The time that is granted without approval.
    pub at_once: SignedDuration,
    /// The total that may be granted.
    pub in_all: SignedDuration,
}

/// The action on a workload at the end of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AtEnd {
    /// The workload is paused, until a person resumes it.
    Paused,
    /// The workload is paused for this time.
    Requeued(ExtendedDuration),
    /// The workload is a pod, and is deleted.
    Deleted,
    /// The workload is deleted in place of a pause.
    OwnerDeleted,
}
