//! Lines with named columns: the output of sacct, and CSV.
//!
//! Called by `trace`. Columns are found by their names in any order, and other columns are ignored.
//! Only the start and the end of runs are required.

use std::{borrow::Cow, collections::HashMap};

use super::{
    BadField, JobLine, TraceFormat, TraceOptions,
    fields::{FIELDS, RunField},
    times::{amount, priority, time},
};
use crate::simulate::past::{Fate, Past, PastRun, Seconds};

/// The queue of all runs if no column names queues.
pub const ONE_QUEUE: &str = "all";

/// The time by which a clock may be ahead, in seconds.
const AHEAD: Seconds = 86_400;

/// A reader of lines, with the columns of the header.
pub struct TableReader {
    pub format: TraceFormat,
    separator: char,
    /// The number of columns.
    width: usize,
    /// The place of each field's column, in the order of [`FIELDS`]. None: no column has the field.
    places: [Option<usize>; FIELDS.len()],
    /// The start and the end of each job's last run, in seconds since 1970.
    jobs: HashMap<Box<str>, (Seconds, Seconds)>,
}

impl TableReader {
    /// Reads the line of headers. The error says why the line is none.
    pub fn of_header(text: &str, options: &TraceOptions) -> Result<Self, String> {
        let is_sacct = text.contains('|') && text.split('|').any(|name| matches!(name, "JobID" | "JobIDRaw"));
        let format = if is_sacct { TraceFormat::Sacct } else { TraceFormat::Csv };
        let separators: &[char] = if is_sacct { &['|'] } else { &[',', ';', '\t', '|'] };
        // the right separator is the one that yields the most fields
        let mut best: Option<Self> = None;
        let mut missing = String::new();
        for separator in separators {
            let names = cells(text, *separator).ok_or("a quote isn't closed")?;
            let found = Self::with(format, *separator, &names, options);
            match found {
                Ok(found) if best.as_ref().is_none_or(|best| best.known() < found.known()) => {
                    best = Some(found);
                }
                Err(error) if names.len() > 1 || missing.is_empty() => missing = error,
                _ => {}
            }
        }
        best.ok_or(missing)
    }

