//! Reviews of `PodGroup`s, which the webhook calls: only trusted writers may set when a group
//! started, or move it to another queue. Other users could make their workload immune to
//! preemption, or let it escape from its ceiling.
//!
//! A review may see its own answer once more, when another webhook has changed the object in
//! between. So a value that a review could have written a moment ago counts as such, from any user.

mod late;
mod messages;
mod read;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, value::RawValue};
use tenure_types::podgroup::{PodGroupKind, ReportedStart};

use crate::start;

pub use late::{group_counts, is_shorter};
use read::RawPodGroup;
pub use read::Unreadable;

/// The age up to which a review may see its own answer again: the API server waits 30 s for a
/// webhook at most, and a stamp in whole seconds may be up to one second older than the answer.
const COMES_BACK_WITHIN: SignedDuration = SignedDuration::from_secs(31);

/// The result of the review of a stamp, which is the start time in an annotation of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// The stamp to write. None: the object is to have no stamp.
    pub stamp: Option<String>,
    /// The change that this makes to the written stamp.
    pub change: StampChange,
    /// The warning to the writer. None: there is nothing to say.
    pub warning: Option<String>,
}

/// The change that a review makes to a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampChange {
    /// No change.
    Admitted,
    /// A missing stamp was added.
    Stamped,
    /// A stamp further in the future than clocks differ was set to the present time.
    Clamped,
    /// The change of a user who may not make it was undone.
    Reverted,
    /// A stamp that can't be read was dropped.
    Dropped,
}

impl StampChange {
    /// Returns the name of the change, a label value of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "Admitted",
            Self::Stamped => "Stamped",
            Self::Clamped => "Clamped",
            Self::Reverted => "Reverted",
            Self::Dropped => "Dropped",
        }
    }
}

/// A write of a `PodGroup`, as far as its stamp is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampWrite<'a> {
    /// True if the writer may set stamps.
    pub trusted: bool,
    /// The stamp in the write. None: the write has none.
    pub stamp: Option<&'a str>,
    /// The stored stamp. None: no stamp is stored, or the object is created.
    pub old: Option<&'a str>,
}

/// The rights of a writer of `PodGroup`s, by the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterTrust {
    /// True if the writer may set start times.
    pub start: bool,
    /// True if the writer may change the queue of a group.
    pub queue: bool,
}

/// The review of a whole object.
#[derive(Clone, Debug, PartialEq)]
pub struct PodGroupReview {
    /// The review of the stamp.
    pub start: Review,
    /// The queue that the group keeps although the write names another. None: the write is fine.
    pub queue: Option<KeptQueue>,
    /// True if the API server will refuse the write as a conflict, so that no part of it is stored.
    pub conflicts: bool,
}

/// The queue that a group keeps: it is fixed when the group is created.
///
/// To have no queue is fixed as well. The pods of such a group are in queue `default` or in the
/// queue of their label, and a queue that is filled in while they run would move them to another
/// ceiling.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptQueue {
    /// `spec.queue` as it is stored. None: there is none.
    pub queue: Option<Value>,
    /// True if the object that is written has a `spec`.
    pub has_spec: bool,
    /// The warning to the writer.
    pub warning: String,
}

/// Returns the queue that the group keeps. None: the write doesn't change it.
fn kept_queue(object: &RawPodGroup<'_>, old: &RawPodGroup<'_>) -> Option<KeptQueue> {
    let (written, queue) = (object.queue(), old.queue());
    (written != queue).then(|| KeptQueue {
        warning: messages::kept_queue(written.as_ref(), queue.as_ref()),
        has_spec: object.has_spec(),
        queue,
    })
}

