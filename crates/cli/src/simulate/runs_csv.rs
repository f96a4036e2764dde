//! The runs as a policy would have had them, as CSV: a trace again.
//!
//! Called by `simulate --output csv`. The headers are the names that `--trace` reads without
//! `--columns`. The ceiling that a workload notes itself isn't written, nor which runs are of one
//! workload.

use std::fmt::Write;

use super::past::{Past, PastRun, moment};
use crate::print::printable;

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
    let [id, queue, user] = [id, past.queue_name(run), past.user_name(run)].map(cell);
    let mut line = String::new();
    // a write to a string can't fail
    _ = writeln!(line, "{id},{submit},{start},{end},{gpus},{cpus},{queue},{user},{priority},{}", fate.name());
    line
}

/// Returns a text as a cell. Tenants write some of these texts: hidden characters are replaced, and
/// a text that a spreadsheet would take for a formula gets an apostrophe. Quotes the text if it has
/// a separator or a quote.
fn cell(text: &str) -> String {
    let formula = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    let text = printable(text);
    if text.contains([',', '"', ';']) {
        format!("\"{formula}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{formula}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_no_hidden_characters_and_is_no_formula() {
        for (text, expected) in [
            ("job/a", "job/a"),
            ("a,b", "\"a,b\""),
            ("say \"a\"", "\"say \"\"a\"\"\""),
            ("\u{1b}[2Ja\nb", "\u{fffd}[2Ja\u{fffd}b"),
            ("=hyperlink(a,b)", "\"'=hyperlink(a,b)\""),
            ("-a", "'-a"),
        ] {
            assert_eq!(cell(text), expected, "{text:?}");
        }
    }
}
