//! The starts of a queue's running workloads, as its status has them. They tell how many workloads
//! a shorter ceiling ends.
//!
//! The keeper writes them to the status, and the webhook reads them for its warnings.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::start::second_down;

/// The most times that a status shows.
const MOST: usize = 10;

/// Numbers of the running workloads that had started before some times, the earliest first.
///
/// Each number includes the workloads before it, and the last is that of all. With ten workloads or
/// fewer no start is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(Vec<EarlierStarts>);

/// The number of workloads that started before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EarlierStarts {
    /// A whole second.
    time: Timestamp,
    workloads: u32,
}

/// A number of workloads, which may be a lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowerBound {
    /// The number.
    pub workloads: u32,
    /// True if there may be more.
    pub or_more: bool,
}

impl Runs {
    /// Counts workloads that started at these times.
    pub fn of(mut starts: Vec<Timestamp>) -> Self {
        starts.sort_unstable();
        let all = starts.len();
        let mut times: Vec<EarlierStarts> = Vec::new();
        // of many starts, evenly spaced ones are shown
        let shown = all.min(MOST);
        for number in 1..=shown {
            let last = number.saturating_mul(all).checked_div(shown).unwrap_or_default();
            let Some(start) = last.checked_sub(1).and_then(|place| starts.get(place)) else { continue };
            let time =
                second_down(*start).checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
            let workloads = starts.partition_point(|start| *start < time);
            let before = EarlierStarts { time, workloads: u32::try_from(workloads).unwrap_or(u32::MAX) };
            if times.last().is_none_or(|last| last.time < time) {
                times.push(before);
            }
        }
        Self(times)
    }

    /// Reads the list `runs` of `status.workloads`. Entries that can't be read are left out.
    pub fn read(workloads: &Value) -> Self {
        let read = |before: &Value| {
            let time = before.get("startedBefore")?.as_str()?.parse().ok()?;
            let workloads = before.get("workloads")?.as_u64()?.try_into().ok()?;
            Some(EarlierStarts { time, workloads })
        };
        let listed = workloads.get("runs").and_then(Value::as_array);
        let mut times: Vec<EarlierStarts> = listed.into_iter().flatten().filter_map(read).collect();
        times.sort_by_key(|before| before.time);
        Self(times)
    }

    /// Returns the list as the status has it.
    pub fn written(&self) -> Value {
        let before = |EarlierStarts { time, workloads }: &EarlierStarts| json!({"startedBefore": time.to_string(), "workloads": workloads});
        self.0.iter().map(before).collect()
    }

    /// Returns the number of workloads that have run for longer than `run` at `now`. It is exact,
    /// or a lower bound.
    pub fn longer_than(&self, run: SignedDuration, now: Timestamp) -> LowerBound {
        let Ok(latest) = now.checked_sub(run) else { return LowerBound::default() };
        let place = self.0.partition_point(|before| before.time <= latest);
        let workloads = place.checked_sub(1).and_then(|place| self.0.get(place));
        let workloads = workloads.map_or(0, |before| before.workloads);
        // only one more workload than the sum before: that one is shown, and started later
        let next = self.0.get(place).map(|before| before.workloads);
        LowerBound { workloads, or_more: next.is_some_and(|next| next.saturating_sub(workloads) > 1) }
    }
}

impl LowerBound {
    /// Returns the sum of both numbers.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        let Self { workloads, or_more } = self;
        Self { workloads: workloads.saturating_add(other.workloads), or_more: or_more || other.or_more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn runs(seconds: impl IntoIterator<Item = i64>) -> Runs {
        Runs::of(seconds.into_iter().map(at).collect())
    }

    fn longer(runs: &Runs, seconds: i64, now: i64) -> (u32, bool) {
        let LowerBound { workloads, or_more } = runs.longer_than(SignedDuration::from_secs(seconds), at(now));
        (workloads, or_more)
    }

    #[test]
    fn of_few_workloads_each_is_known() {
        let runs = runs([30, 0, 10, 10, 20]);
        assert_eq!([9, 10, 11, 21, 31, 99].map(|now| longer(&runs, 10, now).0), [0, 0, 1, 3, 4, 5]);
        assert!((0..99).all(|now| !longer(&runs, 10, now).1 || now < 21), "{runs:?}");
        assert_eq!(longer(&runs, i64::MAX, 99), (0, false));
        assert_eq!(longer(&Runs::default(), 1, 99), (0, false));
    }

    #[test]
    fn of_many_workloads_a_number_is_the_least_that_there_are() {
        let runs = runs(0..1_000);
        assert_eq!(runs.0.len(), MOST);
        for now in 0..1_100 {
            let (least, or_more) = longer(&runs, 0, now);
            let there_are = u32::try_from(now.clamp(0, 1_000)).unwrap();
            assert!(least <= there_are && there_are < least + 101, "{now}: {least}");
            assert_eq!(or_more, least < 1_000, "{now}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for runs in [Runs::default(), runs([0, 0, 5]), runs(0..50)] {
            assert_eq!(Runs::read(&json!({"running": 3, "runs": runs.written()})), runs);
        }
        let bad = json!({"runs": [{"startedBefore": "soon", "workloads": 1}, {"workloads": 1}, 7, {
            "startedBefore": "2026-01-02T03:04:05Z", "workloads": -1,
        }]});
        assert_eq!(Runs::read(&bad), Runs::default());
        assert_eq!(Runs::read(&json!("x")), Runs::default());
    }

    #[test]
    fn many_starts_in_one_second_are_one_time() {
        let runs = runs(std::iter::repeat_n(5, 40));
        assert_eq!(runs.written(), json!([{"startedBefore": at(6).to_string(), "workloads": 40}]));
    }
}
