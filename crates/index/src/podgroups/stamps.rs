//! Starts that are to be written on `PodGroup`s, one at a time for each.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use tenure_policy::start::LongestFormation;
use tenure_types::{podgroup::PodGroupKind, wait::Wait};

use super::{Gangs, gang::Gang, group::GroupKey};
use crate::{
    CeilingIndex,
    cluster::Objects,
    times::{Milliseconds, end_of, milliseconds_up},
};

/// The wait before another try of a stamp that couldn't be written.
const RETRY: Wait = Wait { first: Duration::from_secs(5), last: Duration::from_mins(5) };

/// The number of stamps on a group in one run without a pause between them: a user may remove each again.
const WITHOUT_PAUSE: u8 = 3;

/// The place of groups that come before all that wait: a time in the past.
const AT_ONCE: i64 = 0;

/// A start that is to be written on a `PodGroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamping {
    /// The kind of the group.
    pub kind: PodGroupKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: the name may be another group's by now.
    pub uid: String,
    /// The version on which the decision is based: for another one it may be wrong.
    pub resource_version: String,
    /// The start, in whole seconds.
    pub start: Timestamp,
    /// The number of failed attempts to write it.
    pub attempts: u8,
    /// The run that it belongs to.
    pub(super) ended: u32,
    /// The claim that it is handed out under. Its result counts only for that claim.
    pub(super) claim: u32,
}

/// The result of writing a stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamped {
    /// It was written, and this is the group's version now.
    Written(String),
    /// It was only logged, in a dry run, and isn't again for the same start.
    Said,
    /// The group was changed since, or is gone: a watch event will follow.
    Stale,
    /// It couldn't be written: another try follows after a while, which grows with each try.
    Failed,
}

/// The progress of a group's stamp.
#[derive(Debug, Default)]
pub struct Stamp {
    /// Its place in the order of [`StampSchedule`], if it stands there.
    place: Option<Milliseconds>,
    /// The claim that it is handed out under.
    claim: Option<u32>,
    /// True if it may be written at once when there is another version.
    stale: bool,
    attempts: u8,
    /// The number of stamps in this run.
    written: u8,
    /// None if it may be written at once.
    not_before: Option<Milliseconds>,
    /// The start that was logged, in whole seconds.
    said: Option<Milliseconds>,
}

/// Groups whose stamps are to be checked, by time.
#[derive(Debug, Default)]
pub struct StampSchedule {
    pub(super) order: BTreeSet<(i64, GroupKey)>,
    claims: u32,
}

impl Stamp {
    /// Ends the run: the next is stamped as if it were the first.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.written) >= WITHOUT_PAUSE {
            self.not_before = None;
        }
    }

    /// Notes another version of the group.
    pub fn renew(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.not_before = None;
        }
    }

    /// Takes it back. `is_current` is true if its group still has the version on which the decision is based.
    fn settle(&mut self, start: Timestamp, stamped: &Stamped, is_current: bool, now: Timestamp) {
        match stamped {
            Stamped::Written(_) => {
                self.attempts = 0;
                self.written = self.written.saturating_add(1);
                if let Some(more) = self.written.checked_sub(WITHOUT_PAUSE) {
                    self.wait(more, now);
                }
            }
            Stamped::Said => self.said = Milliseconds::new(start.as_millisecond()),
            Stamped::Stale if is_current => {
                self.stale = true;
                self.wait(0, now);
            }
            Stamped::Stale => {}
            Stamped::Failed => {
                self.wait(self.attempts, now);
                self.attempts = self.attempts.saturating_add(1);
            }
        }
    }

    fn wait(&mut self, tries: u8, now: Timestamp) {
        self.not_before = Milliseconds::new(end_of(RETRY, tries, now).as_millisecond());
    }
}

impl StampSchedule {
    /// Has a group checked at once, though its stamp may have to wait: a start far ahead of the clock is noted then, too.
    pub fn judge(&mut self, key: &GroupKey, stamp: &mut Stamp) {
        self.place(key, stamp, Some(AT_ONCE));
    }

    /// Moves a group to another place in the order; to none, if it is gone.
    pub fn place(&mut self, key: &GroupKey, stamp: &mut Stamp, to: Option<i64>) {
        if let Some(at) = stamp.place.take() {
            self.order.remove(&(at.get(), key.clone()));
        }
        self.order.extend(to.map(|at| (at, key.clone())));
        stamp.place = to.and_then(Milliseconds::new);
    }

