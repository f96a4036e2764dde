//! The runs as a policy would have had them, as CSV: a trace again.
//!
//! Called by `simulate --output csv`. The headers are the names that `--trace` reads without
//! `--columns`. The ceiling that a workload notes itself isn't written, nor which runs are of one
//! workload.

use std::{borrow::Cow, fmt::Write};

use super::past::{Past, PastRun, moment};

/// The headers: the names of the fields by which a trace is read.
pub const HEADERS: &str = "id,submit,start,end,gpus,cpus,queue,user,priority,state";

/// Returns the line of a run, with its end. Times are in UTC.
pub fn line(past: &Past, run: &PastRun) -> String {
    let PastRun {
        id,
        submit,
        start,
        end,
        gpus,
        cpus,
        queue: _,
        user: _,
        priority,
        own: _,
        fate,
        is_joined: _,
    } = run;
    let [submit, start, end] = [submit, start, end].map(|at| moment(*at));
    let [id, queue, user] = [id, past.queue_name(run), past.user_name(run)].map(quoted);
    let mut line = String::new();
    // a write to a string can't fail
    _ = writeln!(line, "{id},{submit},{start},{end},{gpus},{cpus},{queue},{user},{priority},{}", fate.name());
    line
}

/// Quotes a text if it has a separator, a quote or the end of a line. Ends of lines become spaces.
fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r', ';']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " ")))
    } else {
        Cow::Borrowed(text)
    }
}
