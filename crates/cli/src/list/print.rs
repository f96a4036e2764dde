//! How rows look.

use anyhow::Result;
use clap::ValueEnum;
use jiff::Timestamp;

use super::row::{Row, State};
use crate::{
    age::{self, human, until},
    table::{Table, cell},
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
}

/// Prints rows, and what changes in them.
#[derive(Debug)]
pub struct Printer {
    format: Option<Format>,
    namespaces: bool,
    table: Option<Table>,
}

impl Printer {
    pub const fn new(format: Option<Format>, namespaces: bool) -> Self {
        Self { format, namespaces, table: None }
    }

    /// A list.
    pub fn all(&mut self, rows: &[Row], now: Timestamp) -> Result<String> {
        Ok(match self.format {
            Some(Format::Json) => serde_json::to_string_pretty(rows)? + "\n",
            Some(Format::Yaml) => serde_saphyr::to_string(&rows)?,
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
            Some(Format::Wide) | None => Ok(self.rows(rows, now)),
        }
    }

    /// Whether two rows look different, but for their ages.
    pub fn differ(&self, before: &Row, after: &Row) -> bool {
        match self.format {
            Some(Format::Json | Format::Yaml) => before != after,
            Some(Format::Wide) | None => self.cells(before, None) != self.cells(after, None),
        }
    }

    /// The first rows bring the headers along, and say how wide the columns are.
    fn rows(&mut self, rows: &[Row], now: Timestamp) -> String {
        let mut lines: Vec<Vec<String>> = rows.iter().map(|row| self.cells(row, Some(now))).collect();
        if lines.is_empty() {
            return String::new();
        }
        if self.table.is_none() {
            lines.insert(0, self.headers());
        }
        let table = self.table.get_or_insert_with(|| Table::fitting(&lines));
        lines.iter().map(|line| table.line(line)).collect()
    }

    fn wide(&self) -> bool {
        self.format == Some(Format::Wide)
    }

    fn headers(&self) -> Vec<String> {
        let namespace = ["NAMESPACE"].into_iter().filter(|_| self.namespaces);
        let narrow = ["WORKLOAD", "QUEUE", "AGE", "FLOOR UNTIL", "EXPIRES AT", "COMES BACK AT", "STATE"];
        let wide = ["IN", "PODS", "FAMILY", "CEILING FROM", "REASON"].into_iter().filter(|_| self.wide());
        namespace.chain(narrow).chain(wide).map(str::to_owned).collect()
    }

    /// Ages only if it is known what time it is.
    fn cells(&self, row: &Row, now: Option<Timestamp>) -> Vec<String> {
        let age = now.zip(row.started_at).map(|(now, start)| human(now.duration_since(start)));
        let left = now.zip(row.expires_at).map(|(now, at)| until(at, now));
        let namespace = self.namespaces.then(|| row.namespace.clone());
        let narrow = [
            row.workload.clone(),
            cell(row.queue.as_deref()),
            cell(age),
            moment(row.floor_until),
            moment(row.expires_at),
            moment(row.requeue_at),
            format!("{:?}", row.state),
        ];
        let wide =
            [cell(left), row.pods.to_string(), cell(row.family), cell(row.ceiling_from.as_deref()), why(row)];
        namespace.into_iter().chain(narrow).chain(wide.into_iter().filter(|_| self.wide())).collect()
    }
}

fn why(row: &Row) -> String {
    match (&row.reason, row.paused_at) {
        (Some(reason), Some(at)) if row.state != State::Gone => {
            format!("{reason} since {}", moment(Some(at)))
        }
        (reason, _) => cell(reason.as_deref()),
    }
}

/// The cell of a time.
pub fn moment(at: Option<Timestamp>) -> String {
    cell(at.map(age::moment))
}

#[cfg(test)]
mod tests;
