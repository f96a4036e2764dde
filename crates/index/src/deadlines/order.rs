//! Pods in the order in which their tasks are due. Each [`DueOrder`] has two lanes, and all due pods
//! of the first come before those of the second: pods whose run could not be ended before can't
//! delay others. Evictions and notices use the first lane alone.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tenure_types::wait::Wait;

use super::due::ActionOutcome;
use crate::{
    Uid,
    times::{NEVER, milliseconds_up},
};

/// The wait before the second try to stop a pod. It doubles with each further try, up to eight
/// times this wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(pub Duration);

impl Default for RetryAfter {
    fn default() -> Self {
        Self(Duration::from_secs(5))
    }
}

/// The wait after an end that has moved. By then, the watches show the new end.
const SHOWN_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// The lane of a try. The first lane comes before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// First tries to end a run, and all tries to evict a pod or to give a notice.
    First,
    /// Further tries to end a run.
    Again,
}

/// The place of a pod in a [`DueOrder`]: a lane, and a time in milliseconds since the epoch. By
/// default, a pod has no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderSlot(i64);

impl OrderSlot {
    /// No place in any lane. It lies between the two lanes.
    pub const NONE: Self = Self(0);
    /// The greatest distance of a time from the epoch. Timestamps take 49 bits.
    const REACH: i64 = 1 << 60;
    /// The distance of each lane's epoch from [`Self::NONE`]: before it in the first lane, after it
    /// in the second.
    const EPOCH: i64 = 1 << 61;

    /// Returns the place at a time in milliseconds since the epoch. For [`NEVER`], returns
    /// [`Self::NONE`].
    pub fn new(lane: Lane, at: i64) -> Self {
        if at == NEVER { Self::NONE } else { Self::at(lane, at) }
    }

    fn at(lane: Lane, at: i64) -> Self {
        let at = at.clamp(-Self::REACH, Self::REACH);
        Self(match lane {
            Lane::First => at.saturating_sub(Self::EPOCH),
            Lane::Again => at.saturating_add(Self::EPOCH),
        })
    }

    pub const fn lane(self) -> Lane {
        if self.0 < 0 { Lane::First } else { Lane::Again }
    }

    /// Returns the time in milliseconds since the epoch. None: the pod has no place.
    pub fn time(self) -> Option<i64> {
        let epoch = Self::at(self.lane(), 0).0;
        (self != Self::NONE).then(|| self.0.saturating_sub(epoch))
    }

    /// Returns the time, if this place is in the same lane as `other` and its time is before `now`.
    pub fn due_with(self, other: Self, now: i64) -> Option<i64> {
        self.time().filter(|at| self.lane() == other.lane() && *at < now)
    }
}

/// Pods by the time at which a task is due.
#[derive(Debug, Default)]
pub struct DueOrder(BTreeSet<(OrderSlot, Uid)>);

impl DueOrder {
    /// Moves a pod from its place in `slot` to another, and updates `slot`.
    pub fn place(&mut self, uid: Uid, slot: &mut OrderSlot, to: OrderSlot) {
        if *slot == to {
            return;
        }
        self.0.remove(&(*slot, uid));
        if to != OrderSlot::NONE {
            self.0.insert((to, uid));
        }
        *slot = to;
    }

    /// Returns the pods of a lane whose time is at least `from` and less than `to`.
    fn range(&self, lane: Lane, from: i64, to: i64) -> impl Iterator<Item = (OrderSlot, Uid)> {
        let (from, to) = (OrderSlot::at(lane, from), OrderSlot::at(lane, to));
        self.0.range((from, Uid::MIN)..(to, Uid::MIN)).copied()
    }

    /// Returns the pods whose time is before `now`, those of the first lane first.
    pub fn due(&self, now: i64) -> impl Iterator<Item = (OrderSlot, Uid)> {
        self.range(Lane::First, i64::MIN, now).chain(self.range(Lane::Again, i64::MIN, now))
    }

