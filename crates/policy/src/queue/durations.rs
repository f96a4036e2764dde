//! Reads the durations of a Queue. A field that is left out is None without an error; a field that
//! can't be read is None with an error, which says what would be right.

use tenure_types::{DurationError, ExtendedDuration, GoDuration, Grammar, Points, Written};

use crate::field::FieldError;

/// The remedy for a duration of zero.
pub const LEAVE_OUT: &str = "leave it out for no limit";

/// Reads a duration, or a list of them, in the grammar of `D`.
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

/// Reads a list of durations as points.
pub fn points(
    field: &str,
    list: Option<&[Written<ExtendedDuration>]>,
    errors: &mut Vec<FieldError>,
) -> Option<Points<ExtendedDuration>> {
    let texts: Vec<&str> = list?.iter().map(Written::as_str).collect();
    let read = texts.join(",").parse();
    let explain = |error: DurationError| {
        let detail = format!("must be a list of up to 8 durations such as 90m, 1h30m or 7d: {error}");
        FieldError::invalid(field, texts, detail)
    };
    read.map_err(|error| errors.push(explain(error))).ok()
}

/// Reads a floor. A negative floor that got stored is zero, as in KAI's version, and not None,
/// which would be inherited.
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

/// Reads a floor of v2, in Go's grammar. A negative floor is an error, and counts as zero.
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
    // a negative floor counts as zero
    Some(if value.as_nanos() < 0 { floor } else { floor.written(written.as_str()) })
}

/// Reads a duration that must be positive. The error about zero has the remedy `instead`.
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
