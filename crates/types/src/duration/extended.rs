//! The grammar of Tenure's own fields: Go's, plus days and weeks, without a sign.
//!
//! The same grammar is here twice: as a parser, and as rules in CEL for the schema of the CRD. The
//! API server enforces the rules without the webhook.

use std::{fmt, str::FromStr};

use jiff::SignedDuration;
use schemars::Schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{
    DurationError, GoDuration, Grammar, PointsGrammar,
    text::{DurationText, for_people},
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

/// A text of this grammar in seconds, in CEL, whose own `duration()` knows no days and weeks. In
/// floating point.
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
/// Prints as it was written, if the text is short.
///
/// ```
/// use tenure_types::ExtendedDuration;
///
/// let ceiling: ExtendedDuration = "1d12h".parse().unwrap();
/// assert_eq!(ceiling.to_signed(), jiff::SignedDuration::from_hours(36));
/// assert_eq!(ceiling.to_string(), "1d12h");
/// assert!("-1h".parse::<ExtendedDuration>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedDuration {
    /// Never negative.
    pub(super) nanoseconds: i64,
    /// The text as it was written, if any.
    pub(super) text: DurationText,
}

impl ExtendedDuration {
    /// The zero duration.
    pub const ZERO: Self = Self::computed(0);

    /// Creates a duration without a text.
    const fn computed(nanoseconds: i64) -> Self {
        Self { nanoseconds, text: DurationText::NONE }
    }

    /// Converts a duration that was computed. A negative duration becomes zero, and one that is too
    /// long the longest.
    pub fn of(duration: SignedDuration) -> Self {
        let nanoseconds = duration.as_nanos().clamp(0, i64::MAX.into());
        Self::from_go(GoDuration::from_nanos(nanoseconds.try_into().unwrap_or(i64::MAX)))
    }

    /// Converts a duration of Go's grammar. A negative duration becomes zero.
    pub const fn from_go(duration: GoDuration) -> Self {
        let nanoseconds = duration.as_nanos();
        Self::computed(if nanoseconds < 0 { 0 } else { nanoseconds })
    }

    /// Converts for a program that reads Go's grammar alone, such as KAI-Scheduler.
    pub const fn to_go(self) -> GoDuration {
        GoDuration::from_nanos(self.nanoseconds)
    }

    /// Returns the same duration with its text in another grammar, as which it prints.
    #[must_use]
    pub fn written(self, text: &str) -> Self {
        Self { text: DurationText::of(text), ..self }
    }

    /// True if the duration is zero.
    pub const fn is_zero(self) -> bool {
        self.nanoseconds == 0
    }

    /// Returns the duration in nanoseconds; never negative.
    pub const fn as_nanos(self) -> i64 {
        self.nanoseconds
    }

    /// Converts for arithmetic with timestamps; never negative.
    pub const fn to_signed(self) -> SignedDuration {
        SignedDuration::from_nanos(self.nanoseconds)
    }
}

impl FromStr for ExtendedDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        if text.starts_with(['-', '+']) {
            return Err(DurationError::Signed);
        }
        let nanoseconds = i64::try_from(magnitude(text, unit)?).map_err(|_| DurationError::OutOfRange)?;
        Ok(Self::computed(nanoseconds).written(text))
    }
}

/// Returns the nanoseconds of a unit. None: the grammar doesn't have the unit.
fn unit(symbol: &str) -> Option<u64> {
    match symbol {
        "d" => Some(DAY),
        "w" => Some(WEEK),
        _ => go_unit(symbol),
    }
}

/// Writes the printed form.
impl Serialize for ExtendedDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the printed form.
impl<'de> Deserialize<'de> for ExtendedDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for ExtendedDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.write(f, &for_people(self.to_signed()))
    }
}

/// True, in CEL, for a text that isn't of this grammar, or is in range. Of several durations, the
/// sum counts.
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

    fn extended(self) -> ExtendedDuration {
        self
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
