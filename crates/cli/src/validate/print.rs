//! How verdicts look: a line for each thing that was found, as compilers print them.

use std::io::{self, Write};

use super::judge::{Verdict, Verdicts};
use crate::table::printable;

pub fn table(verdicts: &Verdicts, out: &mut impl Write) -> io::Result<()> {
    verdicts.reviewed.iter().try_for_each(|verdict| findings(verdict, out))?;
    writeln!(out, "{}", summary(verdicts))
}

fn findings(verdict: &Verdict, out: &mut impl Write) -> io::Result<()> {
    let object = verdict.object();
    let mut line = |what: &str, text: &str| {
        writeln!(out, "{}", printable(&format!("{}: {what}: {object}: {text}", verdict.source)))
    };
    for error in &verdict.errors {
        line("error", &format!("{}: {}", error.field, error.message))?;
    }
    verdict.warnings.iter().try_for_each(|warning| line("warning", warning))
}

fn summary(verdicts: &Verdicts) -> String {
    let (all, refused) = (verdicts.reviewed.len(), verdicts.refused());
    let warned = verdicts.reviewed.iter().filter(|verdict| !verdict.warnings.is_empty()).count();
    let allowed = all.saturating_sub(refused);
    format!(
        "{all} reviewed: {allowed} allowed, {refused} refused, {warned} with warnings; {} skipped",
        verdicts.others
    )
}
