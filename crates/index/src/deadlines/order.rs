//! Pods in the order in which something is due.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::{
    Uid,
    times::{Milliseconds, NEVER, milliseconds_up},
};

/// First tries come before those that were made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    First,
    Again,
}

/// The place of a pod in an [`Order`]. The entry itself says in which lane it stands, so that it is always found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(Option<Milliseconds>);

impl Slot {
    /// In no lane.
    pub const NONE: Self = Self(None);

    /// None for [`NEVER`].
    pub fn new(lane: Lane, at: i64) -> Self {
        // one bit holds the lane; timestamps take 49
        let at = (at != NEVER).then(|| at.clamp(i64::MIN >> 2, i64::MAX >> 2));
        Self(at.and_then(|at| Milliseconds::new(at << 1 | i64::from(lane == Lane::Again))))
    }

    fn get(self) -> Option<(Lane, i64)> {
        let bits = self.0?.get();
        Some((if bits & 1 == 0 { Lane::First } else { Lane::Again }, bits >> 1))
    }
}

/// Pods by when something is due, in milliseconds since the epoch.
#[derive(Debug, Default)]
pub struct Order {
    first: BTreeSet<(i64, Uid)>,
    again: BTreeSet<(i64, Uid)>,
}

impl Order {
    /// Moves a pod to another place.
    pub fn place(&mut self, uid: Uid, slot: &mut Slot, to: Slot) {
        if *slot == to {
            return;
        }
        if let Some((lane, at)) = std::mem::replace(slot, to).get() {
            self.lane_mut(lane).remove(&(at, uid));
        }
        if let Some((lane, at)) = to.get() {
            self.lane_mut(lane).insert((at, uid));
        }
    }

    /// The first entry of each lane, first tries first.
    fn heads(&self) -> impl Iterator<Item = (i64, Uid)> {
        [&self.first, &self.again].into_iter().filter_map(|lane| lane.first().copied())
    }

    /// The time of the next entry.
    pub fn next(&self) -> Option<i64> {
        self.heads().map(|(at, _)| at).min()
    }

    /// The pods of which one was due first, whenever it is tried again.
    pub fn may_be_first(&self) -> impl Iterator<Item = Uid> {
        self.first.iter().take(1).chain(&self.again).map(|(_, uid)| *uid)
    }

    /// The pod that is due by now, with the place where it stands: first tries first.
    pub fn due(&self, now: i64) -> Option<(Uid, Slot)> {
        let of = |lane| {
            let (at, uid) = *self.lane(lane).first().filter(|(at, _)| *at < now)?;
            Some((uid, Slot::new(lane, at)))
        };
        of(Lane::First).or_else(|| of(Lane::Again))
    }

    pub fn len(&self) -> usize {
        self.first.len().saturating_add(self.again.len())
    }

    /// How many are due by now.
    pub fn count_due(&self, now: i64) -> usize {
        let lanes = self.first.iter().take_while(|(at, _)| *at < now);
        lanes.chain(self.again.iter().take_while(|(at, _)| *at < now)).count()
    }

    const fn lane(&self, lane: Lane) -> &BTreeSet<(i64, Uid)> {
        match lane {
            Lane::First => &self.first,
            Lane::Again => &self.again,
        }
    }

    const fn lane_mut(&mut self, lane: Lane) -> &mut BTreeSet<(i64, Uid)> {
        match lane {
            Lane::First => &mut self.first,
            Lane::Again => &mut self.again,
        }
    }
}

impl Slot {
    /// The time, if the place is in the same lane as another one and due by `now`.
    pub fn due_with(self, other: Self, now: i64) -> Option<i64> {
        let ((lane, at), (same, _)) = (self.get()?, other.get()?);
        (lane == same && at < now).then_some(at)
    }
}

/// The first and the longest time until a try is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub first: SignedDuration,
    pub last: SignedDuration,
}

/// How often something was tried, and when it may be tried again: eight bytes, since each pod has some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// In milliseconds since the epoch, up to the year 10889. The greatest is [`NEVER`].
    not_before: [u8; 6],
    /// How often it was done, and didn't help.
    in_vain: u8,
    /// How often it could not be done.
    failed: u8,
}

impl Tries {
    const NEVER: [u8; 6] = [u8::MAX; 6];