    /// Finds the columns for a separator. The error names the field or column that is missing.
    fn with(
        format: TraceFormat,
        separator: char,
        names: &[Cow<'_, str>],
        options: &TraceOptions,
    ) -> Result<Self, String> {
        let place = |column: &str| names.iter().position(|name| name.trim().eq_ignore_ascii_case(column));
        let mut places = [None; FIELDS.len()];
        for ((field, name, of_sacct), found) in FIELDS.into_iter().zip(&mut places) {
            *found = match options.columns.of(field) {
                Some(column) => Some(
                    place(column)
                        .ok_or_else(|| format!("there is no column {column:?}, which --columns names"))?,
                ),
                None if format == TraceFormat::Sacct => of_sacct.iter().find_map(|column| place(column)),
                None => place(name),
            };
            if found.is_none() && matches!(field, RunField::Start | RunField::End) {
                return Err(format!("no column has the {name} of runs"));
            }
        }
        Ok(Self { format, separator, width: names.len(), places, jobs: HashMap::new() })
    }

    /// Returns the number of fields that have a column.
    fn known(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Reads a line, and adds its run to the past.
    pub fn take(
        &mut self,
        text: &str,
        line: u64,
        options: &TraceOptions,
        past: &mut Past,
    ) -> Result<JobLine, BadField> {
        let mut cells = cells(text, self.separator).ok_or(("a quote isn't closed", String::new()))?;
        while cells.len() > self.width && cells.last().is_some_and(|cell| cell.is_empty()) {
            cells.pop();
        }
        if cells.len() != self.width {
            let detail = format!("{} of {}", cells.len(), self.width);
            return Err(("the line has fewer or more columns than the header", detail));
        }
        let places = self.places;
        let of = |field: RunField| {
            let place = places.get(field as usize).copied().flatten()?;
            cells.get(place).map(|cell| cell.trim())
        };
        let text = |field| of(field).unwrap_or_default();
        let bad = |field| move |reason| (reason, text(field).to_owned());
        let id = text(RunField::Id);
        if self.format == TraceFormat::Sacct && id.contains('.') {
            return Ok(JobLine::Step);
        }
        let state = JobState::read(of(RunField::State));
        let is_unset = |field| matches!(text(field), "" | "Unknown" | "None" | "NULL" | "-1");
        if is_unset(RunField::Start) {
            return Ok(JobLine::NeverStarted);
        }
        let at = |field| time(text(field), &options.zone).map_err(bad(field));
        let start = at(RunField::Start)?;
        let submit = if is_unset(RunField::Submit) { start } else { at(RunField::Submit)? };
        let fate = match state {
            JobState::Waiting => return Ok(JobLine::NeverStarted),
            JobState::Running => Fate::Running,
            JobState::Unknown if is_unset(RunField::End) => Fate::Running,
            JobState::Of(fate) => fate,
            JobState::Unknown => Fate::Ended,
        };
        let end = if fate == Fate::Running && is_unset(RunField::End) { start } else { at(RunField::End)? };
        check(submit, start, end, options)?;
        let gpus = amount(text(RunField::Gpus)).map_err(bad(RunField::Gpus))?;
        let cpus = amount(text(RunField::Cpus)).map_err(bad(RunField::Cpus))?;
        let priority = priority(text(RunField::Priority)).map_err(bad(RunField::Priority))?;
        if !id.is_empty() {
            self.overlaps(id, start, if fate == Fate::Running { Seconds::MAX } else { end })?;
        }
        let id = if id.is_empty() { format!("line {line}").into() } else { id.into() };
        let queue = past.queue(of(RunField::Queue).unwrap_or(ONE_QUEUE), None);
        let user = past.user(text(RunField::User));
        past.push(PastRun {
            id,
            submit,
            start,
            end,
            gpus,
            cpus,
            queue,
            user,
            priority,
            own: None,
            fate,
            is_joined: false,
        });
        Ok(JobLine::Run)
    }

    /// Refuses a run that overlaps the last run of the same job: a job runs once at a time.
    fn overlaps(&mut self, id: &str, start: Seconds, end: Seconds) -> Result<(), BadField> {
        match self.jobs.get_mut(id) {
            Some((from, to)) if start < *to && *from < end.max(start.saturating_add(1)) => {
                Err(("the run overlaps another one of the same job", id.to_owned()))
            }
            Some(known) => {
                *known = (start, end);
                Ok(())
            }
            None => {
                self.jobs.insert(id.into(), (start, end));
                Ok(())
            }
        }
    }
}

/// Refuses times that no run can have. They are in seconds since 1970.
pub fn check(submit: Seconds, start: Seconds, end: Seconds, options: &TraceOptions) -> Result<(), BadField> {
    let latest = options.now.as_second().saturating_add(AHEAD);
    if end < start {
        Err(("the run ends before it starts", format!("{start} to {end}")))
    } else if start < submit {
        Err(("the run starts before it is submitted", format!("{submit} to {start}")))
    } else if start > latest || end > latest {
        Err(("the run is in the future", format!("{start} to {end}")))
    } else {
        Ok(())
    }
}

/// The state of a job, by its column.
enum JobState {
    Waiting,
    Running,
    Of(Fate),
    /// No column has it, or it is empty.
    Unknown,
}

impl JobState {
    /// Reads a state of Slurm, or one that `simulate` has written. Unknown words count as ended.
    fn read(text: Option<&str>) -> Self {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Self::Unknown };
        let begins =
            |word: &str| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        match () {
            () if begins("PENDING") => Self::Waiting,
            () if begins("RUNNING") || begins("COMPLETING") || begins("SUSPENDED") => Self::Running,
            () if begins("PREEMPT") => Self::Of(Fate::Preempted),
            () if begins("CUT") => Self::Of(Fate::Cut),
            () => Self::Of(Fate::Ended),
        }
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
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            _ if character == separator && !is_quoted => cells.push(Cow::Owned(std::mem::take(&mut cell))),
            _ => cell.push(character),
        }
    }
    cells.push(Cow::Owned(cell));
    (!is_quoted).then_some(cells)
}
