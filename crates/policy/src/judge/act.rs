//! The acts that a judgement results in. The keeper carries them out, and judges again by comparing
//! two of them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_types::{
    journal::{AtEnd, MoreTime},
    paused::{ExceededCeiling, PausedRecord},
};

use crate::pause::{Announcement, Pause, PodDeletionCause, Reversals};

/// The pods of a batch that an act serves. A batch has the due pods of one controller, or one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchCoverage {
    /// All pods of the batch.
    All,
    /// The first pod. Each of the others needs an act of its own.
    First,
    /// The first pod, which is gone. The task of the others is still open.
    Gone,
}

/// The act that is due, with all the data that its write needs.
///
/// Only the acts for which [`Self::is_done`] is true write anything. The texts are reasons, for
/// logs.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Pause this owner.
    Pause(OwnerReference, Box<Pause>),
    /// Send the Command of a pause once more, with this action: the owner hasn't obeyed it yet.
    Command(OwnerReference, String),
    /// Delete the pod.
    DeletePod(Box<PodDeletion>),
    /// Delete an owner in place of a pause.
    DeleteOwner(Box<OwnerDeletion>),
    /// Note the end of the run on an object, emit a notice of it, or withdraw it.
    Announce(Box<Notice>),
    /// Do nothing, for this reason.
    Leave(&'static str, BatchCoverage),
    /// Do nothing yet: the facts may be out of date, for this reason.
    PutOff(&'static str, BatchCoverage),
    /// Do nothing yet: the deadline hasn't come, because the clock was set back.
    TooEarly,
    /// Do nothing: the run was granted more time.
    Extended,
    /// Do nothing while the pod has this controller.
    Exempt,
    /// Do nothing: the owner is paused already.
    PausedBefore,
    /// Do nothing yet: this owner could be paused, but the keeper may not read it.
    Forbidden(OwnerReference),
}

/// The deletion of a pod, which nothing brings back unless a controller does.
#[derive(Clone, Debug, PartialEq)]
pub struct PodDeletion {
    /// The reason why no owner is paused instead.
    pub alone: PodDeletionCause,
    /// The ceiling that was exceeded. None: the deletion has another reason.
    pub ceiling: Option<ExceededCeiling>,
    /// The owner whose pauses were undone, its last record and the reversals. None: the deletion
    /// has another reason.
    pub undone: Option<(OwnerReference, PausedRecord, Reversals)>,
}

/// The deletion of an owner at its ceiling, where the configuration has `onExpiry: Delete` for its
/// kind.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerDeletion {
    /// The owner to delete.
    pub owner: OwnerReference,
    /// The ceiling that was exceeded. None: it isn't known.
    pub ceiling: Option<ExceededCeiling>,
}

/// A notice on an owner, or on a pod without an owner that can be paused.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The object that gets the notice.
    pub object: OwnerReference,
    /// The pods that the notice serves.
    pub coverage: BatchCoverage,
    /// The end of the run.
    pub end: Timestamp,
    /// The change to the end that the object's annotations note.
    pub change: NoticeChange,
    /// The time of the notice, in whole milliseconds, that an event is to report. None: no event.
    pub announced_at: Option<Timestamp>,
    /// The action at the end of the run.
    pub then: AtEnd,
    /// The time that the run may still get by an extension. None: no more.
    pub more: Option<MoreTime>,
}

/// The change to the end of the run that an object notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeChange {
    /// The noted end stays: it is right, or Tenure hasn't written it for these pods.
    Keep,
    /// The noted end is removed.
    Clear,
    /// The end is noted.
    Set(Announcement),
}

impl Notice {
    /// True if both notices write the same to the same object and both emit an event, or neither
    /// does.
    fn does_the_same(&self, other: &Self) -> bool {
        let of = |notice: &Self| match notice.change {
            NoticeChange::Keep => (None, None),
            NoticeChange::Clear => (Some(None), None),
            // a notice that is given now has the time of the judgement, which differs
            NoticeChange::Set(noted) => {
                (Some(Some(noted.end)), noted.given.filter(|_| notice.announced_at.is_none()))
            }
        };
        (&self.object, self.end, of(self), self.announced_at.is_some())
            == (&other.object, other.end, of(other), other.announced_at.is_some())
    }
}

impl Act {
    /// True if the act writes to the API server or emits events.
    pub const fn is_done(&self) -> bool {
        matches!(
            self,
            Self::Pause(..)
                | Self::Command(..)
                | Self::DeletePod(_)
                | Self::DeleteOwner(_)
                | Self::Announce(_)
        )
    }

    /// True if both acts do the same to the same object. Times of pauses and notices are ignored,
    /// since they follow the clock. The keeper compares the act before a write with the judgement
    /// repeated at that moment.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pause(owner, one), Self::Pause(other_owner, other)) => {
                (owner, one.plan.reason) == (other_owner, other.plan.reason)
            }
            (Self::DeletePod(one), Self::DeletePod(other)) => one.alone == other.alone,
            (Self::DeleteOwner(one), Self::DeleteOwner(other)) => one.owner == other.owner,
            (Self::Announce(one), Self::Announce(other)) => one.does_the_same(other),
            (one, other) => one == other,
        }
    }
}