    pub fn not_before(self) -> i64 {
        let milliseconds = || self.not_before.into_iter().fold(0, |at, byte| at << 8 | i64::from(byte));
        if self.not_before == Self::NEVER { NEVER } else { milliseconds() }
    }

    pub const fn in_vain(self) -> u8 {
        self.in_vain
    }

    pub const fn lane(self) -> Lane {
        if self.in_vain == 0 && self.failed == 0 { Lane::First } else { Lane::Again }
    }

    /// It was done. It is done again after a while if that doesn't help.
    pub fn count_done(&mut self, now: Timestamp, wait: Wait) {
        self.wait(now, wait);
        self.in_vain = self.in_vain.saturating_add(1);
    }

    /// It could not be done.
    pub fn count_failed(&mut self, now: Timestamp, wait: Wait) {
        self.wait(now, wait);
        self.failed = self.failed.saturating_add(1);
    }

    /// It helped: the next try is the first.
    pub const fn forget(&mut self) {
        (self.in_vain, self.failed) = (0, 0);
    }

    /// It isn't tried again.
    pub const fn end(&mut self) {
        self.not_before = Self::NEVER;
    }

    /// The wait doubles with each try.
    fn wait(&mut self, now: Timestamp, Wait { first, last }: Wait) {
        let tries = self.in_vain.saturating_add(self.failed);
        let wait = first.saturating_mul(1 << tries.min(8)).min(last);
        let Ok(at) = now.checked_add(wait) else { return self.end() };
        let [_, _, not_before @ ..] = milliseconds_up(at).max(0).to_be_bytes();
        self.not_before = not_before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_its_lane_and_its_time() {
        for lane in [Lane::First, Lane::Again] {
            for at in [0, 1, -1, 1_800_000_000_000, Timestamp::MIN.as_millisecond()] {
                assert_eq!(Slot::new(lane, at).get(), Some((lane, at)));
            }
        }
        assert_eq!(Slot::new(Lane::First, NEVER), Slot::NONE);
        assert_ne!(Slot::new(Lane::First, i64::MIN), Slot::NONE);
        assert_eq!(size_of::<Slot>(), 8);
    }

    #[test]
    fn a_pod_that_moves_leaves_the_lane_that_it_stood_in() {
        let (mut order, mut slot, uid) = (Order::default(), Slot::NONE, Uid::of("a"));
        order.place(uid, &mut slot, Slot::new(Lane::First, 5));
        order.place(uid, &mut slot, Slot::new(Lane::Again, 7));
        assert_eq!((order.len(), order.next(), order.due(8).map(|(uid, _)| uid)), (1, Some(7), Some(uid)));
        order.place(uid, &mut slot, Slot::NONE);
        assert_eq!((order.len(), order.next(), order.due(NEVER)), (0, None, None));
    }

    #[test]
    fn first_tries_come_before_others_that_are_due_earlier() {
        let mut order = Order::default();
        for (uid, lane, at) in [("again", Lane::Again, 1), ("first", Lane::First, 5)] {
            order.place(Uid::of(uid), &mut { Slot::NONE }, Slot::new(lane, at));
        }
        let due = |now| order.due(now).map(|(uid, _)| uid);
        assert_eq!((due(1), due(2), due(6)), (None, Some(Uid::of("again")), Some(Uid::of("first"))));
        assert_eq!((order.count_due(2), order.count_due(6)), (1, 2));
    }

    #[test]
    fn failed_tries_lengthen_the_wait_and_count_apart() {
        let wait = Wait { first: SignedDuration::from_secs(5), last: SignedDuration::from_secs(40) };
        let mut tries = Tries::default();
        assert_eq!(tries.lane(), Lane::First);
        for seconds in [5, 10] {
            tries.count_failed(Timestamp::UNIX_EPOCH, wait);
            assert_eq!((tries.not_before(), tries.in_vain()), (seconds * 1_000, 0));
        }
        for seconds in [20, 40, 40] {
            tries.count_done(Timestamp::UNIX_EPOCH, wait);
            assert_eq!(tries.not_before(), seconds * 1_000);
        }
        assert_eq!((tries.in_vain(), tries.lane()), (3, Lane::Again));
        tries.count_done(Timestamp::MAX, wait);
        assert_eq!((tries.not_before(), size_of::<Tries>()), (NEVER, 8));
    }
}
