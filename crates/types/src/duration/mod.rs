//! Three grammars of durations, one type each, never mixed in one field.
//!
//! | type | where | grammar |
//! | --- | --- | --- |
//! | [`ExtendedDuration`] | `scheduling.run.ai/v3alpha1` | Go's, plus `d` and `w`, without a sign |
//! | [`GoDuration`] | `scheduling.run.ai/v2` | Go's `time.ParseDuration` (`metav1.Duration`) |
//! | [`TensorstackDuration`] | `scheduler.tensorstack.dev` | whole numbers with `y w d h m s ms` |
//!
//! [`Points`] are several durations of one of these grammars, separated by commas. A field keeps
//! the text that was written, as a [`Written`], and its readers parse the text.
//!
//! All hold whole nanoseconds in an `i64`, as Go does. A value that doesn't fit is refused, never
//! wrapped.
//!
//! People read a duration as its author wrote it. [`ExtendedDuration`] and [`TensorstackDuration`]
//! remember a short text. A duration that was computed is printed by [`for_people`].

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
pub use points::{Points, PointsGrammar};
pub use tensorstack::TensorstackDuration;
pub use text::for_people;
pub use written::{Grammar, Written};

#[cfg(test)]
mod tests;
