//! The start of a workload, and the check of its stamp (phase 1 of the min-runtime design).
//!
//! A stamp outlives its run, every user who may write a `PodGroup` may have written it, and the
//! keeper that corrects it may have been away. The status of pods can't be forged: the stamp counts
//! as far as it agrees with them.
//!
//! The index derives starts here, the keeper writes the stamps, and the webhook reviews stamps by
//! the same bounds.

use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_types::{ExtendedDuration, keys};

/// The most by which a stamp may be later than the start that pods show, or than the present time
/// where they show none: clocks differ, and each scheduler has its own.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// The longest time from the scheduling of its first pod to a workload's start, by default 30
/// minutes. Without this bound, a user who sets its minimum or adds pods to it could move its start
/// again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestFormation(pub ExtendedDuration);

impl Default for LongestFormation {
    fn default() -> Self {
        Self(ExtendedDuration::of(SignedDuration::from_mins(30)))
    }
}

/// The known facts about the present run of a `PodGroup`. A pod is active if it is scheduled,
/// hasn't ended, and isn't terminating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// The stamped start. None: there is no stamp, or it can't be read.
    pub stamp: Option<Timestamp>,
    /// The stamp that the last run left behind. None: its end wasn't seen.
    pub left: Option<Timestamp>,
    /// The creation of the oldest active pod. None: there is no active pod.
    pub oldest: Option<Timestamp>,
    /// The start that the active pods show. None: there are fewer than the workload needs.
    pub shown: Option<Timestamp>,
    /// The scheduling of the first pod of the run. None: it isn't known.
    pub first_scheduled: Option<Timestamp>,
    /// The longest time from the first scheduling to the start.
    pub formation: LongestFormation,
}

impl RunFacts {
    /// Returns the start. None: the workload doesn't run, or lacks its minimums. The start may be
    /// ahead of a slow clock.
    pub fn start(&self) -> Option<Timestamp> {
        let start = self.started()?;
        // tenants decide on the minimums of a group and on its members
        let latest =
            self.first_scheduled.and_then(|first| first.checked_add(self.formation.0.to_signed()).ok());
        Some(latest.map_or(start, |latest| start.min(latest)))
    }

    /// Returns the start without the bound of [`LongestFormation`].
    fn started(&self) -> Option<Timestamp> {
        match (self.present_stamp(), self.shown) {
            // a workload that grows keeps its stamp, and replaced pods show a later start than the
            // true one
            (Some(stamp), Some(shown)) if is_about(stamp, shown) => Some(stamp),
            (_, Some(shown)) => Some(shown),
            (stamp, None) => stamp,
        }
    }

    /// Returns the stamp to write, if there is none yet, or the present one is of an earlier run or
    /// can't be true. None: there is nothing to write, or the clock hasn't reached the start. A
    /// stamp of an earlier time would end the run early.
    pub fn to_stamp(&self, now: Timestamp) -> Option<Timestamp> {
        let start = second_down(self.start().filter(|start| *start <= now)?);
        (self.stamp.map(second_down) != Some(start)).then_some(start)
    }

    /// Returns the time to which a start is set back that only a stamp shows, and that is further
    /// ahead of the clock than clocks differ. None: the start stays.
    ///
    /// The time is the present, but never before the first pod was scheduled. A start that pods
    /// show is never set back: they can't be forged, so the clock is behind.
    pub fn set_back(&self, now: Timestamp) -> Option<Timestamp> {
        let is_ahead = self.shown.is_none() && !is_about(self.start()?, now);
        is_ahead.then(|| second_down(now)).into_iter().chain(self.first_scheduled.filter(|_| is_ahead)).max()
    }

    /// Returns the stamp if it is of the present run. No pod of this run existed when an earlier
    /// run was stamped.
    fn present_stamp(&self) -> Option<Timestamp> {
        let oldest = second_down(self.oldest?);
        self.stamp.filter(|stamp| Some(*stamp) != self.left && *stamp >= oldest)
    }
}

/// True if a stamp is later than another time by at most `SKEW`, or earlier by any amount.
pub(crate) fn is_about(stamp: Timestamp, shown: Timestamp) -> bool {
    stamp.duration_since(shown) <= SKEW
}

