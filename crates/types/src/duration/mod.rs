//! Three grammars of durations, one type each, never mixed in one field.
//!
//! | type | where | grammar |
//! | --- | --- | --- |
//! | [`ExtendedDuration`] | fields of `scheduling.run.ai/v3alpha1` | Go's `time.ParseDuration` plus `d` and `w`, no
//! sign |
//! | [`GoDuration`] | fields of `scheduling.run.ai/v2` | Go's `time.ParseDuration` (`metav1.Duration`) |
//! | [`TensorstackDuration`] | fields of `scheduler.tensorstack.dev` | whole numbers with `y w d h m s ms`, in this
//! order |
//!
//! [`Points`] are several durations of one of these grammars, separated by commas.
//!
//! All hold whole nanoseconds in an `i64`, as Go does. A value that doesn't fit is refused, never wrapped.
//!
//! People read a duration as its author wrote it. [`ExtendedDuration`] and [`TensorstackDuration`] remember their text. One that
//! was computed is printed by [`for_people`].

mod error;
#[macro_use]
mod extended;
mod go;
mod points;
mod tensorstack;
mod text;
mod units;
mod written;

pub use error::DurationError;
pub use extended::ExtendedDuration;
pub use go::GoDuration;
pub use points::{MOST_POINTS, Points, PointsGrammar};
pub use tensorstack::TensorstackDuration;
pub use text::for_people;
pub use written::{Grammar, Written};

#[cfg(test)]
mod tests;
