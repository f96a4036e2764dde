//! Traces: files with the runs of other clusters, read line by line.
//!
//! Called by `simulate --trace`. The format is recognized by the first line. A line that can't be
//! read is skipped and counted with its reason, so that one bad line doesn't cost the file; memory
//! doesn't depend on the length of lines.

mod broken;
mod fields;
mod lines;
mod swf;
mod table;
#[cfg(test)]
mod tests;
mod times;

use std::io::BufRead;

use anyhow::{Context, Result, anyhow, bail, ensure};
use jiff::{Timestamp, tz::TimeZone};

use super::past::Past;
pub use broken::SkippedLines;
pub use fields::Columns;
use lines::{Line, Lines};
use swf::SwfReader;
use table::TableReader;

/// How a trace is to be read.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The columns that `--columns` names.
    pub columns: Columns,
    /// The zone of times that name none.
    pub zone: TimeZone,
    /// The present. Runs may start or end at most a day later.
    pub now: Timestamp,
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// The output of Slurm's `sacct --parsable2`.
    Sacct,
    /// Standard Workload Format.
    Swf,
    /// CSV with a header.
    Csv,
}

impl TraceFormat {
    /// Returns the name of the format in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sacct => "sacct --parsable2",
            Self::Swf => "Standard Workload Format",
            Self::Csv => "CSV",
        }
    }
}

/// A trace that was read.
#[derive(Debug)]
pub struct Trace {
    pub past: Past,
    pub format: TraceFormat,
    pub broken: SkippedLines,
    /// The number of lines about steps, which are parts of jobs.
    pub steps: u64,
}

/// A line that was read.
enum JobLine {
    Run,
    /// A job that has never run.
    NeverStarted,
    /// A part of a job.
    Step,
    Comment,
}

/// The reason why a line can't be read, and the part of the line that is wrong.
type BadField = (&'static str, String);

/// The reader of a format.
enum TraceReader {
    Table(Box<TableReader>),
    Swf(SwfReader),
}

/// The formats, for errors about files of none of them.
const KNOWN: &str = "expected the output of sacct --parsable2 with its header, Standard Workload Format, or CSV with a header line and --columns submit=…,start=…,end=…,gpus=…,queue=…,user=…,priority=…,state=…";

impl TraceReader {
    fn format(&self) -> TraceFormat {
        match self {
            Self::Table(table) => table.format,
            Self::Swf(_) => TraceFormat::Swf,
        }
    }

    /// Reads a line, and adds its run to the past.
    fn take(
        &mut self,
        text: &str,
        line: u64,
        options: &TraceOptions,
        past: &mut Past,
    ) -> Result<JobLine, BadField> {
        match self {
            Self::Table(table) => table.take(text, line, options, past),
            Self::Swf(swf) => swf.take(text, options, past),
        }
    }
}

/// Reads a trace. Errors call it by `name`. Lines that can't be read are skipped and counted. A
/// file with more such lines than others is refused.
pub fn read(name: &str, source: &mut dyn BufRead, options: &TraceOptions) -> Result<Trace> {
    let (mut lines, mut reader) = (Lines::new(source), None);
    let (mut past, mut broken, mut steps) = (Past::default(), SkippedLines::default(), 0_u64);
    loop {
        let number = lines.number();
        let text = match lines.next()? {
            None => break,
            Some(Line::Text(text)) if text.trim().is_empty() => continue,
            Some(Line::Text(text)) => text,
            Some(Line::Bad(reason)) if reader.is_some() => {
                broken.add(number, reason, "");
                continue;
            }
            Some(Line::Bad(reason)) => bail!("{name}:{number}: {reason}: {KNOWN}"),
        };
        let reader = match &mut reader {
            Some(reader) => reader,
            None if swf::is_one(text) => reader.insert(TraceReader::Swf(SwfReader::default())),
            None => {
                let table = TableReader::of_header(text, options);
                let table = table.map_err(|reason| anyhow!("{name}:{number}: {reason}: {KNOWN}"))?;
                reader = Some(TraceReader::Table(Box::new(table)));
                continue;
            }
        };
        match reader.take(text, number, options, &mut past) {
            Ok(JobLine::Run | JobLine::Comment) => {}
            Ok(JobLine::NeverStarted) => past.never_started += 1,
            Ok(JobLine::Step) => steps += 1,
            Err((reason, value)) => broken.add(number, reason, &value),
        }
    }
    let reader = reader.with_context(|| format!("{name}: there is no line to read: {KNOWN}"))?;
    let runs = u64::try_from(past.runs.len()).unwrap_or(u64::MAX);
    ensure!(
        broken.total <= runs.saturating_add(past.never_started).saturating_add(steps),
        "{name}: {} of its lines can't be read, more than can: {}: name the columns with --columns, or repair the file",
        broken.total,
        broken.shown().join("; ")
    );
    past.complete();
    Ok(Trace { past, format: reader.format(), broken, steps })
}
