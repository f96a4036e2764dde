//! The columns and formats of rows.

use anyhow::Result;
use clap::ValueEnum;
use jiff::Timestamp;
use tenure_policy::naming::group_of;

use super::row::{Row, WorkloadState};
use crate::{
    age::{self, human, until},
    table::{Table, cell, printable},
};

/// Another form than the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A list of objects with exact times; with --watch one object a line
    Json,
    /// The same as YAML; with --watch one document an object
    Yaml,
    /// The table with more columns
    Wide,
    /// One name a line, as kubectl takes it: deployment.apps/test
    Name,
}

/// A column of a table of workloads: its header, and its cell for a workload. Ages are shown only if a time is given.
pub type Column = (&'static str, fn(&Row, Option<Timestamp>) -> String);

pub const NAMESPACE: Column = ("NAMESPACE", |row, _| row.namespace.clone());
pub const FLOOR_UNTIL: Column = ("FLOOR UNTIL", |row, _| moment(row.floor_until));
pub const EXPIRES_AT: Column = ("EXPIRES AT", |row, _| moment(row.expires_at));
pub const STATE: Column = ("STATE", |row, _| format!("{:?}", row.state));

const NARROW: [Column; 7] = [
    ("WORKLOAD", |row, _| row.workload.clone()),
    ("QUEUE", |row, _| cell(row.queue.as_deref())),
    ("AGE", |row, now| cell(now.zip(row.started_at).map(|(now, start)| human(now.duration_since(start))))),
    FLOOR_UNTIL,
    EXPIRES_AT,
    ("COMES BACK AT", |row, _| moment(row.requeue_at)),
    STATE,
];

const WIDE: [Column; 5] = [
    ("IN", |row, now| left(row.expires_at, now)),
    ("PODS", |row, _| row.pods.to_string()),
    ("FAMILY", |row, _| cell(row.family)),
    ("CEILING FROM", |row, _| cell(row.ceiling_from.as_deref())),
    ("REASON", |row, _| why(row)),
];

/// Prints rows, and their changes.
#[derive(Debug)]
pub struct Printer {
    format: Option<Format>,
    columns: Vec<Column>,
    headers: bool,
    table: Option<Table>,
}

impl Printer {
    pub fn new(format: Option<Format>, namespaces: bool, headers: bool) -> Self {
        let wide = WIDE.into_iter().filter(|_| format == Some(Format::Wide));
        let columns = namespaces.then_some(NAMESPACE).into_iter().chain(NARROW).chain(wide).collect();
        Self { format, columns, headers, table: None }
    }

    /// A list.
    pub fn all(&mut self, rows: &[Row], now: Timestamp) -> Result<String> {
        Ok(match self.format {
            Some(Format::Json) => serde_json::to_string_pretty(rows)? + "\n",
            Some(Format::Yaml) => serde_saphyr::to_string(&rows)?,
            Some(Format::Name) => rows.iter().map(name).collect(),
            Some(Format::Wide) | None => self.rows(rows, now),
        })
    }

    /// Rows that changes will follow, or that have changed.
    pub fn some(&mut self, rows: &[Row], now: Timestamp) -> Result<String> {
        let document = |row| match self.format {
            Some(Format::Yaml) => Ok(format!("---\n{}", serde_saphyr::to_string(row)?)),
            _ => Ok(serde_json::to_string(row)? + "\n"),
        };
        match self.format {
            Some(Format::Json | Format::Yaml) => rows.iter().map(document).collect(),
            Some(Format::Name) => Ok(rows.iter().map(name).collect()),
            Some(Format::Wide) | None => Ok(self.rows(rows, now)),
        }
    }

    /// True if two rows look different, ages apart.
    pub fn differ(&self, before: &Row, after: &Row) -> bool {
        match self.format {
            Some(Format::Json | Format::Yaml) => before != after,
            Some(Format::Name) => {
                (before.state == WorkloadState::Gone) != (after.state == WorkloadState::Gone)
            }
            Some(Format::Wide) | None => self.cells(before, None) != self.cells(after, None),
        }
    }

    /// The first rows bring the headers along, and say how wide the columns are.
    fn rows(&mut self, rows: &[Row], now: Timestamp) -> String {
        let mut lines: Vec<Vec<String>> = rows.iter().map(|row| self.cells(row, Some(now))).collect();
        if lines.is_empty() {
            return String::new();
        }
        if self.table.is_none() && self.headers {
            lines.insert(0, self.columns.iter().map(|(header, _)| (*header).to_owned()).collect());
        }
        let table = self.table.get_or_insert_with(|| Table::fitting(&lines));
        lines.iter().map(|line| table.line(line)).collect()
    }

    fn cells(&self, row: &Row, now: Option<Timestamp>) -> Vec<String> {
        self.columns.iter().map(|(_, show)| show(row, now)).collect()
    }
}

fn name(row: &Row) -> String {
    let (kind, group) = (row.kind.to_lowercase(), group_of(&row.api_version));
    let dot = if group.is_empty() { "" } else { "." };
    printable(&format!("{kind}{dot}{group}/{}", row.name)) + "\n"
}

fn why(row: &Row) -> String {
    match (&row.reason, row.paused_at) {
        (Some(reason), Some(at)) if row.state != WorkloadState::Gone => {
            let by = row.kueue_workload.as_ref().map(|name| format!(", by Kueue's Workload {name}"));
            format!("{reason} since {}{}", moment(Some(at)), by.unwrap_or_default())
        }
        (reason, _) => cell(reason.as_deref()),
    }
}

/// The cell of the time that is left.
pub fn left(at: Option<Timestamp>, now: Option<Timestamp>) -> String {
    cell(at.zip(now).map(|(at, now)| until(at, now)))
}

/// The cell of a time.
pub fn moment(at: Option<Timestamp>) -> String {
    cell(at.map(age::moment))
}

#[cfg(test)]
mod tests;
