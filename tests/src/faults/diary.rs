//! The timeline of a plan: steps of the script, actions of proxies, and changes that the observer
//! saw. Printed for a plan that broke a rule.

use std::{
    fmt::{self, Display},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

/// The most lines that are printed, from the end.
const LINES: usize = 400;

/// Lines with the time of each. Clones share the lines.
#[derive(Clone, Debug, Default)]
pub struct Diary(Arc<Mutex<Vec<(Timestamp, String)>>>);

impl Diary {
    /// Adds a line.
    pub fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Timestamp::now(), line.into()));
    }
}

/// Prints each line with the seconds since the first.
impl Display for Diary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((begin, _)) = lines.first() else { return Ok(()) };
        let left_out = lines.len().saturating_sub(LINES);
        if left_out > 0 {
            writeln!(f, "    … {left_out} lines before")?;
        }
        for (at, line) in &lines[left_out..] {
            writeln!(f, "    {:8.3} {line}", at.duration_since(*begin).as_secs_f64())?;
        }
        Ok(())
    }
}
