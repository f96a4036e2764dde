//! The scanner that Go's grammar and its extension share. All amounts are in nanoseconds.

use super::DurationError;

pub(super) const NANOSECOND: u64 = 1;
pub(super) const MICROSECOND: u64 = 1_000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const WEEK: u64 = 7 * DAY;

/// The magnitude of the least `i64`, which a negative Go duration may have: one more than
/// `i64::MAX`.
const LIMIT: u64 = 1 << 63;

/// Returns the nanoseconds of a unit's symbol. None: the grammar doesn't have the unit.
pub(super) type UnitLookup = fn(&str) -> Option<u64>;

/// Returns the nanoseconds of the units of Go's `time.ParseDuration`.
pub(super) fn go_unit(symbol: &str) -> Option<u64> {
    Some(match symbol {
        "ns" => NANOSECOND,
        // U+00B5 (micro sign) and U+03BC (Greek mu)
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// Returns the nanoseconds of an unsigned text: `0`, or numbers with units. The sum may reach 2^63,
/// for a caller that negates it. The error names the part that can't be read.
pub(super) fn magnitude(text: &str, unit_of: UnitLookup) -> Result<u64, DurationError> {
    if text == "0" {
        return Ok(0);
    }
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let mut rest = text;
    let mut sum = 0u64;
    while !rest.is_empty() {
        let (term, after) = term(rest, unit_of)?;
        sum = within(sum.checked_add(term))?;
        rest = after;
    }
    Ok(sum)
}

/// Reads the first number and its unit. Returns the nanoseconds, and the rest of the text.
fn term(text: &str, unit_of: UnitLookup) -> Result<(u64, &str), DurationError> {
    let (whole, rest) = split(text, |c| c.is_ascii_digit());
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split(rest, |c| c.is_ascii_digit()),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::MissingNumber(text.into()));
    }
    let (symbol, after) = split(rest, |c| c != '.' && !c.is_ascii_digit());
    if symbol.is_empty() {
        return Err(DurationError::MissingUnit(text.strip_suffix(rest).unwrap_or(text).into()));
    }
    let unit = unit_of(symbol).ok_or_else(|| DurationError::UnknownUnit(symbol.into()))?;
    let whole = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| DurationError::OutOfRange)? };
    let whole = within(u64::checked_mul(whole, unit))?;
    let nanoseconds = within(whole.checked_add(fraction_of(fraction, unit)))?;
    Ok((nanoseconds, after))
}

/// Splits a text before the first character that doesn't belong.
pub(super) fn split(text: &str, belongs: fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// Fails for an overflow, or above [`LIMIT`].
fn within(nanoseconds: Option<u64>) -> Result<u64, DurationError> {
    nanoseconds.filter(|n| *n <= LIMIT).ok_or(DurationError::OutOfRange)
}

/// Returns the nanoseconds of a fraction. Go computes a fraction in floating point and cuts it; so
/// `0.3333333333333333333h` is 20 minutes there, and must be here. Digits that don't fit 63 bits
/// are ignored, as in Go.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut value = 0u64;
    let mut scale = 1f64;
    for digit in digits.bytes() {
        let next = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
        match next {
            Some(next) if next <= LIMIT => value = next,
            _ => break,
        }
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}