    fn next(&mut self, now: Timestamp) -> Option<GroupKey> {
        self.order.first().filter(|(at, _)| *at <= now.as_millisecond())?;
        self.order.pop_first().map(|(_, key)| key)
    }

    /// Hands out the start that is to be written on a group; none if there is none, or one is being written. A start that
    /// the clock hasn't reached waits for it.
    fn claim(
        &mut self,
        key: &GroupKey,
        gang: &mut Gang,
        formation: LongestFormation,
        now: Timestamp,
    ) -> Option<Stamping> {
        let start = gang.run(formation).and_then(|run| run.to_stamp(now));
        let ahead = gang.start.filter(|start| *start > now);
        let stamp = &mut gang.keeper.as_mut()?.stamp;
        stamp.place = None;
        if let Some(ahead) = ahead {
            self.place(key, stamp, Some(milliseconds_up(ahead)));
            return None;
        }
        let (start, group) = start.zip(gang.group.as_ref())?;
        if stamp.claim.is_some() || stamp.said.is_some_and(|said| said.get() == start.as_millisecond()) {
            return None;
        }
        if let Some(at) = stamp.not_before.filter(|at| at.get() > now.as_millisecond()) {
            self.place(key, stamp, Some(at.get()));
            return None;
        }
        self.claims = self.claims.wrapping_add(1);
        (stamp.claim, stamp.stale) = (Some(self.claims), false);
        Some(Stamping {
            kind: key.kind,
            namespace: key.namespace.as_str().into(),
            name: key.name.as_str().into(),
            uid: group.uid.as_ref().into(),
            resource_version: group.resource_version.as_ref().into(),
            start,
            attempts: stamp.attempts,
            ended: gang.ended,
            claim: self.claims,
        })
    }
}

impl CeilingIndex {
    /// Hands out the next start that is to be written on its `PodGroup`. It isn't handed out again before it is taken
    /// back.
    pub fn claim_stamp(&mut self, now: Timestamp) -> Option<Stamping> {
        self.objects.gangs.compute();
        let Gangs { by_key, members, moved, stamps, formation, .. } = &mut self.objects.gangs;
        while let Some(key) = stamps.next(now) {
            let Some(gang) = by_key.get_mut(&key) else { continue };
            // not only when that is written: it may not be possible
            if gang.set_back(*formation, now) && gang.compute(members, *formation) {
                moved.extend(gang.members());
            }
            let stamping = stamps.claim(&key, gang, *formation, now);
            if stamping.is_some() {
                return stamping;
            }
        }
        None
    }

    /// The time at which there may be a start to write, unless something changes before.
    pub fn next_stamp(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.objects.gangs.stamps.order.first()?.0).ok()
    }

    /// Takes back a start.
    pub fn settle_stamp(&mut self, stamping: &Stamping, stamped: Stamped, now: Timestamp) {
        let Objects { gangs, interner, .. } = &mut self.objects;
        let key = GroupKey::new(stamping.kind, &stamping.namespace, &stamping.name, &mut interner.names);
        let Some(gang) = gangs.by_key.get_mut(&key) else { return };
        let Some(stamp) = gang.keeper.as_mut().map(|keeper| &mut keeper.stamp) else { return };
        if stamp.claim.take_if(|claim| *claim == stamping.claim).is_none() {
            return;
        }
        let current = gang.group.as_mut().filter(|group| {
            *group.uid == *stamping.uid && *group.resource_version == *stamping.resource_version
        });
        stamp.settle(stamping.start, &stamped, current.is_some(), now);
        gangs.stamps.judge(&key, stamp);
        if let Stamped::Written(version) = stamped {
            if let Some(group) = current {
                // as the watch will show; another version than the stamped one came later
                (group.stamp, group.resource_version) = (Some(stamping.start), version.into());
            }
            if gang.ended != stamping.ended {
                // the run that it belongs to has ended before it was written
                gang.left = Some(stamping.start);
            }
        }
        gangs.changed.insert(key);
    }

    /// Takes back all starts that were handed out: the keeper that was to write them doesn't lead any more.
    pub fn release_stamps(&mut self) {
        let Gangs { by_key, stamps, .. } = &mut self.objects.gangs;
        for (key, gang) in by_key {
            if let Some(keeper) = &mut gang.keeper
                && keeper.stamp.claim.take().is_some()
            {
                stamps.judge(key, &mut keeper.stamp);
            }
        }
    }
}
