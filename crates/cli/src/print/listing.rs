//! Lists: as tables, as names, or as objects.

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

/// A row of a list, for people and programs.
pub trait Listed: Serialize + Sized + 'static {
    const NAMESPACE: Column<Self>;
    const NARROW: &'static [Column<Self>];
    /// More columns of the wide table.
    const WIDE: &'static [Column<Self>];

    /// Returns the name as kubectl takes it.
    fn name(&self) -> String;
}

#[derive(Debug)]
pub struct Printer<R: 'static> {
    pub format: Option<Format>,
    columns: Vec<Column<R>>,
    headers: bool,
    table: Option<Table>,
}

impl<R: Listed> Printer<R> {
    pub fn new(format: Option<Format>, namespaces: bool, headers: bool) -> Self {
        let wide = if format == Some(Format::Wide) { R::WIDE } else { &[] };
        let namespace = namespaces.then_some(R::NAMESPACE).into_iter();
        let columns = namespace.chain(R::NARROW.iter().chain(wide).copied()).collect();
        Self { format, columns, headers, table: None }
    }

    pub fn all(&mut self, rows: &[R], now: Timestamp) -> Result<String> {
        Ok(match self.format {
            Some(Format::Json) => json(rows)?,
            Some(Format::Yaml) => yaml(rows)?,
            Some(Format::Name) => rows.iter().map(|row| printable(&row.name()) + "\n").collect(),
            Some(Format::Wide) | None => self.rows(rows, now),
        })
    }

    /// Rows that changes will follow, or that have changed.
    pub fn some(&mut self, rows: &[R], now: Timestamp) -> Result<String> {
        let rows_json = |row| Ok(escape_json(&serde_json::to_string(row)?) + "\n");
        match self.format {
            Some(Format::Json) => rows.iter().map(rows_json).collect(),
            Some(Format::Yaml) => rows.iter().map(|row| Ok(format!("---\n{}", yaml(row)?))).collect(),
            Some(Format::Wide | Format::Name) | None => self.all(rows, now),
        }
    }

    /// The first rows bring the headers along, and say how wide the columns are.
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

    pub fn cells(&self, row: &R, now: Option<Timestamp>) -> Vec<String> {
        self.columns.iter().map(|(_, show)| show(row, now)).collect()
    }
}
