//! The reasons why a text isn't a duration. Users read the messages in refusals of the webhook and
//! in errors of the command line.

use thiserror::Error;

/// The reason why a text is not a duration. The messages continue "not a duration: …".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// A sign, in a grammar that has none.
    #[error("a sign is not allowed")]
    Signed,
    /// A number was expected.
    #[error("a number is missing before {0:?}")]
    MissingNumber(String),
    /// A number without a unit.
    #[error("the unit is missing after {0:?}")]
    MissingUnit(String),
    /// A unit that this grammar doesn't have.
    #[error("unknown unit {0:?}")]
    UnknownUnit(String),
    /// A unit twice, or after a smaller one.
    #[error("unit {0:?} is out of order: each may appear once, larger units first")]
    OutOfOrder(String),
    /// The duration has more nanoseconds than fit an `i64`.
    #[error("it is out of range: the longest duration is about 292 years")]
    OutOfRange,
    /// No duration before or after a comma.
    #[error("a duration is missing before or after a comma")]
    NoItem,
    /// Zero, which stands for none, beside other durations.
    #[error("a duration of zero means no notice: it can't stand beside others")]
    ZeroAmongOthers,
    /// More durations than a field may have.
    #[error("there are more than 8 durations: leave some out")]
    TooMany,
}