    /// True if a pod of the first lane is due before `now`.
    pub fn is_pressed(&self, now: i64) -> bool {
        self.range(Lane::First, i64::MIN, now).next().is_some()
    }

    /// Returns the time of the next place that isn't due at `now`. None: there is no such place.
    pub fn next_from(&self, now: i64) -> Option<i64> {
        let next = |lane| self.range(lane, now, NEVER).next()?.0.time();
        [Lane::First, Lane::Again].into_iter().filter_map(next).min()
    }

    /// Returns pods among which is the pod that was due first, no matter when its next try is.
    pub fn may_be_first(&self) -> impl Iterator<Item = Uid> {
        let first = self.range(Lane::First, i64::MIN, NEVER).take(1);
        first.chain(self.range(Lane::Again, i64::MIN, NEVER)).map(|(_, uid)| uid)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The progress of a task about a pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskProgress {
    pub tries: Tries,
    pub slot: OrderSlot,
}

/// The number of tries of a task, and the earliest time of the next: eight bytes, since each pod
/// has some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// The earliest time of the next try, in milliseconds since the epoch, up to the year 10889.
    /// The greatest is [`NEVER`].
    not_before: [u8; 6],
    /// The number of tries that succeeded and didn't help. For notices, the number of failed tries.
    in_vain: u8,
    /// The number of failed tries to stop a pod.
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

    /// Records the outcome of a try to stop a pod, and the time of the next try.
    pub fn record_outcome(&mut self, outcome: ActionOutcome, retry_after: RetryAfter, now: Timestamp) {
        let RetryAfter(first) = retry_after;
        let wait = Wait { first, last: first.saturating_mul(8) };
        match outcome {
            ActionOutcome::Acted | ActionOutcome::Paused => self.count_done(now, wait),
            ActionOutcome::Failed => {
                self.wait(now, wait);
                self.failed = self.failed.saturating_add(1);
            }
            ActionOutcome::TooEarly => {}
            ActionOutcome::Moved => self.wait_until(now.checked_add(SHOWN_AFTER).unwrap_or(Timestamp::MAX)),
            ActionOutcome::Final => self.not_before = Self::NEVER,
        }
    }

    /// Counts a try in `in_vain`. The next try follows after the wait.
    pub fn count_done(&mut self, now: Timestamp, wait: Wait) {
        self.wait(now, wait);
        self.in_vain = self.in_vain.saturating_add(1);
    }

    /// Forgets all tries after a success: the next one counts as the first.
    pub const fn forget(&mut self) {
        (self.in_vain, self.failed) = (0, 0);
    }

    /// Forgets the tries if the end has moved to `end` since, beyond the time of the next try: they
    /// were made for an earlier end. After a final outcome, all tries count as before.
    pub fn forget_before(&mut self, end: i64) {
        let next = self.not_before();
        // 0: there was no try, or another one was allowed after a final outcome
        if next > 0 && next < end {
            self.forget();
        }
    }

    /// Allows another try after a final outcome. Earlier tries count as before.
    pub fn revive(&mut self) {
        if self.not_before == Self::NEVER {
            self.not_before = [0; 6];
        }
    }

    fn wait(&mut self, now: Timestamp, wait: Wait) {
        let tries = self.in_vain.saturating_add(self.failed);
        self.wait_until(now.checked_add(wait.after(tries.into())).unwrap_or(Timestamp::MAX));
    }

    fn wait_until(&mut self, at: Timestamp) {
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
                let slot = OrderSlot::new(lane, at);
                assert_eq!((slot.lane(), slot.time()), (lane, Some(at)));
            }
        }
        assert_eq!(OrderSlot::new(Lane::First, NEVER), OrderSlot::NONE);
        assert_ne!(OrderSlot::new(Lane::First, i64::MIN), OrderSlot::NONE);
        assert_eq!(size_of::<OrderSlot>(), 8);
    }

    #[test]
    fn places_of_one_lane_are_due_together_once_their_time_is_past() {
        let at = |lane| OrderSlot::new(lane, 5);
        let [first, again] = [Lane::First, Lane::Again].map(at);
        assert_eq!([5, 6].map(|now| first.due_with(first, now)), [None, Some(5)]);
        assert_eq!([first.due_with(again, 6), again.due_with(first, 6)], [None, None]);
        assert_eq!(OrderSlot::NONE.due_with(again, NEVER), None);
    }

    #[test]
    fn a_pod_that_moves_leaves_the_lane_that_it_stood_in() {
        let (mut order, mut slot, uid) = (DueOrder::default(), OrderSlot::NONE, Uid::of("a"));
        order.place(uid, &mut slot, OrderSlot::new(Lane::First, 5));
        order.place(uid, &mut slot, OrderSlot::new(Lane::Again, 7));
        assert_eq!(
            (order.len(), order.next_from(i64::MIN), order.due(8).map(|(_, uid)| uid).collect()),
            (1, Some(7), vec![uid])
        );
        order.place(uid, &mut slot, OrderSlot::NONE);
        assert_eq!((order.len(), order.next_from(i64::MIN), order.due(NEVER).count()), (0, None, 0));
    }

    #[test]
    fn first_tries_come_before_others_that_are_due_earlier() {
        let mut order = DueOrder::default();
        for (uid, lane, at) in [("again", Lane::Again, 1), ("first", Lane::First, 5)] {
            order.place(Uid::of(uid), &mut { OrderSlot::NONE }, OrderSlot::new(lane, at));
        }
        let due = |now| order.due(now).map(|(_, uid)| uid).collect::<Vec<_>>();
        let [first, again] = ["first", "again"].map(Uid::of);
        assert_eq!((due(1), due(2), due(6)), (vec![], vec![again], vec![first, again]));
    }

    #[test]
    fn the_next_that_is_not_due_is_found_behind_those_that_are() {
        let mut order = DueOrder::default();
        for (uid, lane, at) in [("a", Lane::First, 1), ("b", Lane::Again, 3), ("c", Lane::First, 5)] {
            order.place(Uid::of(uid), &mut { OrderSlot::NONE }, OrderSlot::new(lane, at));
        }
        let next = [0, 1, 2, 3, 4, 5, 6].map(|now| order.next_from(now));
        assert_eq!(next, [Some(1), Some(1), Some(3), Some(3), Some(5), Some(5), None]);
    }

    #[test]
    fn failed_tries_lengthen_the_wait_and_count_apart() {
        let wait = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };
        let mut tries = Tries::default();
        assert_eq!(tries.lane(), Lane::First);
        for seconds in [5, 10] {
            tries.record_outcome(ActionOutcome::Failed, RetryAfter(wait.first), Timestamp::UNIX_EPOCH);
            assert_eq!((tries.not_before(), tries.in_vain()), (seconds * 1_000, 0));
        }
        for seconds in [20, 40, 40] {
            tries.count_done(Timestamp::UNIX_EPOCH, wait);
            assert_eq!(tries.not_before(), seconds * 1_000);
        }
        assert_eq!((tries.in_vain(), tries.lane()), (3, Lane::Again));
        let mut helped = tries;
        helped.forget();
        assert_eq!((helped.in_vain(), helped.lane()), (0, Lane::First));
        helped.count_done(Timestamp::UNIX_EPOCH, wait);
        assert_eq!(helped.not_before(), 5_000, "the next wait is the shortest");
        tries.count_done(Timestamp::MAX, wait);
        assert_eq!((tries.not_before(), size_of::<Tries>()), (milliseconds_up(Timestamp::MAX), 8));
        let before = tries.lane();
        tries.record_outcome(ActionOutcome::Moved, RetryAfter::default(), Timestamp::UNIX_EPOCH);
        assert_eq!((tries.not_before(), tries.in_vain(), tries.lane()), (1_000, 4, before), "no try");
        tries.record_outcome(ActionOutcome::Final, RetryAfter::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(tries.not_before(), NEVER);
    }
}
