//! `kubectl tenure deactivate`: stops workloads until somebody activates them.

mod queue;

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tenure_policy::{
    expiry::Family,
    owners::PauseRule,
    pause::{self, DEACTIVATED, Owner, Until, is_deactivation},
};
use tenure_types::paused::PausedRecord;

use crate::{
    change::{Basis, Change, ChangeArgs, Command, Object, has_record, not_copied, paused, shown},
    table::printable,
};

/// Stop workloads until they are activated
///
/// Pauses a workload as Tenure does (a Deployment is scaled to 0, a Job is suspended), and marks it with annotation
/// tenure.dev/active: "false", in one write. It doesn't come back by itself. One that Tenure has paused already stays
/// paused, and doesn't come back by itself any more. activate takes it back.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DeactivateArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure deactivate job/training
  kubectl tenure deactivate job training-1 training-2 -n research --dry-run
  kubectl tenure activate job/training                           # lets it go on";

/// Pauses for good.
pub struct Deactivate;

impl Command for Deactivate {
    const VERB: &'static str = "deactivate";

    fn judge(&self, object: Object<'_>, found: &Value, by: Basis<'_>) -> Result<Change> {
        not_copied(object, found, by.table, Self::VERB)?;
        let reference = object.kind.reference(object.name);
        let rules: Vec<&PauseRule> = by.table.rules(&reference).collect();
        if let Some(rule) = rules.iter().find(|rule| Owner(found).is_paused(rule)) {
            if !has_record(found) {
                bail!(
                    "{object} is paused already, and not by Tenure: its {} is {}. There is nothing that could come back",
                    rule.field,
                    shown(&rule.value)
                );
            }
            let record = paused(object, found, by.table, &[], Self::VERB)?;
            if is_deactivation(&record) && Owner(found).is_inactive() {
                bail!("{object} is deactivated already. To let it go on: {}", object.command("activate"));
            }
            // it stays: activation takes back what that pause has set
            let reason = printable(&record.reason);
            let told =
                move |_: &Value| Ok(format!("deactivated (it was paused already, because of {reason})"));
            return Ok(Change::new(pause::deactivate(Owner(found), &record), told).noting(note(object)));
        }
        if Owner(found).is_finished() {
            bail!("{object} has ended: there is nothing to stop");
        }
        pauses(object, found, &rules, now(by)).ok_or_else(|| unknown(object, &reference))
    }
}

/// As exact as a record is read back.
fn now(by: Basis<'_>) -> Timestamp {
    let now = by.clock.now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

fn unknown(object: Object<'_>, reference: &OwnerReference) -> anyhow::Error {
    let (kind, api_version) = (&reference.kind, &reference.api_version);
    anyhow::anyhow!(
        "{object} can't be paused: {kind} of {api_version} is not in Tenure's own table (rows that an admin has added are known to the keeper alone)"
    )
}

/// A pause by each of the rules that there are for its kind, of which the first counts that the API server knows; none if
/// there is no rule.
fn pauses(object: Object<'_>, found: &Value, rules: &[&PauseRule], at: Timestamp) -> Option<Change> {
    let (family, queue) = queue::of(found).unwrap_or((Family::Runai, ""));
    let record = |rule: &PauseRule| {
        let record = pause::record(Owner(found), rule, DEACTIVATED, (family, queue), at);
        PausedRecord { queue_group: record.queue_group.filter(|_| !queue.is_empty()), ..record }
    };
    let by: Vec<_> = rules.iter().map(|rule| ((*rule).clone(), record(rule))).collect();
    let patch = |(rule, record): &_| pause::patch(Owner(found), rule, record, &Until::Activated);
    let patches: Vec<Value> = by.iter().map(patch).collect();
    let (first, otherwise) = patches.split_first()?;
    let name = object.to_string();
    let told = move |now: &Value| {
        let took = by.iter().find(|(rule, record)| pause::took(Owner(now), rule, record));
        let (rule, _) = took.with_context(|| {
            format!("{name}: the API server took the write, but didn't keep what pauses it")
        })?;
        Ok(format!("deactivated ({}: {})", rule.field, shown(&rule.value)))
    };
    Some(Change::new(first.clone(), told).or(otherwise.to_vec()).noting(note(object)))
}

fn note(object: Object<'_>) -> String {
    format!("{object} stays paused until it is activated: {}", object.command("activate"))
}

#[cfg(test)]
mod tests;