/// Reviews an object that is created or changed: `old` is None for a creation. An error: an object
/// can't be read.
///
/// An object that is being deleted is reviewed as well: finalizers can hold it for as long as its
/// pods run, and all that time its stamp and its queue count.
pub fn review(
    kind: PodGroupKind,
    object: &RawValue,
    old: Option<&RawValue>,
    trust: WriterTrust,
    now: Timestamp,
) -> Result<PodGroupReview, Unreadable> {
    let object = RawPodGroup::read(object)?;
    let old = old.map(RawPodGroup::read).transpose()?;
    let stamps = (object.stamp(), old.as_ref().and_then(RawPodGroup::stamp));
    let write = StampWrite { trusted: trust.start, stamp: stamps.0, old: stamps.1 };
    // The status in an update isn't stored: it is written by itself. The status in a creation is
    // stored for some kinds, and is only a claim of the writer: no pod of the group has run yet. A
    // group in deletion needs no stamp.
    let shows = old.as_ref().filter(|old| !old.is_going());
    let start = write.review(|| shows.map_or(ReportedStart::Nothing, |of| of.shown(kind)), now);
    let is_fixed = kind.names_queue() && !trust.queue;
    let conflicts = old.as_ref().is_some_and(|old| object.conflicts_with(old));
    let queue = old.filter(|_| is_fixed).and_then(|old| kept_queue(&object, &old));
    Ok(PodGroupReview { start, queue, conflicts })
}

impl StampWrite<'_> {
    /// Reviews the stamp. `shown` returns the start that the stored status shows; it is called only
    /// if it is needed.
    pub fn review(&self, shown: impl Fn() -> ReportedStart, now: Timestamp) -> Review {
        // a stamp that can't be read counts as absent
        let old = self.old.filter(|text| start::read(text).is_some());
        let is_kept = self.stamp == self.old || self.stamp == old;
        let may = self.trusted || is_kept || self.is_ours(old, &shown, now);
        let given = if may { self.stamp } else { old };
        let (stamp, change) = match given.map(|text| (text, start::read(text))) {
            // the clock of this machine may be behind: an earlier stamp would end the run early
            Some((_, Some(at))) if !start::is_about(at, now) => {
                (Some(start::write(now)), StampChange::Clamped)
            }
            Some((text, Some(_))) => (Some(text.to_owned()), StampChange::Admitted),
            Some((_, None)) => (stamp(&shown, now), StampChange::Dropped),
            // a trusted writer that removes the stamp knows better than the status
            None if self.trusted && self.old.is_some() => (None, StampChange::Admitted),
            None => match stamp(&shown, now) {
                Some(stamp) => (Some(stamp), StampChange::Stamped),
                None => (None, StampChange::Admitted),
            },
        };
        let change = if may { change } else { StampChange::Reverted };
        let warning = self.warning(change, stamp.as_deref());
        Review { stamp, change, warning }
    }

    /// True if an earlier review could have written this stamp less than `COMES_BACK_WITHIN` ago,
    /// or from the status.
    fn is_ours(&self, old: Option<&str>, shown: impl FnOnce() -> ReportedStart, now: Timestamp) -> bool {
        let Some((text, at)) = self.stamp.and_then(|text| Some((text, start::read(text)?))) else {
            return false;
        };
        let is_now = text == start::write(at) && at <= now && now.duration_since(at) < COMES_BACK_WITHIN;
        match old.map(start::read) {
            Some(old) => is_now && Some(at) < old,
            None => match shown() {
                ReportedStart::Nothing => false,
                ReportedStart::Running => is_now,
                ReportedStart::Since(since) => {
                    start::is_about(at, now) && text == start::write(since) || is_now && at < since
                }
            },
        }
    }
}

/// Returns the stamp to write where there is none: the start that the status shows, or the present
/// time. None: the group doesn't run.
fn stamp(shown: impl FnOnce() -> ReportedStart, now: Timestamp) -> Option<String> {
    match shown() {
        ReportedStart::Nothing => None,
        ReportedStart::Running => Some(start::write(now)),
        ReportedStart::Since(at) => Some(start::write(if start::is_about(at, now) { at } else { now })),
    }
}

#[cfg(test)]
mod tests;
