//! The texts of durations: the form that Tenure prints, and the text that a person wrote.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

use jiff::SignedDuration;

use super::GoDuration;

/// Returns a computed duration in the form that queues take: `1m30s`, `2d`, `1d12h`, `500ms`. The
/// sign is left out. A duration that is out of range becomes the longest.
pub fn for_people(duration: impl TryInto<SignedDuration>) -> String {
    let duration = duration.try_into().unwrap_or(SignedDuration::MAX).unsigned_abs();
    let seconds = duration.as_secs();
    let parts = [(seconds / 86_400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm')];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let mut text = parts.map(|(number, unit)| format!("{number}{unit}")).collect::<Vec<_>>().concat();
    let rest = seconds % 60 * 1_000_000_000 + u64::from(duration.subsec_nanos());
    if rest > 0 || text.is_empty() {
        text += &GoDuration::from_nanos(rest.try_into().unwrap_or(i64::MAX)).to_string();
    }
    text
}

/// The text of a duration as a person wrote it, padded with zeros. Texts that are too long aren't
/// kept. All texts are equal to each other, so that durations compare by their nanoseconds alone.
#[derive(Clone, Copy, Default)]
pub(super) struct DurationText([u8; 16]);

impl DurationText {
    /// No text: the duration was computed.
    pub(super) const NONE: Self = Self([0; 16]);

    /// Remembers a text of up to 16 bytes. A longer text is dropped.
    pub(super) fn of(written: &str) -> Self {
        let mut text = Self::NONE;
        if let Some(start) = text.0.get_mut(..written.len()) {
            start.copy_from_slice(written.as_bytes());
        }
        text
    }

    /// Writes the text. Without one, writes what was computed.
    pub(super) fn write(self, f: &mut fmt::Formatter<'_>, computed: &str) -> fmt::Result {
        f.pad(match self.as_str() {
            "" => computed,
            text => text,
        })
    }

    /// Returns the text. Empty: there is none.
    fn as_str(&self) -> &str {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        str::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Debug for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl PartialEq for DurationText {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for DurationText {}

impl PartialOrd for DurationText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DurationText {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl Hash for DurationText {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
