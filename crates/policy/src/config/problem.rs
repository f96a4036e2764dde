//! Errors and remarks about a file.

use std::fmt;

use thiserror::Error;

/// An error or a remark about one place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// The field, its value, and the values that would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// The reason why a file is refused: all its errors, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", joined(.problems))]
pub struct ConfigError {
    /// The problems; at least one.
    pub problems: Vec<Problem>,
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ConfigError {
    pub(super) fn shifted(mut self, lines: u64) -> Self {
        shift(&mut self.problems, lines);
        self
    }
}

pub fn shift(problems: &mut [Problem], lines: u64) {
    for problem in problems {
        problem.line = problem.line.saturating_add(lines);
    }
}
