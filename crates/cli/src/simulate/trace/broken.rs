//! The lines of a trace that can't be read.
//!
//! Filled by `trace`. Only the first few lines are kept: the others are counted by reason.

use std::collections::BTreeMap;

/// The number of lines that were skipped, in all and by reason, with the first lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkippedLines {
    pub total: usize,
    pub by_reason: BTreeMap<&'static str, usize>,
    pub first: Vec<String>,
}

/// The number of lines that are kept.
const SHOWN: usize = 5;

/// The largest number of characters that are shown of a value.
const LONGEST: usize = 40;

impl SkippedLines {
    /// Counts a line. `value` is the part of the line that is wrong. Empty: the reason is enough.
    pub fn add(&mut self, line: u64, reason: &'static str, value: &str) {
        self.total += 1;
        *self.by_reason.entry(reason).or_default() += 1;
        if self.first.len() < SHOWN {
            let cut: String = value.chars().take(LONGEST).collect();
            let dots = if cut.len() < value.len() { "…" } else { "" };
            let value = if value.is_empty() { String::new() } else { format!(": {cut:?}{dots}") };
            self.first.push(format!("line {line}: {reason}{value}"));
        }
    }
}
