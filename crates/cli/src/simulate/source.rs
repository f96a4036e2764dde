//! Where the past comes from, and how much of it is known.

use jiff::SignedDuration;
use serde::Serialize;

use super::{
    past::{Past, Seconds, Unit, moment},
    report::{amount, day, grouped},
};

/// The source of a simulation, for people and programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    pub kind: &'static str,
    pub name: String,
    /// False for jobs that were made up.
    pub is_real: bool,
    pub since: Option<jiff::Timestamp>,
    pub until: Option<jiff::Timestamp>,
    /// The time since which nothing is left out; none if that isn't known.
    pub complete_since: Option<jiff::Timestamp>,
    /// The share of all unit-hours that the source has. None: the total is unknown.
    pub share_seen: Option<f64>,
    pub never_started: u64,
    pub skipped: Vec<Skipped>,
    /// True if the past ends now.
    #[serde(skip)]
    pub is_present: bool,
    /// True if namespaces stand for users.
    #[serde(skip)]
    pub by_namespace: bool,
}

/// Lines or objects that don't count.
#[derive(Debug, Serialize)]
pub struct Skipped {
    pub number: u64,
    pub reason: String,
}

impl SourceReport {
    pub fn new(kind: &'static str, name: String, past: &Past) -> Self {
        let (since, until) = past.span.unzip();
        Self {
            kind,
            name,
            is_real: true,
            since: since.map(moment),
            until: until.map(moment),
            complete_since: None,
            share_seen: None,
            never_started: past.never_started,
            skipped: Vec::new(),
            is_present: false,
            by_namespace: false,
        }
    }

    /// Stands before all that is said of jobs that were made up.
    pub fn caution(&self) -> String {
        if self.is_real {
            String::new()
        } else {
            format!("Made-up jobs ({}), of no real cluster: ", self.name)
        }
    }

    pub fn users(&self, number: usize) -> String {
        let word = if self.by_namespace { "namespace" } else { "user" };
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        format!("{} {word}{}", grouped(number), if number == 1 { "" } else { "s" })
    }

    pub fn period(&self) -> String {
        let Some((since, until)) = self.since.zip(self.until) else { return "no time".into() };
        let span = until.duration_since(since);
        let length = in_words(span);
        if self.is_present { format!("the last {length}") } else { length }
    }

    /// What the source is, and what it lacks.
    pub fn lines(&self, unit: Unit) -> Vec<String> {
        let seconds = |at: Option<jiff::Timestamp>| at.map(jiff::Timestamp::as_second);
        let day_of = |at: Option<Seconds>| at.map_or_else(|| "unknown".to_owned(), day);
        let share = self
            .share_seen
            .map_or_else(|| "unknown".to_owned(), |share| format!("{} %", amount(share * 100.0)));
        let mut lines = vec![format!(
            "Source: {} {}, {} to {}; complete since: {}; share of all {} seen: {share}",
            self.kind,
            self.name,
            day_of(seconds(self.since)),
            day_of(seconds(self.until)),
            day_of(seconds(self.complete_since)),
            unit.hours(),
        )];
        if self.never_started > 0 {
            lines.push(format!("{} never ran, and aren't counted.", grouped(self.never_started)));
        }
        lines.extend(self.skipped.iter().map(|of| format!("Skipped {}: {}", grouped(of.number), of.reason)));
        lines
    }
}

/// Returns the share of what was used that was seen. None: nothing is known to be used.
pub fn share(seen: f64, used: f64) -> Option<f64> {
    (used > 0.0).then(|| (seen / used).min(1.0))
}

fn in_words(span: SignedDuration) -> String {
    let hours = span.as_hours();
    let (number, word) = match hours {
        48.. => (hours.saturating_add(12) / 24, "day"),
        2.. => (hours, "hour"),
        _ => (span.as_mins(), "minute"),
    };
    let number = number.unsigned_abs();
    format!("{} {word}{}", grouped(number), if number == 1 { "" } else { "s" })
}
