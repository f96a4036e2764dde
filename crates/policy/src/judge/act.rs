//! The acts that a judgement comes to.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_types::{
    journal::{AtEnd, MoreTime},
    paused::{ExceededCeiling, PausedRecord},
};

use crate::pause::{Alone, Announcement, Pause, Reversals};

/// The pods of a batch that an act serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchCoverage {
    /// All of its pods.
    All,
    /// The first. Each of the others needs an act of its own.
    First,
    /// The first, which is gone. The task of the others is still open.
    Gone,
}

/// The act that is due, with all the data that it needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Pause an owner.
    Pause(OwnerReference, Box<Pause>),
    /// Send the Command of a pause again, with this action: the owner hasn't obeyed it yet.
    Command(OwnerReference, String),
    /// Delete the pod.
    DeletePod(Box<PodDeletion>),
    /// Delete an owner in place of a pause.
    DeleteOwner(Box<OwnerDeletion>),
    /// Note the end of the run on an object, tell it, or withdraw it.
    Announce(Box<Notice>),
    /// Nothing, for this reason.
    Leave(&'static str, BatchCoverage),
    /// Nothing yet: what the act rests on may be out of date, for this reason.
    PutOff(&'static str, BatchCoverage),
    /// Nothing yet: the clock was set back.
    TooEarly,
    /// Nothing: the run was granted more time.
    Extended,
    /// Nothing, as long as the pod has this controller.
    Exempt,
    /// Nothing: the owner is paused.
    PausedBefore,
    /// Nothing yet: this owner could be paused, but may not be read.
    Forbidden(OwnerReference),
}

/// The deletion of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodDeletion {
    /// The reason why nothing is paused.
    pub alone: Alone,
    /// The ceiling that was exceeded. None: the deletion has another reason.
    pub ceiling: Option<ExceededCeiling>,
    /// The owner whose pauses were undone, with its last record.
    pub undone: Option<(OwnerReference, PausedRecord, Reversals)>,
}

/// The deletion of an owner.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerDeletion {
    /// The owner.
    pub owner: OwnerReference,
    /// The ceiling that was exceeded.
    pub ceiling: Option<ExceededCeiling>,
}

/// A notice on an owner, or on a pod that has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The object.
    pub object: OwnerReference,
    /// The pods that it serves.
    pub coverage: BatchCoverage,
    /// The end of the run.
    pub end: Timestamp,
    /// The change of what the object notes.
    pub change: NoticeChange,
    /// The time of the notice that an event tells. None: no event.
    pub told: Option<Timestamp>,
    /// The action at the end of the run.
    pub then: AtEnd,
    /// The time that the run may still get. None: no more.
    pub more: Option<MoreTime>,
}

/// The change of the end that an object notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeChange {
    /// The noted end is right, or not from Tenure.
    Keep,
    /// The noted end is removed.
    Clear,
    /// The end is noted.
    Set(Announcement),
}

impl Notice {
    fn does_the_same(&self, other: &Self) -> bool {
        let of = |notice: &Self| match notice.change {
            NoticeChange::Keep => (None, None),
            NoticeChange::Clear => (Some(None), None),
            // a notice that is given now has the time of the judgement
            NoticeChange::Set(noted) => {
                (Some(Some(noted.end)), noted.given.filter(|_| notice.told.is_none()))
            }
        };
        (&self.object, self.end, of(self), self.told.is_some())
            == (&other.object, other.end, of(other), other.told.is_some())
    }
}

impl Act {
    /// True if the act writes, or tells.
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

    /// True if an act does the same as another to the same object. Times of pauses and of notices follow the clock.
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
