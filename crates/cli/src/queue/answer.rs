//! What is said of a queue.

use std::{
    cmp::Ordering,
    io::{self, Write},
};

use jiff::Timestamp;
use serde::Serialize;
use tenure_policy::{expiry::Family, requeue::order};
use tenure_types::runai::v3alpha1::RequeuingTimestamp;

use crate::{
    age::until,
    list::{
        print::moment,
        row::{Row, State},
    },
    table::{self, cell},
};

/// Its workloads, each in one of the lists.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub queue: String,
    /// Those that have pods, the longest runs first.
    running: Vec<Row>,
    /// In the order in which they come back.
    coming_back: Vec<Row>,
    deactivated: Vec<Row>,
    paused: Vec<Row>,
}

impl Answer {
    /// `timestamp`: by what time workloads of a queue of this name are ordered, in each family.
    pub fn new(
        queue: String,
        timestamp: impl Fn(Family) -> RequeuingTimestamp,
        rows: Vec<Row>,
        now: Timestamp,
    ) -> Self {
        let mut answer = Self { queue, ..Self::default() };
        for row in rows {
            if !row.is_in(std::slice::from_ref(&answer.queue)) {
                continue;
            }
            let list = match row.state {
                State::Requeueing => &mut answer.coming_back,
                State::Inactive => &mut answer.deactivated,
                State::Paused => &mut answer.paused,
                _ => &mut answer.running,
            };
            list.push(row);
        }
        let since = |row: &Row| row.started_at.unwrap_or(Timestamp::MAX);
        answer.running.sort_by_key(since);
        answer.coming_back.sort_by(|one, other| returns(one, other, &timestamp, now));
        answer
    }

    pub const fn is_empty(&self) -> bool {
        self.running.is_empty()
            && self.coming_back.is_empty()
            && self.deactivated.is_empty()
            && self.paused.is_empty()
    }

    /// One for each list that isn't empty.
    pub fn tables(&self, namespaces: bool, now: Timestamp, out: &mut impl Write) -> io::Result<()> {
        let Self { queue: _, running, coming_back, deactivated, paused } = self;
        let why = ["PAUSED AT", "BECAUSE OF"];
        let coming = ["COMING BACK", "AT", "IN", "RETURNS"];
        let tables: [(&[Row], Vec<&str>, Cells); 4] = [
            (
                running,
                vec!["RUNNING", "PODS READY", "SINCE", "FLOOR UNTIL", "EXPIRES AT", "STATE"],
                &running_cells,
            ),
            (coming_back, [&coming[..], &why].concat(), &|row| {
                let left = row.requeue_at.map(|at| until(at, now));
                [vec![moment(row.requeue_at), cell(left), count(row)], paused_cells(row)].concat()
            }),
            (deactivated, [&["DEACTIVATED", "RETURNS"][..], &why].concat(), &|row| {
                [vec![count(row)], paused_cells(row)].concat()
            }),
            (paused, [&["PAUSED"][..], &why].concat(), &paused_cells),
        ];
        let mut between = false;
        for (rows, headers, cells) in tables.into_iter().filter(|(rows, ..)| !rows.is_empty()) {
            if std::mem::replace(&mut between, true) {
                writeln!(out)?;
            }
            table(rows, &headers, cells, namespaces, out)?;
        }
        Ok(())
    }
}

type Cells<'c> = &'c dyn Fn(&Row) -> Vec<String>;

/// Those that are due come back at once, in the order of the queue.
fn returns(
    one: &Row,
    other: &Row,
    timestamp: impl Fn(Family) -> RequeuingTimestamp,
    now: Timestamp,
) -> Ordering {
    let at = |row: &Row| row.requeue_at.unwrap_or(now).max(now);
    let in_order = || match (&one.waiting, &other.waiting) {
        (Some((family, one)), Some((of_other, other))) => {
            family.cmp(of_other).then_with(|| order(timestamp(*family))(one, other))
        }
        _ => Ordering::Equal,
    };
    at(one).cmp(&at(other)).then_with(in_order)
}

fn table(
    rows: &[Row],
    headers: &[&str],
    cells: Cells<'_>,
    namespaces: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let of = |row: &Row| {
        let namespace = namespaces.then(|| row.namespace.clone());
        namespace.into_iter().chain([row.workload.clone()]).chain(cells(row)).collect()
    };
    let namespace = namespaces.then_some("NAMESPACE");
    let headers: Vec<&str> = namespace.into_iter().chain(headers.iter().copied()).collect();
    table::table(&headers, rows.iter().map(of), out)
}

fn running_cells(row: &Row) -> Vec<String> {
    let pods = row.ready_pods.zip(row.needed_pods).map(|(ready, needed)| format!("{ready}/{needed}"));
    vec![
        cell(pods),
        moment(row.started_at),
        moment(row.floor_until),
        moment(row.expires_at),
        format!("{:?}", row.state),
    ]
}

fn paused_cells(row: &Row) -> Vec<String> {
    vec![moment(row.paused_at), cell(row.reason.as_deref())]
}

fn count(row: &Row) -> String {
    row.requeue_count.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests;
