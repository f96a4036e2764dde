//! The run that a pause ends.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{DuePod, Task};
use tenure_policy::{
    owners::OwnerTable,
    pause::{self, Announcement, OwnerObject, Reversals},
};
use tenure_types::{
    paused::{ExceededCeiling, GivenNotice, OwedPause},
    projection::Pod,
};

use super::super::Pauser;
use crate::recent::EVENT_REPAIR;

/// The part of a pause's record about the run that it ends, and about pauses before it.
pub(super) struct Ended {
    pub(super) ceiling: Option<ExceededCeiling>,
    pub(super) reversals: Reversals,
    /// The pauses whose events may not have been written.
    pub(super) earlier: Vec<OwedPause>,
    pub(super) unannounced: bool,
    /// A notice whose event may not have been written.
    pub(super) noticed: Option<GivenNotice>,
}

impl Pauser {
    /// Returns the part of the record about the run that a pause ends.
    pub(super) fn ended(&self, (task, pod): (Task, &Pod), due: &DuePod, object: OwnerObject<'_>) -> Ended {
        let standing = self.cluster.with(|index| index.standing(pod));
        let since = standing.and_then(|standing| standing.clocks.since(due.family));
        if task == Task::Expire {
            let reversals = Reversals::of(object, pause::MAX_DURATION_EXCEEDED, since);
            let unannounced = self.is_unannounced(due, object, since);
            let noticed = self.noticed(due, object.announcement(), since);
            Ended { ceiling: self.ceiling_of(pod), reversals, earlier: Vec::new(), unannounced, noticed }
        } else {
            let reversals = Reversals::of(object, pause::PODS_READY_TIMEOUT, since);
            Ended { ceiling: None, reversals, earlier: Vec::new(), unannounced: false, noticed: None }
        }
    }

    /// True if an owner was to get a notice of the end of a run that began at `since`, and got none. A pause that was undone
    /// has taken the notice away.
    fn is_unannounced(&self, due: &DuePod, object: OwnerObject<'_>, since: Option<Timestamp>) -> bool {
        let is_told = object.announced().is_some_and(|at| since.is_none_or(|since| at > since));
        let has_notice = self.cluster.with(|index| !index.notice(due.family, &due.queue).is_empty());
        has_notice && !is_told && object.record().is_none()
    }

    /// Returns the last notice of a run that began at `since`, if another keeper has given it a short while ago: it may have
    /// ended before it wrote the event.
    pub(in crate::action) fn noticed(
        &self,
        due: &DuePod,
        announced: Option<Announcement>,
        since: Option<Timestamp>,
    ) -> Option<GivenNotice> {
        let Announcement { end, given } = announced.filter(|Announcement { end, .. }| {
            due.told != Some(*end) && since.is_none_or(|since| *end > since)
        })?;
        let points = self.cluster.with(|index| index.notice(due.family, &due.queue));
        // a keeper that gave one notice a run didn't note when
        let first = end.checked_sub(points.iter().next()?).ok()?;
        let (at, now) = (given.unwrap_or(first), self.clock.now());
        (end <= now && now.duration_since(at) < EVENT_REPAIR).then_some(GivenNotice { end, at })
    }

    /// The ceiling of a pod.
    pub(in crate::action) fn ceiling_of(&self, pod: &Pod) -> Option<ExceededCeiling> {
        self.cluster.with(|index| {
            let standing = index.standing(pod)?;
            index.ceiling(&standing)
        })
    }

    /// True if the pods of an owner are deleted in place of another pause. What its kind's rows say comes first.
    pub(super) fn deletes_pods(
        &self,
        DuePod { family, queue, .. }: &DuePod,
        owner: &OwnerReference,
        table: &OwnerTable,
        reversals: &Reversals,
    ) -> bool {
        let (of_queue, slice_delay) =
            self.cluster.with(|index| (index.on_reversal(*family, queue), index.slice_delay(*family, queue)));
        reversals.delete_pods(table.on_reversal(owner).unwrap_or(of_queue), slice_delay)
    }
}
