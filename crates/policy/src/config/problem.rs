//! The errors and remarks about a configuration file, each at a line. Servers show a
//! [`ConfigError`] as one text; `kubectl tenure` prints each [`Problem`] in a line of its own.

use thiserror::Error;

/// An error or a remark about one place of a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {text}")]
pub struct Problem {
    /// The line in the file, from 1.
    pub line: u64,
    /// The field, its value, and the values that would be right, or another message.
    pub text: String,
}

/// The reason why a file is refused: all its problems, in the order of their lines.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", joined(.problems))]
pub struct ConfigError {
    /// The problems; at least one.
    pub problems: Vec<Problem>,
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
