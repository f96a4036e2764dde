//! Durations as kubectl prints them, with about two digits of precision, and times to the second or
//! the minute.
//!
//! Used in tables and sentences. JSON has exact times instead.

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Returns a duration: `5s`, `3m12s`, `4h`, `2d3h`. A negative duration, from clocks that differ,
/// is `0s`.
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(seconds, (MINUTE, "m"), (1, "s")),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, (HOUR, "h"), (MINUTE, "m")),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, (DAY, "d"), (HOUR, "h")),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds, (YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Returns a time in UTC, cut to the second: `2026-01-02T03:04:05Z`.
pub fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns a time in UTC, cut to the minute: `2026-01-02 03:04 UTC`.
pub fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Returns the time from `now` until `at`, with a minus if it is over.
pub fn until(at: Timestamp, now: Timestamp) -> String {
    if at < now { format!("-{}", human(now.duration_since(at))) } else { human(at.duration_since(now)) }
}

/// Returns a number of seconds in two units. The smaller unit is left out if it is zero.
fn two(seconds: i64, (large, large_unit): (i64, &str), (small, small_unit): (i64, &str)) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    if rest == 0 { format!("{whole}{large_unit}") } else { format!("{whole}{large_unit}{rest}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_kubectl_prints_them() {
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (14_700, "4h5m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (183_600, "2d3h"),
            (691_199, "7d23h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn what_is_over_has_a_minus() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(until(at(100), at(40)), "60s");
        assert_eq!(until(at(40), at(100)), "-60s");
        assert_eq!(until(at(40), at(40)), "0s");
    }
}
