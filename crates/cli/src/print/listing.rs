//! Lists: as tables, as names, or as objects.
//!
//! `list`, `list --ended` and `extensions` print their rows with a [`Printer`]. The rows of a watch
//! come in several calls, so column widths stay those of the first rows.

use anyhow::Result;
use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

use tenure_types::hidden::escape_json;

use super::{
    json,
    table::{Column, Table, printable},
    yaml,
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

/// A row of a list, for people and programs. JSON and YAML have all its fields.
pub trait ListRow: Serialize + Sized + 'static {
    /// The column that is shown if rows of several namespaces are listed. It comes first.
    const NAMESPACE: Column<Self>;
    /// The columns of every table.
    const NARROW: &'static [Column<Self>];
    /// The additional columns of the wide table.
    const WIDE: &'static [Column<Self>];

    /// Returns kind and name as kubectl takes them.
    fn name(&self) -> String;
}

/// Prints rows in one form.
#[derive(Debug)]
pub struct Printer<R: 'static> {
    /// The form. None: the table.
    pub format: Option<Format>,
    columns: Vec<Column<R>>,
    /// True to print a line of headers before the first rows.
    headers: bool,
    /// The column widths. None: no row was printed yet.
    table: Option<Table>,
}

impl<R: ListRow> Printer<R> {
    /// Returns a printer. `namespaces`: the table has a column of namespaces.
    pub fn new(format: Option<Format>, namespaces: bool, headers: bool) -> Self {
        let wide = if format == Some(Format::Wide) { R::WIDE } else { &[] };
        let namespace = namespaces.then_some(R::NAMESPACE).into_iter();
        let columns = namespace.chain(R::NARROW.iter().chain(wide).copied()).collect();
        Self { format, columns, headers, table: None }
    }

    /// Returns a whole list: one JSON or YAML array, one name a line, or a table.
    pub fn all(&mut self, rows: &[R], now: Timestamp) -> Result<String> {
        Ok(match self.format {
            Some(Format::Json) => json(rows)?,
            Some(Format::Yaml) => yaml(rows)?,
            Some(Format::Name) => rows.iter().map(|row| printable(&row.name()) + "\n").collect(),
            Some(Format::Wide) | None => self.rows(rows, now),
        })
    }

    /// Returns some rows of a list that goes on: a JSON object a line, or a YAML document each. The
    /// other forms are as of [`all`](Self::all).
    pub fn some(&mut self, rows: &[R], now: Timestamp) -> Result<String> {
        let rows_json = |row| Ok(escape_json(&serde_json::to_string(row)?) + "\n");
        match self.format {
            Some(Format::Json) => rows.iter().map(rows_json).collect(),
            Some(Format::Yaml) => rows.iter().map(|row| Ok(format!("---\n{}", yaml(row)?))).collect(),
            Some(Format::Wide | Format::Name) | None => self.all(rows, now),
        }
    }

    /// Returns lines of the table. The first rows bring the headers along, and set the widths of
    /// the columns.
    fn rows(&mut self, rows: &[R], now: Timestamp) -> String {
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

    /// Returns the cells of a row. `now` None: without ages.
    pub fn cells(&self, row: &R, now: Option<Timestamp>) -> Vec<String> {
        self.columns.iter().map(|(_, show)| show(row, now)).collect()
    }
}
