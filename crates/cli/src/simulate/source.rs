//! The source of the past, and the share of the past that it has.
//!
//! Made by each reader of a past, and printed in reports and sweeps. A source that was made up is
//! named as such in every sentence.

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
    /// False for made-up jobs.
    pub is_real: bool,
    /// The first and the last time of any run. Null: there are no runs.
    pub since: Option<jiff::Timestamp>,
    pub until: Option<jiff::Timestamp>,
    /// The time since which nothing is left out. Null: unknown.
    pub complete_since: Option<jiff::Timestamp>,
    /// The share of all unit-hours that the source has, from 0 to 1. Null: the total is unknown.
    pub share_seen: Option<f64>,
    pub never_started: u64,
    /// Lines or objects that were left out, by reason.
    pub skipped: Vec<Skipped>,
    /// True if the past ends now.
    #[serde(skip)]
    pub is_present: bool,
    /// True if namespaces stand for users.
    #[serde(skip)]
    pub by_namespace: bool,
}

/// A number of lines or objects that don't count.
#[derive(Debug, Serialize)]
pub struct Skipped {
    pub number: u64,
    pub reason: String,
}

impl SourceReport {
    /// Returns the report about a real source, with unknown completeness.
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

    /// Returns the beginning of sentences about made-up jobs. Empty for real ones.
    pub fn caution(&self) -> String {
        if self.is_real {
            String::new()
        } else {
            format!("Made-up jobs ({}), of no real cluster: ", self.name)
        }
    }

    /// Returns a number of users, or of namespaces where these stand for users.
    pub fn users(&self, number: usize) -> String {
        let word = if self.by_namespace { "namespace" } else { "user" };
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        format!("{} {word}{}", grouped(number), if number == 1 { "" } else { "s" })
    }

    /// Returns the length of the past, in words.
    pub fn period(&self) -> String {
        let Some((since, until)) = self.since.zip(self.until) else { return "no time".into() };
        let span = until.duration_since(since);
        let length = in_words(span);
        if self.is_present { format!("the last {length}") } else { length }
    }

    /// Returns lines about the source, and about what it lacks.
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

/// Returns the share of the usage that was seen, at most 1. None: no usage is known.
pub fn share(seen: f64, used: f64) -> Option<f64> {
    (used > 0.0).then(|| (seen / used).min(1.0))
}

/// Returns a length of time in days, hours or minutes.
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
