//! Stamps that are to be written, one at a time for each `PodGroup`.

use std::collections::{BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use tenure_types::podgroup::PodGroupKind;

use super::group::GroupKey;

/// The first and the longest time until a stamp that couldn't be written is tried again.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
const LAST_RETRY: SignedDuration = SignedDuration::from_mins(5);

/// So often a group is stamped in one run without a pause: somebody may take each stamp away again.
const WITHOUT_PAUSE: u8 = 3;

/// A start that is to be written on a `PodGroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamping {
    /// The kind of the group.
    pub kind: PodGroupKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which of that name.
    pub uid: String,
    /// The version that this was decided by: of another one it may be wrong.
    pub resource_version: String,
    /// The start, in whole seconds.
    pub start: Timestamp,
    /// How often it couldn't be written before.
    pub attempts: u8,
    /// Of which run it is.
    pub(super) ended: u32,
    /// What it is handed out by: only that is settled by it.
    pub(super) claim: u32,
}

/// The result of writing a stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamped {
    /// It was written, and this is the group's version now.
    Written(String),
    /// It is only said, and not again for the same start.
    Said,
    /// The group was changed since, or is gone: a watch will tell.
    Stale,
    /// It couldn't be written: it is tried again after a while, which grows from time to time.
    Failed,
}

/// How far the stamp of a group has come.
#[derive(Debug, Default)]
pub struct Stamp {
    queued: bool,
    claim: Option<u32>,
    /// It is judged at once when there is another version.
    stale: bool,
    attempts: u8,
    /// How often it was stamped in this run.
    written: u8,
    /// In milliseconds since the epoch.
    not_before: i64,
    said: Option<Timestamp>,
}

/// Groups whose stamps are to be looked at.
#[derive(Debug, Default)]
pub struct Stamps {
    queue: VecDeque<GroupKey>,
    retries: BTreeSet<(i64, GroupKey)>,
    claims: u32,
}

impl Stamps {
    /// The stamp of a group may have to be written.
    pub fn judge(&mut self, key: &GroupKey, stamp: &mut Stamp) {
        if !std::mem::replace(&mut stamp.queued, true) {
            self.queue.push_back(key.clone());
        }
    }

    /// How many groups are to be looked at, with those that are gone.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// No groups are to be looked at but these.
    pub fn requeue(&mut self, keys: impl Iterator<Item = GroupKey>) {
        self.queue = keys.collect();
    }

    /// Forgets which groups are to be looked at.
    pub fn clear(&mut self) {
        (self.queue, self.retries) = (VecDeque::new(), BTreeSet::new());
    }

    /// A group has another version.
    pub fn renewed(&mut self, key: &GroupKey, stamp: &mut Stamp) {
        if std::mem::replace(&mut stamp.stale, false) {
            stamp.not_before = i64::MIN;
            self.judge(key, stamp);
        }
    }

    /// The next group to look at: those first that have not failed.
    pub fn next(&mut self, now: Timestamp) -> Option<GroupKey> {
        self.queue.pop_front().or_else(|| {
            // at first all groups were in it
            self.queue = VecDeque::new();
            let is_due = self.retries.first().is_some_and(|(at, _)| *at <= now.as_millisecond());
            is_due.then(|| self.retries.pop_first()).flatten().map(|(_, key)| key)
        })
    }

    /// When there may be something to write, unless something changes before.
    pub fn next_retry(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.retries.first()?.0).ok()
    }

    /// Hands out a start; returns the claim, and how often it couldn't be written before. None if it isn't to be
    /// written now.
    pub fn claim(
        &mut self,
        stamp: &mut Stamp,
        start: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<(u32, u8)> {
        stamp.queued = false;
        let start = start?;
        if stamp.claim.is_some() || stamp.not_before > now.as_millisecond() || stamp.said == Some(start) {
            return None;
        }
        self.claims = self.claims.wrapping_add(1);
        (stamp.claim, stamp.stale) = (Some(self.claims), false);
        Some((self.claims, stamp.attempts))
    }

    /// Takes back a start. `is_current` says whether its group is of the version that it was decided by.
    pub fn settle(
        &mut self,
        key: &GroupKey,
        stamp: &mut Stamp,
        (stamping, stamped): (&Stamping, &Stamped),
        is_current: bool,
        now: Timestamp,
    ) {
        match stamped {
            Stamped::Written(_) => {
                stamp.attempts = 0;
                stamp.written = stamp.written.saturating_add(1);
                if let Some(more) = stamp.written.checked_sub(WITHOUT_PAUSE) {
                    stamp.not_before = self.retry(key, now, wait(more));
                }
            }
            Stamped::Said => stamp.said = Some(stamping.start),
            Stamped::Stale if is_current => {
                stamp.stale = true;
                stamp.not_before = self.retry(key, now, FIRST_RETRY);
            }
            Stamped::Stale => {}
            Stamped::Failed => {
                stamp.not_before = self.retry(key, now, wait(stamp.attempts));
                stamp.attempts = stamp.attempts.saturating_add(1);
            }
        }
        self.judge(key, stamp);
    }

    fn retry(&mut self, key: &GroupKey, now: Timestamp, wait: SignedDuration) -> i64 {
        let at = now.checked_add(wait).map_or(i64::MAX, Timestamp::as_millisecond);
        self.retries.insert((at, key.clone()));
        at
    }

    /// Takes back what was claimed by somebody who is gone.
    pub fn release(&mut self, key: &GroupKey, stamp: &mut Stamp) {
        if stamp.claim.take().is_some() {
            self.judge(key, stamp);
        }
    }
}

impl Stamp {
    pub const fn is_queued(&self) -> bool {
        self.queued
    }

    /// Takes back a claim; says whether it was this one.
    pub fn take_back(&mut self, claim: u32) -> bool {
        self.claim.take_if(|of| *of == claim).is_some()
    }

    /// The run has ended: the next is stamped as if it were the first.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.written) >= WITHOUT_PAUSE {
            self.not_before = i64::MIN;
        }
    }
}

/// After a time that doubles with each attempt.
fn wait(attempts: u8) -> SignedDuration {
    FIRST_RETRY.saturating_mul(1 << attempts.min(8)).min(LAST_RETRY)
}
