use std::{fmt, str::FromStr};

use jiff::SignedDuration;
use schemars::Schema;

use super::{
    DurationError, GoDuration, Grammar, PointsGrammar,
    units::{DAY, WEEK, go_unit, magnitude},
    written::{OUT_OF_RANGE, TOO_MANY, ZERO_AMONG_OTHERS, schema},
};

/// The grammar as a regular expression, for CEL.
macro_rules! extended_pattern {
    () => {
        concat!("^", extended_pattern!(item), "$")
    };
    (item) => {
        "(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w))+)"
    };
    (points) => {
        concat!("^", extended_pattern!(item), "(, *", extended_pattern!(item), ")*$")
    };
}

/// A text of this grammar in seconds, in CEL, whose own `duration()` knows no days and weeks. In floating point.
macro_rules! extended_seconds {
    ($text:literal) => {
        concat!(
            $text,
            ".findAll('[0-9.]+[a-zµμ]+').map(t, double(t.find('[0-9.]+')) * ",
            "{'ns': 0.000000001, 'us': 0.000001, 'µs': 0.000001, 'μs': 0.000001, 'ms': 0.001, ",
            "'s': 1.0, 'm': 60.0, 'h': 3600.0, 'd': 86400.0, 'w': 604800.0}[t.find('[a-zµμ]+')]).sum()"
        )
    };
}

/// Go's duration grammar plus `d` (24 h) and `w` (7 d), without a sign: `90m`, `1h30m`, `7d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedDuration(i64);

impl ExtendedDuration {
    /// The zero duration.
    pub const ZERO: Self = Self(0);

    /// Converts a duration of Go's grammar. A negative one becomes zero.
    pub const fn from_go(duration: GoDuration) -> Self {
        let nanoseconds = duration.as_nanos();
        Self(if nanoseconds < 0 { 0 } else { nanoseconds })
    }

    /// Returns the duration in nanoseconds; never negative.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Converts for arithmetic with timestamps; never negative.
    pub const fn to_signed(self) -> SignedDuration {
        SignedDuration::from_nanos(self.0)
    }
}

impl FromStr for ExtendedDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        if text.starts_with(['-', '+']) {
            return Err(DurationError::Signed);
        }
        let magnitude = magnitude(text, unit)?;
        i64::try_from(magnitude).map(Self).map_err(|_| DurationError::OutOfRange)
    }
}

fn unit(symbol: &str) -> Option<u64> {
    match symbol {
        "d" => Some(DAY),
        "w" => Some(WEEK),
        _ => go_unit(symbol),
    }
}

impl fmt::Display for ExtendedDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        GoDuration::from_nanos(self.0).fmt(f)
    }
}

/// True, in CEL, for a text that isn't of this grammar, or is in range. Of several durations, the sum counts.
macro_rules! extended_in_range {
    ($pattern:expr) => {
        concat!("!self.matches('", $pattern, "') || ", extended_seconds!("self"), " <= 9223372036.854776")
    };
}

impl Grammar for ExtendedDuration {
    const EXPECTED: &'static str = "a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns)";

    fn schema() -> Schema {
        let matches = concat!("self.matches('", extended_pattern!(), "')");
        schema(64, matches, Self::EXPECTED, &[(extended_in_range!(extended_pattern!()), OUT_OF_RANGE)])
    }
}

impl PointsGrammar for ExtendedDuration {
    const POINTS_EXPECTED: &'static str = "a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns), or up to 8 of them, such as 1h,10m";

    fn nanoseconds(self) -> i64 {
        self.0
    }

    fn points_schema() -> Schema {
        let matches = concat!("self.matches('", extended_pattern!(points), "')");
        let others = [
            ("self.split(',').size() <= 8", TOO_MANY),
            ("!self.contains(',') || !self.matches('(^|,) *[0.nuµμmshdw]+(,|$)')", ZERO_AMONG_OTHERS),
            (extended_in_range!(extended_pattern!(points)), OUT_OF_RANGE),
        ];
        schema(128, matches, Self::POINTS_EXPECTED, &others)
    }
}
