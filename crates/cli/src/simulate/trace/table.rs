//! Lines with named columns: the output of sacct, and CSV.
//!
//! Called by `trace`. Columns are found by their names in any order, and other columns are ignored.
//! Only the start and the end of runs are required.

use std::{borrow::Cow, collections::HashMap};

use super::{
    ReadLine, TraceOptions,
    times::{amount, priority, time},
};
use crate::simulate::past::{Fate, Past, PastRun, Seconds};

/// The name of each field on the command line and in CSV, and the columns of sacct that may have
/// it, the best first.
pub const FIELDS: [(&str, &[&str]); 10] = [
    ("id", &["JobID", "JobIDRaw"]),
    ("submit", &["Submit"]),
    ("start", &["Start"]),
    ("end", &["End"]),
    ("gpus", &["AllocTRES", "AllocGRES", "ReqTRES"]),
    ("cpus", &["AllocCPUS", "NCPUS"]),
    ("queue", &["Partition", "QOS"]),
    ("user", &["User"]),
    ("priority", &["Priority"]),
    ("state", &["State"]),
];

/// The columns that the user has named for some of the [`FIELDS`]: `start=Begin,end=Finish`.
pub type Columns = HashMap<&'static str, String>;

/// Reads `FIELD=COLUMN,...`.
pub fn columns(text: &str) -> Result<Columns, String> {
    let (mut columns, fields) = (Columns::new(), FIELDS.map(|(field, _)| field));
    for part in text.split(',') {
        let (name, column) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?}: must be FIELD=COLUMN, such as start=Begin"))?;
        let field = fields.into_iter().find(|field| *field == name.trim());
        let unknown = || format!("{name:?} is no field: must be one of {}", fields.join(", "));
        if columns.insert(field.ok_or_else(unknown)?, column.trim().to_owned()).is_some() {
            return Err(format!("{name:?} appears twice"));
        }
    }
    Ok(columns)
}

/// The queue of all runs if no column names queues.
pub const ONE_QUEUE: &str = "all";

/// A reader of lines, with the columns of the header.
pub struct TableReader {
    pub is_sacct: bool,
    separator: char,
    /// The number of columns.
    width: usize,
    /// The place of each field's column, in the order of [`FIELDS`]. None: no column has the field.
    places: [Option<usize>; FIELDS.len()],
    /// The start and the end of each job's last run, in seconds since 1970.
    jobs: HashMap<Box<str>, (Seconds, Seconds)>,
}

impl TableReader {
    /// Reads the line of headers. The error says why the line is none: it names the field or column
    /// that is missing.
    pub fn of_header(text: &str, options: &TraceOptions) -> Result<Self, String> {
        let is_sacct = text.contains('|') && text.split('|').any(|name| matches!(name, "JobID" | "JobIDRaw"));
        let separators: &[char] = if is_sacct { &['|'] } else { &['|', '\t', ';', ','] };
        let given = options.columns.clone().unwrap_or_default();
        let readers = separators.iter().filter_map(|separator| {
            let names = cells(text, *separator)?;
            let place = |column: &str| names.iter().position(|name| name.trim().eq_ignore_ascii_case(column));
            let places = FIELDS.map(|(name, of_sacct)| match given.get(name) {
                Some(column) => place(column),
                None if is_sacct => of_sacct.iter().find_map(|column| place(column)),
                None => place(name),
            });
            Some(Self { is_sacct, separator: *separator, width: names.len(), places, jobs: HashMap::new() })
        });
        // the right separator is the one that yields the most fields
        let best = readers.max_by_key(|of| (of.places.iter().flatten().count(), of.width));
        let best = best.ok_or("a quote isn't closed")?;
        for ((name, _), _) in FIELDS.iter().zip(&best.places).filter(|(_, place)| place.is_none()) {
            if let Some(column) = given.get(name) {
                return Err(format!("there is no column {column:?}, which --columns names"));
            } else if matches!(*name, "start" | "end") {
                return Err(format!("no column has the {name} of runs"));
            }
        }
        Ok(best)
    }

    /// Reads a line, and adds its run to the past.
    pub fn take(&mut self, text: &str, line: u64, options: &TraceOptions, past: &mut Past) -> ReadLine {
        let mut cells = cells(text, self.separator).ok_or(("a quote isn't closed", String::new()))?;
        while cells.len() > self.width && cells.last().is_some_and(|cell| cell.is_empty()) {
            cells.pop();
        }
        if cells.len() != self.width {
            let detail = format!("{} of {}", cells.len(), self.width);
            return Err(("the line has fewer or more columns than the header", detail));
        }
        let all = self.places.map(|place| Some(cells.get(place?)?.trim()));
        let [_, _, _, _, _, _, of_queue, ..] = all;
        let [id, submit, start, end, gpus, cpus, _, user, importance, state] =
            all.map(Option::unwrap_or_default);
        let is_unset = |text: &str| matches!(text, "" | "Unknown" | "None" | "NULL" | "-1");
        let begins =
            |word: &&str| state.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        if self.is_sacct && id.contains('.') {
            past.steps += 1;
            return Ok(());
        }
        if is_unset(start) || begins(&"PENDING") {
            past.source.never_started += 1;
            return Ok(());
        }
        // a state of Slurm, or one that `simulate` has written: other words count as ended
        let fate = match () {
            () if state.is_empty() && is_unset(end) => Fate::Running,
            () if ["RUNNING", "COMPLETING", "SUSPENDED"].iter().any(begins) => Fate::Running,
            () if begins(&"PREEMPT") => Fate::Preempted,
            () if begins(&"CUT") => Fate::Cut,
            () => Fate::Ended,
        };
        let at = |text: &str| time(text, &options.zone);
        let goes_on = fate == Fate::Running && is_unset(end);
        let (submit, end) =
            (if is_unset(submit) { start } else { submit }, if goes_on { start } else { end });
        let [submit, start, end] = options.times([at(submit)?, at(start)?, at(end)?])?;
        let (gpus, cpus, priority) = (amount(gpus)?, amount(cpus)?, priority(importance)?);
        let until = if fate == Fate::Running { Seconds::MAX } else { end };
        let overlaps =
            |(from, to): &(Seconds, Seconds)| start < *to && *from < until.max(start.saturating_add(1));
        if self.jobs.get(id).is_some_and(overlaps) {
            return Err(("the run overlaps another one of the same job", id.to_owned()));
        }
        if !id.is_empty() {
            self.jobs.insert(id.into(), (start, until));
        }
        let id = if id.is_empty() { format!("line {line}").into() } else { id.into() };
        let (queue, user) = (past.queue(of_queue.unwrap_or(ONE_QUEUE), None), past.user(user));
        let run =
            PastRun { id, submit, start, end, gpus, cpus, queue, user, priority, fate, ..PastRun::default() };
        past.runs.push(run);
        Ok(())
    }
}

/// Splits a line into cells. Quotes are doubled within quotes. None: a quote isn't closed.
fn cells(line: &str, separator: char) -> Option<Vec<Cow<'_, str>>> {
    if !line.contains('"') {
        return Some(line.split(separator).map(Cow::Borrowed).collect());
    }
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => is_quoted = !is_quoted,
            _ if character == separator && !is_quoted => cells.push(Cow::Owned(std::mem::take(&mut cell))),
            _ => cell.push(character),
        }
    }
    cells.push(Cow::Owned(cell));
    (!is_quoted).then_some(cells)
}
