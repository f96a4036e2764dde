//! The columns of workloads in tables.
//!
//! Used by `list` and, in part, by `queue`. A row that changes in none of the shown columns isn't
//! printed again by a watch.

use jiff::Timestamp;
use tenure_policy::naming::group_of;

use super::row::{WorkloadRow, WorkloadState};
use crate::print::{Column, Format, ListRow, Printer, cell, human, moment, moment_cell, until};

pub const FLOOR_UNTIL: Column<WorkloadRow> =
    ("FLOOR UNTIL", |row, _| known(row, row.floor_until.map(moment)));
pub const EXPIRES_AT: Column<WorkloadRow> = ("EXPIRES AT", |row, _| known(row, row.expires_at.map(moment)));
pub const STATE: Column<WorkloadRow> = ("STATE", |row, _| format!("{:?}", row.state));

impl ListRow for WorkloadRow {
    const NAMESPACE: Column<Self> = ("NAMESPACE", |row, _| row.namespace.clone());
    const NARROW: &'static [Column<Self>] = &[
        ("WORKLOAD", |row, _| row.workload.clone()),
        ("QUEUE", |row, _| cell(row.queue.as_deref())),
        ("AGE", |row, now| {
            let since = row.started_at.or(row.paused_at);
            cell(now.zip(since).map(|(now, since)| human(now.duration_since(since))))
        }),
        FLOOR_UNTIL,
        EXPIRES_AT,
        ("COMES BACK AT", |row, _| comes_back(row)),
        STATE,
    ];

    const WIDE: &'static [Column<Self>] = &[
        ("IN", |row, now| known(row, row.expires_at.zip(now).map(|(at, now)| until(at, now)))),
        ("PODS", |row, _| row.pods.to_string()),
        ("FAMILY", |row, _| cell(row.family)),
        ("CEILING FROM", |row, _| known(row, row.ceiling_from.clone())),
        ("REASON", |row, _| why(row)),
    ];

    fn name(&self) -> String {
        let (kind, group) = (self.kind.to_lowercase(), group_of(&self.api_version));
        let dot = if group.is_empty() { "" } else { "." };
        format!("{kind}{dot}{group}/{}", self.name)
    }
}

impl Printer<WorkloadRow> {
    /// True if the printed forms of two rows differ, apart from ages.
    pub fn differ(&self, before: &WorkloadRow, after: &WorkloadRow) -> bool {
        let is_gone = |row: &WorkloadRow| row.state == WorkloadState::Gone;
        match self.format {
            Some(Format::Json | Format::Yaml) => before != after,
            Some(Format::Name) => is_gone(before) != is_gone(after),
            Some(Format::Wide) | None => self.cells(before, None) != self.cells(after, None),
        }
    }
}

/// Returns the time at which the workload comes back by itself, or the command that brings it back.
fn comes_back(row: &WorkloadRow) -> String {
    match row.state {
        WorkloadState::Paused => "kubectl tenure resume".into(),
        WorkloadState::Inactive => "kubectl tenure activate".into(),
        _ => moment_cell(row.requeue_at),
    }
}

/// Returns the reason of a pause with its time, or the reason of an exemption.
fn why(row: &WorkloadRow) -> String {
    match (&row.reason, row.paused_at) {
        (Some(reason), Some(at)) if row.state != WorkloadState::Gone => {
            let by = row.kueue_workload.as_ref().map(|name| format!(", by Kueue's Workload {name}"));
            format!("{reason} since {}{}", moment_cell(Some(at)), by.unwrap_or_default())
        }
        (reason, _) => cell(reason.as_deref()),
    }
}

/// Returns a cell whose text comes from queues. `<unknown>` if the user may not read them.
fn known(row: &WorkloadRow, text: Option<String>) -> String {
    text.unwrap_or_else(|| if row.queue_is_hidden { "<unknown>".into() } else { cell(None::<String>) })
}

/// Returns a cell with the time that is left until `at`.
pub fn left(at: Option<Timestamp>, now: Option<Timestamp>) -> String {
    cell(at.zip(now).map(|(at, now)| until(at, now)))
}

#[cfg(test)]
mod tests;
