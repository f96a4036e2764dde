//! The runs as a policy would have had them, as CSV: a trace again.
//!
//! Called by `simulate --output csv`. The headers are the names that `--trace` reads without
//! `--columns`. The ceiling that a workload notes itself isn't written, nor which runs are of one
//! workload.

use std::io::{BufWriter, Write, stdout};

use anyhow::Result;

use super::past::{Past, PastRun, moment};
use crate::print::printable;

/// The headers: the names of the fields by which a trace is read.
pub const HEADERS: &str = "id,submit,start,end,gpus,cpus,queue,user,priority,state";

/// Prints the runs.
pub fn print(past: &Past) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    writeln!(out, "{HEADERS}")?;
    past.runs.iter().try_for_each(|run| writeln!(out, "{}", line(past, run)))?;
    Ok(out.flush()?)
}

/// Returns the line of a run, without its end. Times are in UTC.
pub fn line(past: &Past, run: &PastRun) -> String {
    let PastRun { gpus, cpus, priority, fate, .. } = run;
    let [submit, start, end] = [run.submit, run.start, run.end].map(moment);
    let [id, queue, user] = [&*run.id, past.queue_name(run), past.user_name(run)].map(cell);
    format!("{id},{submit},{start},{end},{gpus},{cpus},{queue},{user},{priority},{}", fate.name())
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
