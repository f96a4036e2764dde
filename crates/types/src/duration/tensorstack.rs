//! The grammar of T9k's queues: whole numbers with units, in one order.
//!
//! The same grammar is here twice: as a parser, and as rules in CEL for the schema of the CRD.

use std::{fmt, str::FromStr};

use schemars::Schema;

use super::{
    DurationError, ExtendedDuration, GoDuration, Grammar, PointsGrammar,
    text::DurationText,
    units::{DAY, HOUR, MILLISECOND, MINUTE, SECOND, WEEK, split},
    written::{OUT_OF_RANGE, TOO_MANY, ZERO_AMONG_OTHERS, schema},
};

/// The grammar as a regular expression, for CEL. It matches the empty text, too.
macro_rules! tensorstack_pattern {
    () => {
        "(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)"
    };
}

/// True if a text of this grammar is in range, in CEL. Of several durations, the sum counts.
macro_rules! tensorstack_in_range {
    () => {
        concat!(
            "self.findAll('[0-9]+[a-z]+').map(t, double(t.find('[0-9]+')) * ",
            "{'y': 31536000.0, 'w': 604800.0, 'd': 86400.0, 'h': 3600.0, 'm': 60.0, 's': 1.0, 'ms': 0.001}",
            "[?t.find('[a-z]+')].orValue(0.0)).sum() <= 9223372036.854776"
        )
    };
}

/// The units and their nanoseconds. Largest first, which is the only order that the grammar has.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * DAY),
    ("w", WEEK),
    ("d", DAY),
    ("h", HOUR),
    ("m", MINUTE),
    ("s", SECOND),
    ("ms", MILLISECOND),
];

/// The grammar of a T9k Queue's `maxDuration`: `0`, or whole numbers with the units `y` (365 d),
/// `w`, `d`, `h`, `m`, `s` and `ms`, each at most once and in this order. The empty text, which
/// T9k's pattern matches, means that the field is unset: ask before parsing. Prints as it was
/// written, if the text is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorstackDuration {
    /// Never negative.
    nanoseconds: i64,
    /// The text as it was written, if it is short.
    text: DurationText,
}

impl FromStr for TensorstackDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        if text.is_empty() {
            return Err(DurationError::Empty);
        }
        let mut sum = 0i64;
        let mut rest = if text == "0" { "" } else { text };
        let mut units = UNITS.iter();
        while !rest.is_empty() {
            let (number, after) = split(rest, |c| c.is_ascii_digit());
            if number.is_empty() {
                return Err(DurationError::MissingNumber(rest.into()));
            }
            let (symbol, after) = split(after, |c| !c.is_ascii_digit());
            let unit = units.find(|(known, _)| *known == symbol).ok_or_else(|| unexpected(number, symbol))?.1;
            sum = number
                .parse::<i64>()
                .ok()
                .and_then(|number| number.checked_mul(i64::try_from(unit).ok()?))
                .and_then(|term| sum.checked_add(term))
                .ok_or(DurationError::OutOfRange)?;
            rest = after;
        }
        Ok(Self { nanoseconds: sum, text: DurationText::of(text) })
    }
}

/// Returns the error for a symbol that can't come here.
fn unexpected(number: &str, symbol: &str) -> DurationError {
    if symbol.is_empty() {
        DurationError::MissingUnit(number.into())
    } else if UNITS.iter().any(|(known, _)| *known == symbol) {
        DurationError::OutOfOrder(symbol.into())
    } else {
        DurationError::UnknownUnit(symbol.into())
    }
}

impl fmt::Display for TensorstackDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // this grammar has no fractions
        let mut rest = self.nanoseconds.unsigned_abs();
        let mut parts = Vec::new();
        for (symbol, unit) in UNITS {
            if rest >= unit {
                parts.push(format!("{}{symbol}", rest / unit));
                rest %= unit;
            }
        }
        let computed = parts.concat();
        self.text.write(f, if computed.is_empty() { "0" } else { &computed })
    }
}

impl Grammar for TensorstackDuration {
    const EXPECTED: &'static str = "a duration of whole numbers such as 30s, 1h20m15s or 15d (units, in this order: y, w, d, h, m, s, ms)";

    fn schema() -> Schema {
        let matches = concat!("self.matches('^", tensorstack_pattern!(), "$')");
        schema(64, matches, Self::EXPECTED, &[(tensorstack_in_range!(), OUT_OF_RANGE)])
    }
}

impl PointsGrammar for TensorstackDuration {
    const POINTS_EXPECTED: &'static str = "a duration of whole numbers such as 30s, 1h20m15s or 15d (units, in this order: y, w, d, h, m, s, ms), or up to 8 of them, such as 1h,10m";

    fn extended(self) -> ExtendedDuration {
        ExtendedDuration {
            text: self.text,
            ..ExtendedDuration::from_go(GoDuration::from_nanos(self.nanoseconds))
        }
    }

    fn points_schema() -> Schema {
        let matches =
            concat!("self.matches('^", tensorstack_pattern!(), "(, *", tensorstack_pattern!(), ")*$')");
        let others = [
            ("!self.matches('(^|, *)(,|$)') || self == ''", "a duration is missing before or after a comma"),
            ("self.split(',').size() <= 8", TOO_MANY),
            ("!self.contains(',') || !self.matches('(^|,) *[0ywdhms]+(,|$)')", ZERO_AMONG_OTHERS),
            (tensorstack_in_range!(), OUT_OF_RANGE),
        ];
        schema(128, matches, Self::POINTS_EXPECTED, &others)
    }
}
