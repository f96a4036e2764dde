//! How a matrix looks. Pairs are printed as they are computed.

use std::io::{self, Write};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::answer::{Matrix, Pair, Row, Sourced};
use crate::table::{Table, cell, none};

/// Two tables, one below the other.
pub fn tables(matrix: &Matrix<'_>, out: &mut impl Write) -> io::Result<()> {
    let headers = ["QUEUE", "PREEMPT FLOOR", "FROM", "CEILING", "FROM"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> =
        std::iter::once(headers).chain(matrix.rows().map(|row| cells(&row))).collect();
    let table = Table::fitting(&rows);
    rows.iter().try_for_each(|row| table.print(row, out))?;
    let mut pairs = matrix.pairs().peekable();
    if pairs.peek().is_some() {
        let headers = ["PREEMPTOR", "VICTIM", "RECLAIM FLOOR", "FROM"].map(str::to_owned);
        let [name, floor] = matrix.widest();
        let table = Table::fitting(&[headers.to_vec(), vec![name.clone(), name, floor]]);
        writeln!(out)?;
        table.print(&headers, out)?;
        for Pair { preemptor, victim, floor: Sourced { value, from } } in pairs {
            let line = [preemptor.to_owned(), victim.to_owned(), value.to_string(), from.to_string()];
            table.print(&line, out)?;
        }
    }
    out.flush()
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let Sourced { value, from } = row.preempt_min_runtime;
    let ceiling = row.max_duration;
    vec![
        row.name.to_owned(),
        value.to_string(),
        from.to_string(),
        cell(ceiling.map(|ceiling| ceiling.value.to_string())),
        ceiling.map_or_else(none, |ceiling| ceiling.from.to_string()),
    ]
}

/// As JSON.
pub fn json(matrix: &Matrix<'_>, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Whole(matrix))?;
    writeln!(out)?;
    out.flush()
}

/// As YAML.
pub fn yaml(matrix: &Matrix<'_>, out: &mut impl Write) -> io::Result<()> {
    let mut kept = Kept { out, error: None };
    let written = serde_saphyr::to_io_writer(&mut kept, &Whole(matrix));
    // the serializer's error doesn't tell a closed pipe from others
    kept.error.map_or_else(|| written.map_err(io::Error::other), Err)?;
    out.flush()
}

/// Keeps the error that ends it.
struct Kept<'w, W> {
    out: &'w mut W,
    error: Option<io::Error>,
}

impl<W: Write> Write for Kept<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Whole<'m>(&'m Matrix<'m>);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("queues", &Each(|| self.0.rows()))?;
        map.serialize_entry("reclaim", &Each(|| self.0.pairs()))?;
        map.end()
    }
}

/// Items that are made as they are written.
struct Each<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0())
    }
}
