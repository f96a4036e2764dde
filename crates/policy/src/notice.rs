//! The points in time at which a workload gets notices before the end of its run, and the rule for
//! which is due.
//!
//! Queues and the configuration set them as `expiryNotice`. The index schedules notices by them,
//! and the judgement asks them whether the last notice covers a point.

use std::{fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp};
use tenure_types::{DurationError, ExtendedDuration, Points, duration::PointsGrammar};

/// The points before the end of a run at which its workload gets a notice. None by default.
///
/// Only the time of the last notice is stored; it covers every point whose time had come by then.
/// So no point is announced twice, and points that have passed together are announced as one. If
/// the end moves so that a point lies ahead again, that point gets a notice again. Times count in
/// whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoticePoints(Points<ExtendedDuration>);

impl<D: PointsGrammar> From<Points<D>> for NoticePoints {
    fn from(points: Points<D>) -> Self {
        Self(points.extended())
    }
}

/// Reads the grammar of v3alpha1 and of the configuration: `1h,10m`, or `0s` for no notice.
impl FromStr for NoticePoints {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        text.parse().map(Self)
    }
}

impl NoticePoints {
    /// Returns the points of a run that goes on for a grace because a change of queues has made it
    /// overdue: one notice at the beginning of the grace covers all points within it. A run that
    /// gets no notice otherwise gets none here.
    #[must_use]
    pub fn of_grace(self, grace: SignedDuration) -> Self {
        let grace = if self.is_empty() { ExtendedDuration::ZERO } else { ExtendedDuration::of(grace) };
        Self(grace.into())
    }

    /// Returns the longest time before the end; zero if workloads get no notice.
    pub fn longest(&self) -> ExtendedDuration {
        self.0.longest()
    }

    /// True if workloads get no notice.
    pub fn is_empty(&self) -> bool {
        self.longest().is_zero()
    }

    /// Returns the points as durations before the end, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = SignedDuration> {
        self.0.iter().map(ExtendedDuration::to_signed)
    }

    /// Returns the times of the points before an end, in milliseconds since the epoch, the earliest
    /// first.
    pub fn before(&self, end: Timestamp) -> impl Iterator<Item = i64> {
        let before = move |point| end.checked_sub(point).map_or(i64::MIN, Timestamp::as_millisecond);
        self.iter().map(before)
    }

    /// Returns the time of the first point that the last notice, given at `given`, doesn't cover.
    /// It may be past or future. `given` None: no notice was given, so the first point counts. Both
    /// are in milliseconds since the epoch.
    pub fn next(&self, end: Timestamp, given: Option<i64>) -> Option<i64> {
        self.before(end).find(|at| given.is_none_or(|given| *at > given))
    }

    /// Returns the time of the last point that has come by `now`. None: no point has come.
    pub fn last(&self, end: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let last = self.before(end).take_while(|at| *at <= now.as_millisecond()).last()?;
        Timestamp::from_millisecond(last).ok()
    }

    /// True if a notice is due: the time of a point has come by `now`, and the notice at `given`
    /// doesn't cover it. None: no notice was given.
    pub fn owes(&self, end: Timestamp, given: Option<Timestamp>, now: Timestamp) -> bool {
        let given = given.map(Timestamp::as_millisecond);
        self.next(end, given).is_some_and(|at| at <= now.as_millisecond())
    }
}

/// Writes the points as the field has them: `1h,10m`, or `0s`.
impl fmt::Display for NoticePoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(text: &str) -> NoticePoints {
        text.parse().unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn owes(text: &str, end: i64, given: i64, now: i64) -> bool {
        points(text).owes(at(end), Some(at(given)), at(now))
    }

    #[test]
    fn order_and_duplicates_of_points_do_not_matter() {
        assert_eq!(points("10m,1h,60m,5s"), points("1h, 10m,5s"));
        assert_eq!(points("10m,60m").to_string(), "60m,10m");
        assert_eq!((points("0s"), points("0s").to_string()), (NoticePoints::default(), "0s".to_owned()));
        assert!(points("0").is_empty() && !points("1ms").is_empty());
    }

    #[test]
    fn each_point_is_owed_once() {
        assert!(!owes("100s,10s", 1000, 900, 900), "the notice at its very time covers it");
        assert!(!owes("100s,10s", 1000, 900, 989));
        assert!(owes("100s,10s", 1000, 900, 990));
        assert!(!owes("100s,10s", 1000, 990, 999));
    }

    #[test]
    fn points_that_have_passed_together_are_owed_as_one() {
        assert!(owes("100s,50s,10s", 1000, 899, 995));
        assert!(!owes("100s,50s,10s", 1000, 995, 999));
    }

    #[test]
    fn points_that_lie_ahead_again_are_owed_again_when_their_time_comes() {
        assert!(!owes("100s,10s", 2000, 995, 1000));
        assert!(owes("100s,10s", 2000, 995, 1900));
        assert!(!owes("100s,10s", 1050, 995, 996), "950 is covered, and 1040 lies ahead");
        assert!(owes("100s,10s", 1050, 995, 1040));
    }

    #[test]
    fn an_end_that_moves_so_near_that_a_point_has_passed_owes_it_at_once() {
        assert!(owes("100s,10s", 911, 900, 902), "901 has passed, and lies behind the notice");
    }

    #[test]
    fn a_point_before_the_beginning_of_time_has_passed() {
        let end = Timestamp::MIN;
        assert_eq!(points("1h").next(end, None), Some(i64::MIN));
        assert_eq!(points("1h").next(end, Some(i64::MIN)), None);
    }
}
