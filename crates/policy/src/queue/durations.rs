//! The durations of a Queue.

use tenure_types::{DurationError, ExtendedDuration, GoDuration, Grammar, Written};

use crate::field::FieldError;

/// The remedy for a duration of zero.
pub const LEAVE_OUT: &str = "leave it out for no limit";

pub fn duration<D: Grammar>(
    field: &str,
    written: Option<&Written<D>>,
    errors: &mut Vec<FieldError>,
) -> Option<D> {
    let written = written?;
    let explain = |error: DurationError| {
        FieldError::invalid(field, written.as_str(), format!("must be {}: {error}", D::EXPECTED))
    };
    written.parse().map_err(|error| errors.push(explain(error))).ok()
}

/// Reads a floor. A negative one that got stored is zero, as in KAI's version, and not none, which is inherited.
pub fn floor(
    field: &str,
    written: Option<&Written<ExtendedDuration>>,
    errors: &mut Vec<FieldError>,
) -> Option<ExtendedDuration> {
    let written = written?;
    let value = duration(field, Some(written), errors);
    let unsigned = written.as_str().strip_prefix('-');
    let negative = || unsigned.is_some_and(|rest| rest.parse::<ExtendedDuration>().is_ok());
    value.or_else(|| negative().then_some(ExtendedDuration::ZERO))
}

pub fn floor_v2(
    field: &str,
    written: Option<&Written<ExtendedDuration>>,
    errors: &mut Vec<FieldError>,
) -> Option<ExtendedDuration> {
    let written = Written::<GoDuration>::from(written?.as_str());
    let value = duration(field, Some(&written), errors)?;
    if value.as_nanos() < 0 {
        errors.push(FieldError::invalid(field, written.as_str(), "must not be negative"));
    }
    let floor = ExtendedDuration::from_go(value);
    // a negative one counts as zero
    Some(if value.as_nanos() < 0 { floor } else { floor.written(written.as_str()) })
}

/// Checks that a duration is positive. The error says what to do instead of writing zero.
pub fn positive<D: Grammar>(
    field: &str,
    written: Option<&Written<D>>,
    instead: &str,
    errors: &mut Vec<FieldError>,
) -> Option<D> {
    let value = duration(field, written, errors)?;
    if value.is_zero() {
        let text = written.map_or("", Written::as_str);
        errors.push(FieldError::invalid(field, text, format!("must be greater than zero; {instead}")));
        return None;
    }
    Some(value)
}
