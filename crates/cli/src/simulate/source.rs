//! The source of the past, and the share of the past that it has.
//!
//! Made by each reader of a past, and printed in reports and sweeps. A source that was made up is
//! named as such in every sentence.

use jiff::Timestamp;
use serde::Serialize;

use crate::print::{amount, grouped, minute, plural};

/// The source of a simulation, for people and programs.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    pub kind: &'static str,
    pub name: String,
    /// False for made-up jobs.
    pub is_real: bool,
    /// The first and the last time of any run. Null: there are no runs.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// The time since which nothing is left out. Null: unknown.
    pub complete_since: Option<Timestamp>,
    /// The share of all unit-hours that the source has, from 0 to 1. Null: the total is unknown.
    pub share_seen: Option<f64>,
    /// The number of jobs and pods that never ran.
    pub never_started: usize,
    /// Lines or objects that were left out, by reason.
    pub skipped: Vec<Skipped>,
    /// Sentences about what the source lacks.
    #[serde(skip)]
    pub missing: Vec<String>,
    /// True if the source has pods: the past ends now, and namespaces stand for users.
    #[serde(skip)]
    pub is_of_pods: bool,
}

/// A number of lines or objects that don't count.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    pub number: usize,
    pub reason: &'static str,
}

impl SourceReport {
    /// Returns the beginning of sentences about made-up jobs. Empty for real ones.
    pub fn caution(&self) -> String {
        if self.is_real {
            String::new()
        } else {
            format!("Made-up jobs ({}), of no real cluster: ", self.name)
        }
    }

    /// Returns a number of users, or of namespaces where these stand for users.
    pub fn users(&self, users: usize) -> String {
        plural(users, if self.is_of_pods { "namespace" } else { "user" })
    }

    /// Returns the length of the past, in words.
    pub fn period(&self) -> String {
        let Some((since, until)) = self.since.zip(self.until) else { return "no time".into() };
        let span = until.duration_since(since);
        let (number, word) = match span.as_hours() {
            hours @ 48.. => (hours.saturating_add(12) / 24, "day"),
            hours @ 2.. => (hours, "hour"),
            _ => (span.as_mins(), "minute"),
        };
        let last = if self.is_of_pods { "the last " } else { "" };
        format!("{last}{}", plural(usize::try_from(number).unwrap_or(0), word))
    }

    /// Returns lines about the source, and about what it lacks.
    pub fn lines(&self, hours: &str) -> Vec<String> {
        let unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        let days = [self.since, self.until, self.complete_since];
        let [since, until, complete] = days.map(|at| unknown(at.map(minute)));
        let share = unknown(self.share_seen.map(|share| format!("{} %", amount(share * 100.0))));
        let (kind, name) = (self.kind, &self.name);
        let mut lines = vec![format!(
            "Source: {kind} {name}, {since} to {until}; complete since: {complete}; share of all {hours} seen: {share}"
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
