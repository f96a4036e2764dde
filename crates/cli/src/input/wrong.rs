//! What is wrong with a text, and where.

/// Something that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Counted from 1, in the text that was given.
    pub line: usize,
    pub what: String,
}

impl Wrong {
    pub fn at(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}
