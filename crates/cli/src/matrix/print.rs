//! How a matrix looks. Pairs are printed as they are computed.

use std::io::{self, Write};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::answer::{Matrix, Pair, Row, Sourced};
use crate::table::{Table, cell, table};

/// Two tables, one below the other.
pub fn tables(matrix: &Matrix<'_>, mut out: &mut dyn Write) -> io::Result<()> {
    let headers = ["QUEUE", "PREEMPT FLOOR", "FROM", "CEILING", "FROM"];
    table(&headers, matrix.rows().map(|row| cells(&row)), &mut out)?;
    let mut pairs = matrix.pairs().peekable();
    if pairs.peek().is_some() {
        let headers = ["PREEMPTOR", "VICTIM", "RECLAIM FLOOR", "FROM"].map(str::to_owned);
        let [name, floor] = matrix.widest();
        let table = Table::fitting(&[headers.to_vec(), vec![name.clone(), name, floor]]);
        writeln!(out)?;
        table.print(&headers, &mut out)?;
        for Pair { preemptor, victim, floor: Sourced { value, from } } in pairs {
            let line = [preemptor.to_owned(), victim.to_owned(), value.to_string(), from.to_string()];
            table.print(&line, &mut out)?;
        }
    }
    Ok(())
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let Sourced { value, from } = row.preempt_min_runtime;
    let ceiling = row.max_duration;
    vec![
        row.name.to_owned(),
        value.to_string(),
        from.to_string(),
        cell(ceiling.map(|ceiling| ceiling.value.to_string())),
        cell(ceiling.map(|ceiling| ceiling.from.to_string())),
    ]
}

/// All of it. Rows and pairs are made as they are written.
pub struct Whole<'m>(pub &'m Matrix<'m>);

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
