//! The ways in which an act fails.
//!
//! The `ExpiryController` logs an [`ActionFailure`], and decides by it whether the try counts towards the
//! deletion of the pod.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{BatchCoverage, DuePod};
use tenure_policy::naming::describe;
use tenure_service::call::ApiError;
use thiserror::Error;

/// The time past the deadline of a pod from which on a try is late. Nine tries from then on end
/// within ten minutes of the deadline.
const LATE_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// True if a try for a pod is late.
pub fn is_late(due: &DuePod, now: Timestamp) -> bool {
    now.duration_since(due.deadline) >= LATE_AFTER
}

/// The reason why an act failed.
#[derive(Debug, Error)]
pub enum ActionFailure {
    /// A call failed for which no other variant stands, or the API server doesn't answer at all.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The pod wasn't deleted.
    #[error("failed to delete the pod")]
    Delete(#[source] ApiError),
    /// The owner couldn't be read for a pause, or the write was refused or failed.
    #[error("failed to pause {}", describe(.owner))]
    Pause { owner: OwnerReference, source: ApiError },
    /// The owner wasn't deleted.
    #[error("failed to delete {}", describe(.owner))]
    DeleteOwner { owner: OwnerReference, source: ApiError },
    /// The keeper may not read the owner. Nothing below the owner is paused in its place.
    #[error("not allowed to get {}: grant it to the keeper's service account, since nothing below it may be paused in its place", describe(.0))]
    ForbiddenOwner(OwnerReference),
    /// The served schema of the owner has none of the fields of its rules.
    #[error("{} has no field that pauses it: its schema has none of {fields}", describe(.owner))]
    NoField { owner: OwnerReference, fields: String },
    /// An owner on the way up, or a Workload of Kueue, couldn't be read.
    #[error("failed to read {}", describe(.owner))]
    Unreadable { owner: OwnerReference, source: ApiError },
    /// The API server answered with success, and the returned owner lacks the pause or its record.
    #[error("the API server took the patch of {} and dropped {field}", describe(.owner))]
    Dropped { owner: OwnerReference, field: String },
}

impl ActionFailure {
    /// True if the object was changed since it was read.
    pub const fn is_stale(&self) -> bool {
        matches!(
            self,
            Self::Api(ApiError::Stale(_))
                | Self::Pause { source: ApiError::Stale(_), .. }
                | Self::DeleteOwner { source: ApiError::Stale(_), .. }
        )
    }

    /// True if the object to act on is gone.
    pub const fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Api(ApiError::NotFound)
                | Self::Pause { source: ApiError::NotFound, .. }
                | Self::DeleteOwner { source: ApiError::NotFound, .. }
        )
    }

    /// Returns the pods of the batch to which the failure applies.
    pub const fn serves(&self) -> BatchCoverage {
        if matches!(self, Self::Delete(_)) { BatchCoverage::First } else { BatchCoverage::All }
    }

    /// True if the failure counts as a try: the API server answers, and this owner can't be read or
    /// paused. After enough tries the pod itself is deleted.
    ///
    /// With `is_late`, a try also counts if the owner changes each time before it is paused, or if
    /// the API server fails to change the owner, as while an admission webhook is down. The API
    /// server answers all else then: the same act has read the pod and its queue, and the Lease was
    /// renewed meanwhile.
    pub fn counts_as_try(&self, is_late: bool) -> bool {
        match self {
            Self::Pause { source, .. } | Self::DeleteOwner { source, .. } => {
                source.is_refusal() || (is_late && is_in_the_way(source))
            }
            Self::ForbiddenOwner(_)
            | Self::NoField { .. }
            | Self::Dropped { .. }
            | Self::Unreadable { .. } => true,
            Self::Api(_) | Self::Delete(_) => false,
        }
    }

    /// Returns the kind of the object whose pause or deletion was refused, or failed in a way that
    /// counts as a try. None: the act failed for another reason.
    pub fn refused(&self, is_late: bool) -> Option<&str> {
        match self {
            Self::Pause { owner, .. } | Self::DeleteOwner { owner, .. } if self.counts_as_try(is_late) => {
                Some(&owner.kind)
            }
            Self::ForbiddenOwner(owner) | Self::NoField { owner, .. } | Self::Dropped { owner, .. } => {
                Some(&owner.kind)
            }
            Self::Delete(source) if source.is_refusal() => Some("Pod"),
            _ => None,
        }
    }
}

/// True if a change of an owner failed for a reason that its user can keep up for any time.
fn is_in_the_way(source: &ApiError) -> bool {
    matches!(source, ApiError::Stale(_)) || (source.is_open() && !source.is_throttled())
}
