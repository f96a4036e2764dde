//! Verdicts as text.

use std::{collections::BTreeMap, time::Duration};

use super::{Verdict, kinds};

/// Prints a line for each kind, and all about each plan that broke a rule.
pub fn print(verdicts: &[Verdict]) {
    let mut by_kind: BTreeMap<&str, Vec<&Verdict>> = BTreeMap::new();
    for verdict in verdicts {
        by_kind.entry(verdict.kind).or_default().push(verdict);
    }
    println!("{:<38}{:>6}{:>8}{:>18}   stands for", "kind of fault", "plans", "broken", "slowest recovery");
    for (kind, of_kind) in &by_kind {
        let broken = of_kind.iter().filter(|verdict| !verdict.violations.is_empty()).count();
        let slowest = of_kind.iter().map(|verdict| verdict.recovery).max().unwrap_or(Duration::ZERO);
        let stands_for = kinds::named(kind).map_or("", |kind| kind.stands_for);
        println!("{kind:<38}{:>6}{broken:>8}{:>16.1} s   {stands_for}", of_kind.len(), slowest.as_secs_f64());
    }
    for verdict in verdicts.iter().filter(|verdict| !verdict.violations.is_empty()) {
        println!("{}", in_full(verdict));
    }
}

/// Returns all about a plan that broke a rule, with the command that plays it alone.
pub fn in_full(verdict: &Verdict) -> String {
    let Verdict { kind, seed, violations, timeline, .. } = verdict;
    let violations = violations.join("\n  ");
    format!("FAULTS_KIND={kind} FAULTS_SEED={seed} make faults\n  {violations}\n{timeline}")
}
