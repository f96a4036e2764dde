//! The warnings to the writer of a `PodGroup`. API servers cut them at 256 characters, so values
//! are shown in part.

use serde_json::Value;
use tenure_types::{keys, text::shortened};

use super::{StampChange, StampWrite};
use crate::toleration::field;

/// The longest value that is shown whole, in characters: more than a time takes.
const LONGEST_VALUE: usize = 36;

const TRUSTED: &str = "(see trustedWriters in Tenure's configuration)";

const TRUSTED_OF_TENANCY: &str = "(see tenancy.trustedWriters in Tenure's configuration)";

impl StampWrite<'_> {
    /// Returns the warning about a stamp. None: the write is kept as it is, or only got a stamp.
    pub(super) fn warning(&self, change: StampChange, stamp: Option<&str>) -> Option<String> {
        let became =
            stamp.map_or_else(|| "was dropped".into(), |stamp| format!("was set back to {}", quote(stamp)));
        let text = match (change, self.stamp) {
            (StampChange::Admitted | StampChange::Stamped, _) => return None,
            (StampChange::Clamped, _) => format!("{became}: it lies in the future"),
            (StampChange::Dropped, _) => format!("{became}: it must be a time such as 2026-01-02T03:04:05Z"),
            (StampChange::Reverted, Some(_)) => {
                format!("{became}: only trusted writers may set it {TRUSTED}")
            }
            (StampChange::Reverted, None) => {
                format!("{became}: only trusted writers may remove it {TRUSTED}")
            }
        };
        let given = self.stamp.map(|given| format!("{} ", quote(given))).unwrap_or_default();
        Some(format!("tenure: {}: {given}{text}", field(keys::LAST_START_ANNOTATION)))
    }
}

/// Returns the warning when a write names another queue than the stored group.
pub(super) fn kept_queue(written: Option<&Value>, queue: Option<&Value>) -> String {
    let given = written.map(|written| format!("{} ", shown(written))).unwrap_or_default();
    let became =
        queue.map_or_else(|| "was dropped".to_owned(), |queue| format!("was set back to {}", shown(queue)));
    format!("tenure: spec.queue: {given}{became}: only trusted writers may change it {TRUSTED_OF_TENANCY}")
}

/// Returns a queue as a text. A name has at most 253 characters, and mostly a few.
fn shown(queue: &Value) -> String {
    queue.as_str().map_or_else(|| quote(&queue.to_string()), quote)
}

/// Returns a text in quotes, escaped as in JSON, and cut after `LONGEST_VALUE` characters.
fn quote(text: &str) -> String {
    Value::from(shortened(text, LONGEST_VALUE)).to_string()
}