/// Rounds down to a whole second, as the API writes times: so a stamp is never later than the start.
pub fn second_down(at: Timestamp) -> Timestamp {
    at.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor)).unwrap_or(at)
}

/// Rounds up to a whole second, so that a written time is never before the real one.
pub(crate) fn second_up(at: Timestamp) -> Timestamp {
    at.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Ceil)).unwrap_or(at)
}

/// Reads the stamp of a `PodGroup`. None: it has no stamp. An error is the text that can't be read.
pub fn stamp(metadata: &ObjectMeta) -> Option<Result<Timestamp, &str>> {
    let text = metadata.annotations.as_ref()?.get(keys::LAST_START_ANNOTATION)?;
    Some(read(text).ok_or(text))
}

/// Reads a stamp. None: it isn't a time in UTC in the form of RFC 3339.
pub fn read(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|_| is_rfc3339(text))
}

/// Returns a stamp in the form that other programs write: whole seconds, UTC.
pub fn write(at: Timestamp) -> String {
    second_down(at).to_string()
}

/// True for a time in UTC in RFC 3339. Other programs that read stamps accept no other form.
fn is_rfc3339(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00") else { return false };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) if fraction.starts_with('0') => fraction.trim_start_matches('0'),
        Some(_) => return false,
        None => rest,
    };
    matches!(zone, "Z" | "+00:00" | "-00:00")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(1_000_000 + second).ok()
    }

    /// A run by its stamp, the stamp that the last run left, the creation of the oldest active pod, and the shown
    /// start.
    fn run(stamp: Option<i64>, left: Option<i64>, oldest: Option<i64>, shown: Option<i64>) -> RunFacts {
        let at = |second: Option<i64>| second.and_then(at);
        let (stamp, left, oldest, shown) = (at(stamp), at(left), at(oldest), at(shown));
        RunFacts { stamp, left, oldest, shown, ..RunFacts::default() }
    }

    fn starts(stamp: Option<i64>, left: Option<i64>, oldest: Option<i64>, shown: Option<i64>) -> Option<i64> {
        run(stamp, left, oldest, shown).start().map(|start| start.as_second() - 1_000_000)
    }

    #[test]
    fn without_a_stamp_it_started_when_its_pods_show() {
        assert_eq!(starts(None, None, Some(1), Some(5)), Some(5));
        assert_eq!(starts(None, None, Some(1), None), None);
        assert_eq!(starts(None, None, None, None), None);
    }

    #[test]
    fn growth_and_replaced_pods_keep_the_stamp() {
        assert_eq!(starts(Some(5), None, Some(1), Some(5)), Some(5));
        assert_eq!(starts(Some(5), None, Some(4), Some(900)), Some(5));
        assert_eq!(starts(Some(5), None, Some(4), None), Some(5));
    }

    #[test]
    fn a_start_is_no_later_than_the_longest_formation() {
        let of = |stamp, shown| {
            let formation = LongestFormation(ExtendedDuration::of(SignedDuration::from_secs(28)));
            let run = RunFacts { first_scheduled: at(2), formation, ..run(stamp, None, Some(1), shown) };
            run.start().map(|start| start.as_second() - 1_000_000)
        };
        assert_eq!(of(None, Some(20)), Some(20));
        assert_eq!(of(None, Some(40)), Some(30));
        assert_eq!(of(Some(40), Some(40)), Some(30));
        assert_eq!(of(None, None), None, "it has not formed");
    }

    #[test]
    fn a_stamp_of_an_earlier_run_does_not_count() {
        assert_eq!(starts(Some(5), None, Some(6), Some(9)), Some(9), "no pod is as old");
        assert_eq!(starts(Some(5), None, Some(6), None), None, "no pod is as old");
        assert_eq!(starts(Some(5), Some(5), Some(1), Some(9)), Some(9), "its end was seen");
        assert_eq!(starts(Some(5), None, None, None), None, "nothing runs");
    }

    #[test]
    fn a_stamp_from_the_future_does_not_count() {
        assert_eq!(starts(Some(66), None, Some(1), Some(5)), Some(5));
        assert_eq!(starts(Some(65), None, Some(1), Some(5)), Some(65), "clocks differ");
    }

    #[test]
    fn the_stamp_of_whoever_scheduled_it_stands() {
        // it stamps before its pods are bound
        assert_eq!(run(Some(3), None, Some(1), Some(5)).to_stamp(Timestamp::MAX), None);
        assert_eq!(run(Some(3), Some(2), Some(1), Some(5)).to_stamp(Timestamp::MAX), None);
    }

    #[test]
    fn only_what_is_not_there_yet_is_stamped() {
        let now = at(100).unwrap();
        assert_eq!(run(None, None, Some(1), Some(5)).to_stamp(now), at(5));
        assert_eq!(run(Some(5), None, Some(1), Some(5)).to_stamp(now), None);
        assert_eq!(run(Some(5), Some(5), Some(1), Some(9)).to_stamp(now), at(9));
        assert_eq!(run(Some(5), Some(5), None, None).to_stamp(now), None, "nothing runs");
    }

    #[test]
    fn no_stamp_is_written_before_the_clock_reaches_the_start() {
        let facts = run(None, None, Some(1), Some(100));
        let just_before = at(100).unwrap() - SignedDuration::from_millis(50);
        assert_eq!((facts.to_stamp(just_before), facts.set_back(just_before)), (None, None));
        assert_eq!(facts.to_stamp(at(100).unwrap()), at(100));
        // a clock that is far behind
        assert_eq!((facts.to_stamp(at(2).unwrap()), facts.set_back(at(2).unwrap())), (None, None));
    }

    #[test]
    fn a_start_that_only_a_stamp_shows_is_set_back_if_no_clock_is_so_far_ahead() {
        let now = at(100).unwrap() + SignedDuration::from_millis(900);
        let of = |stamp, first| RunFacts { first_scheduled: first, ..run(Some(stamp), None, Some(1), None) };
        assert_eq!(of(9_999, None).set_back(now), at(100));
        assert_eq!(of(9_999, at(50)).set_back(now), at(100));
        assert_eq!(of(9_999, at(101)).set_back(now), at(101), "not to before its first pod was scheduled");
        assert_eq!((of(160, None).set_back(now), of(160, None).to_stamp(now)), (None, None), "clocks differ");
        assert_eq!(of(100, None).set_back(now), None);
    }

    #[test]
    fn stamps_are_in_whole_seconds() {
        let start = "2026-01-02T03:04:05.999Z".parse().unwrap();
        assert_eq!(write(start), "2026-01-02T03:04:05Z");
        let run = RunFacts { shown: Some(start), oldest: Some(start), ..RunFacts::default() };
        let stamped = run.to_stamp(Timestamp::MAX);
        assert_eq!(stamped.map(write).as_deref(), Some("2026-01-02T03:04:05Z"));
        assert_eq!(RunFacts { stamp: stamped, ..run }.to_stamp(Timestamp::MAX), None);
    }

    #[test]
    fn a_stamp_is_rfc_3339_in_utc() {
        let metadata = |text: &str| ObjectMeta {
            annotations: Some(BTreeMap::from([(keys::LAST_START_ANNOTATION.into(), text.into())])),
            ..ObjectMeta::default()
        };
        let good = read("2026-01-01T00:00:09Z").unwrap();
        assert_eq!(stamp(&metadata("2026-01-01T00:00:09Z")), Some(Ok(good)));
        assert_eq!(stamp(&metadata("2026-01-01T00:00:09.000Z")), Some(Ok(good)));
        assert_eq!(stamp(&metadata("2026-01-01T01:00:09+01:00")), Some(Ok(good)));
        for bad in [
            "soon",
            "20260101T000009Z",
            "2026-01-01T00:00Z",
            "2026-01-01 00:00:09Z",
            "2026-01-01T00:00:09,5Z",
            "2026-01-01T00:00:09+00:00[UTC]",
        ] {
            assert_eq!(stamp(&metadata(bad)), Some(Err(bad)));
        }
        assert_eq!(stamp(&ObjectMeta::default()), None);
    }
}
