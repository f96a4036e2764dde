//! Traces: files with the runs of other clusters, read line by line.
//!
//! Called by `simulate --trace`. The format is recognized by the first line. A line that can't be
//! read is skipped and counted with its reason, so that one bad line doesn't cost the file; memory
//! doesn't depend on the length of lines.

mod lines;
mod swf;
mod table;
#[cfg(test)]
mod tests;
mod times;

use std::{collections::BTreeMap, io::BufRead};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use jiff::{Timestamp, tz::TimeZone};

use super::{
    past::{Past, Seconds},
    source::{Skipped, SourceReport},
};
use lines::Lines;
use table::{Columns, TableReader, columns};
use times::BadField;

/// How a trace is to be read.
#[derive(Clone, Debug, Args)]
pub struct TraceOptions {
    /// The columns of a CSV file, or other columns of sacct: FIELD=COLUMN, of id, submit, start, end, gpus, cpus, queue,
    /// user, priority and state
    #[arg(long, value_name = "FIELD=COLUMN,...", value_parser = columns, requires = "trace")]
    pub columns: Option<Columns>,

    /// The zone of times in a trace that name none, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", value_parser = zone, default_value = "UTC", requires = "trace")]
    pub zone: TimeZone,

    // the present: runs may start or end at most a day later
    #[arg(skip = Timestamp::now())]
    pub now: Timestamp,
}

/// Reads the name of a time zone.
fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| "must be the name of a time zone, such as Europe/Berlin or UTC".into())
}

/// The formats: the output of Slurm's `sacct --parsable2`, Standard Workload Format, and CSV with a
/// header.
pub const SACCT: &str = "sacct --parsable2";
pub const SWF: &str = "Standard Workload Format";
pub const CSV: &str = "CSV";

/// A trace that was read.
#[derive(Debug)]
pub struct Trace {
    pub past: Past,
    pub broken: SkippedLines,
}

/// The result of reading a line.
type ReadLine = Result<(), BadField>;

/// The formats, for errors about files of none of them.
const KNOWN: &str = "expected the output of sacct --parsable2 with its header, Standard Workload Format, or CSV with a header line and --columns submit=…,start=…,end=…,gpus=…,queue=…,user=…,priority=…,state=…";

/// The time by which a clock may be ahead, in seconds.
const AHEAD: Seconds = 86_400;

impl TraceOptions {
    /// Refuses times of a run that no run can have: submission, start and end in seconds since 1970.
    fn times(&self, [submit, start, end]: [Seconds; 3]) -> Result<[Seconds; 3], BadField> {
        if end < start {
            Err(("the run ends before it starts", format!("{start} to {end}")))
        } else if start < submit {
            Err(("the run starts before it is submitted", format!("{submit} to {start}")))
        } else if end > self.now.as_second().saturating_add(AHEAD) {
            Err(("the run is in the future", format!("{start} to {end}")))
        } else {
            Ok([submit, start, end])
        }
    }
}

/// Reads a trace. Errors call it by `name`. Lines that can't be read are skipped and counted. A
/// file with more such lines than others is refused.
pub fn read(name: &str, source: &mut dyn BufRead, options: &TraceOptions) -> Result<Trace> {
    let (mut lines, mut table, mut begin) = (Lines::new(source), None, None);
    let (mut past, mut broken) = (Past::default(), SkippedLines::default());
    while let Some((number, line)) = lines.next()? {
        let is_first = table.is_none() && begin.is_none();
        let read = match line {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) if is_first && !swf::is_one(text) => {
                let read = TableReader::of_header(text, options);
                table = Some(read.map_err(|reason| anyhow!("{name}:{number}: {reason}: {KNOWN}"))?);
                continue;
            }
            Err(reason) if is_first => bail!("{name}:{number}: {reason}: {KNOWN}"),
            Err(reason) => Err((reason, String::new())),
            Ok(text) => match &mut table {
                Some(table) => table.take(text, number, options, &mut past),
                None => swf::take(begin.get_or_insert(0), text, options, &mut past),
            },
        };
        if let Err((reason, value)) = read {
            broken.add(number, reason, &value);
        }
    }
    let format = table.map(|table| if table.is_sacct { SACCT } else { CSV }).or(begin.map(|_| SWF));
    let kind = format.with_context(|| format!("{name}: there is no line to read: {KNOWN}"))?;
    ensure!(
        broken.total <= past.runs.len().saturating_add(past.source.never_started).saturating_add(past.steps),
        "{name}: {} of its lines can't be read, more than can: {}: name the columns with --columns, or repair the file",
        broken.total,
        broken.first.join("; ")
    );
    past.complete();
    let steps = (past.steps > 0).then_some((&"the line is of a step, a part of a job", &past.steps));
    let skipped = broken.by_reason.iter().chain(steps);
    let skipped = skipped.map(|(&reason, &number)| Skipped { number, reason }).collect();
    let complete_since = past.source.since;
    let name = name.to_owned();
    past.source = SourceReport { kind, name, is_real: true, complete_since, skipped, ..past.source };
    Ok(Trace { past, broken })
}

/// The number of lines that were skipped, in all and by reason, with the first lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkippedLines {
    pub total: usize,
    pub by_reason: BTreeMap<&'static str, usize>,
    pub first: Vec<String>,
}

/// The number of lines that are kept.
const SHOWN: usize = 5;

/// The largest number of characters that are shown of a value.
const LONGEST: usize = 40;

impl SkippedLines {
    /// Counts a line. `value` is the part of the line that is wrong. Empty: the reason is enough.
    pub fn add(&mut self, line: u64, reason: &'static str, value: &str) {
        self.total += 1;
        *self.by_reason.entry(reason).or_default() += 1;
        if self.first.len() < SHOWN {
            let cut: String = value.chars().take(LONGEST).collect();
            let dots = if cut.len() < value.len() { "…" } else { "" };
            let value = if value.is_empty() { String::new() } else { format!(": {cut:?}{dots}") };
            self.first.push(format!("line {line}: {reason}{value}"));
        }
    }
}
