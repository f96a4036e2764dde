//! Go's own grammar of durations, for fields of Queue v2 and for programs that read no other, such
//! as KAI-Scheduler.

use std::{fmt, str::FromStr};

use schemars::{Schema, json_schema};

use super::{
    DurationError, Grammar,
    units::{HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, go_unit, magnitude},
};

/// A duration as Go's `time.ParseDuration` reads it and `time.Duration.String` prints it:
/// `1h30m0s`. In nanoseconds; may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

impl GoDuration {
    /// Creates a duration from nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the duration in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let magnitude = i128::from(magnitude(text.strip_prefix(['-', '+']).unwrap_or(text), go_unit)?);
        // the least i64 has no positive counterpart, so negate before narrowing
        let nanoseconds = if text.starts_with('-') { -magnitude } else { magnitude };
        i64::try_from(nanoseconds).map(Self).map_err(|_| DurationError::OutOfRange)
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let rest = self.0.unsigned_abs();
        match rest {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{rest}ns"),
            MICROSECOND..MILLISECOND => decimal(f, rest, MICROSECOND, "µs"),
            MILLISECOND..SECOND => decimal(f, rest, MILLISECOND, "ms"),
            _ => hours_minutes_seconds(f, rest),
        }
    }
}

/// Prints a duration of a second or more.
fn hours_minutes_seconds(f: &mut fmt::Formatter<'_>, rest: u64) -> fmt::Result {
    if rest >= HOUR {
        write!(f, "{}h", rest / HOUR)?;
    }
    if rest >= MINUTE {
        write!(f, "{}m", rest % HOUR / MINUTE)?;
    }
    decimal(f, rest % MINUTE, SECOND, "s")
}

/// Prints nanoseconds in a unit, with as many decimals as needed.
fn decimal(f: &mut fmt::Formatter<'_>, nanoseconds: u64, unit: u64, symbol: &str) -> fmt::Result {
    write!(f, "{}", nanoseconds / unit)?;
    let fraction = nanoseconds % unit;
    if fraction > 0 {
        let width = unit.ilog10() as usize;
        write!(f, ".{}", format!("{fraction:0width$}").trim_end_matches('0'))?;
    }
    f.write_str(symbol)
}

impl Grammar for GoDuration {
    const EXPECTED: &'static str = "a duration such as 90m or 1h30m (units: h, m, s, ms, us, ns)";

    /// The schema that KAI-Scheduler has.
    fn schema() -> Schema {
        json_schema!({"type": "string"})
    }
}
