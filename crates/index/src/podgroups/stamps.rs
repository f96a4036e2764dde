//! Starts that are to be written on `PodGroup`s. The keeper's `Stamps` asks for them and writes
//! them; the webhook keeps no such state. A stamp is never later than the clock: a start that lies
//! ahead waits for its time.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenure_policy::start::LongestFormation;

use super::{Gangs, gang::Gang, group::GroupKey};
use crate::times::{Milliseconds, milliseconds, milliseconds_up};

/// The place of groups that are checked at once, also for a start far ahead of the clock: a time in
/// the past.
pub const AT_ONCE: i64 = 0;

/// A start that is to be written on a `PodGroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingStamp {
    /// The group.
    pub group: GroupKey,
    /// The group's uid: the name may be another group's by now.
    pub uid: String,
    /// The version of the group on which the decision is based: for another version it may be
    /// wrong.
    pub resource_version: String,
    /// The start, in whole seconds.
    pub start: Timestamp,
    /// The number of the run that the start belongs to.
    pub run: u32,
    /// The number of stamps that were written in this run: a user may remove each again.
    pub written: u8,
}

/// The way in which a stamp was given to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StampForm {
    /// The stamp was written, and this is the group's version now.
    Written(String),
    /// The stamp was only logged, in a dry run, and isn't logged again for the same start.
    Said,
}

/// The progress of a group's stamp.
#[derive(Debug, Default)]
pub struct Stamp {
    /// The group's place in the order of [`StampSchedule`]. None: it has no place there.
    place: Option<Milliseconds>,
    /// The number of stamps that were written in this run.
    pub written: u8,
    /// The start that was logged, in whole seconds.
    said: Option<Milliseconds>,
}

/// Groups whose stamps must be checked, by time.
#[derive(Debug, Default)]
pub struct StampSchedule(pub(super) BTreeSet<(i64, GroupKey)>);

impl StampSchedule {
    /// Moves a group to another place in the order. None for `to`: removes the group.
    pub fn place(&mut self, key: &GroupKey, stamp: &mut Stamp, to: Option<i64>) {
        if let Some(at) = stamp.place.take() {
            self.0.remove(&(at.get(), key.clone()));
        }
        self.0.extend(to.map(|at| (at, key.clone())));
        stamp.place = to.and_then(Milliseconds::new);
    }

    /// Takes the first group whose place has come by `now`.
    fn next(&mut self, now: Timestamp) -> Option<GroupKey> {
        self.0.first().filter(|(at, _)| *at <= now.as_millisecond())?;
        self.0.pop_first().map(|(_, key)| key)
    }
}

impl Gang {
    /// Returns the start that is to be written on the group. None: its stamp is right, was logged,
    /// or lies ahead of the clock.
    fn stamping(&self, key: &GroupKey, formation: LongestFormation, now: Timestamp) -> Option<PendingStamp> {
        let start = self.run(formation)?.to_stamp(now)?;
        let (stamp, group) = (&self.keeper.as_ref()?.stamp, self.group.as_ref()?);
        let is_said = stamp.said.is_some_and(|said| said.get() == start.as_millisecond());
        (!is_said).then(|| PendingStamp {
            group: key.clone(),
            uid: group.uid.as_ref().into(),
            resource_version: group.resource_version.as_ref().into(),
            start,
            run: self.ended,
            written: stamp.written,
        })
    }
}

impl Gangs {
    /// Returns the starts that are to be written on groups which have changed since the last call,
    /// or whose start has come.
    pub fn new_stampings(&mut self, now: Timestamp) -> Vec<PendingStamp> {
        self.compute();
        let Self { by_key, members, moved, stamps, formation, .. } = self;
        let mut found = Vec::new();
        while let Some(key) = stamps.next(now) {
            let Some(gang) = by_key.get_mut(&key) else { continue };
            // the start is set back even if the stamp can't be written
            if gang.set_back(*formation, now) && gang.compute(members, *formation) {
                moved.extend(gang.members());
            }
            let ahead = gang.start.filter(|start| *start > now).map(milliseconds_up);
            if let Some(keeper) = &mut gang.keeper {
                stamps.place(&key, &mut keeper.stamp, ahead);
            }
            found.extend(gang.stamping(&key, *formation, now));
        }
        found
    }

    /// Returns the start that is to be written on a group now. None: there is none any more.
    pub fn stamping(
        &mut self,
        PendingStamp { group: key, .. }: &PendingStamp,
        now: Timestamp,
    ) -> Option<PendingStamp> {
        self.compute();
        let gang = self.by_key.get_mut(key)?;
        let stamping = gang.stamping(key, self.formation, now);
        if let Some(keeper) = gang.keeper.as_mut().filter(|_| stamping.is_none()) {
            // the clock may have been set back
            self.stamps.place(key, &mut keeper.stamp, Some(AT_ONCE));
        }
        stamping
    }

    /// Returns the time at which there may be a new start to write, unless something changes
    /// before.
    pub fn next_stamp(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.stamps.0.first()?.0).ok()
    }

    /// Records a stamp that was written or logged. Another group of the same name is left alone.
    pub fn note_stamp(&mut self, stamping: &PendingStamp, stamped: StampForm) {
        let Some(gang) = self.by_key.get_mut(&stamping.group) else { return };
        let (Some(keeper), Some(group)) = (&mut gang.keeper, &mut gang.group) else { return };
        if *group.uid != *stamping.uid {
            return;
        }
        let StampForm::Written(version) = stamped else {
            keeper.stamp.said = milliseconds(stamping.start);
            return;
        };
        if *group.resource_version == *stamping.resource_version {
            // as the watch will show; another version than the stamped one came later
            (group.stamp, group.resource_version) = (Some(stamping.start), version.into());
        }
        if gang.ended == stamping.run {
            keeper.stamp.written = keeper.stamp.written.saturating_add(1);
        } else {
            // the run that it belongs to has ended before it was written
            gang.left = Some(stamping.start);
        }
        self.changed.insert(stamping.group.clone());
    }
}
