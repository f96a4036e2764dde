//! The runs as a policy would have had them, as CSV: a trace again.

use std::{borrow::Cow, fmt::Write};

use super::past::{Past, PastRun, moment};

/// The headers, with the names that a trace is read by.
pub const HEADERS: &str = "id,submit,start,end,gpus,cpus,queue,user,priority,state";

/// Returns the line of a run.
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

fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r', ';']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " ")))
    } else {
        Cow::Borrowed(text)
    }
}
