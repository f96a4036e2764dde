//! `kubectl tenure deactivate`: stops workloads until somebody activates them.

mod queue;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tenure_policy::{
    expiry::Family,
    owners::PauseRule,
    pause::{self, DEACTIVATED, Owner, Until, is_deactivation},
};
use tenure_types::{keys::PAUSED_ANNOTATION, paused::PausedRecord};

use crate::{
    change::{Basis, Change, ChangeArgs, Command, Object, not_copied, paused, shown},
    connect::ConnectArgs,
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
    change: ChangeArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure deactivate job/training
  kubectl tenure deactivate job training-1 training-2 -n research --dry-run
  kubectl tenure activate job/training                           # lets it go on";

impl DeactivateArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<ExitCode> {
        let Self { change } = self;
        change.run(Deactivate, connect).await
    }
}

struct Deactivate;

/// What is to be written.
#[derive(Debug)]
enum Deactivation {
    /// A pause by each of the rules that there are for its kind, of which the first counts that the API server knows.
    Paused { patch: Value, otherwise: Vec<Value>, by: Vec<(PauseRule, PausedRecord)> },
    /// It was paused before, because of this.
    Marked { patch: Value, reason: String },
}

impl Command for Deactivate {
    type Change = Deactivation;

    const VERB: &'static str = "deactivate";

    fn judge(&self, object: Object<'_>, found: &Value, by: Basis<'_>) -> Result<Deactivation> {
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
            return Ok(mark(found, record));
        }
        if Owner(found).is_finished() {
            bail!("{object} has ended: there is nothing to stop");
        }
        pauses(found, &rules, now(by)).ok_or_else(|| unknown(object, &reference))
    }
}

fn has_record(found: &Value) -> bool {
    found.pointer("/metadata/annotations").is_some_and(|all| all.get(PAUSED_ANNOTATION).is_some())
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

/// None if there is no rule.
fn pauses(found: &Value, rules: &[&PauseRule], at: Timestamp) -> Option<Deactivation> {
    let (family, queue) = queue::of(found).unwrap_or((Family::Runai, ""));
    let record = |rule: &PauseRule| {
        let record = pause::record(Owner(found), rule, DEACTIVATED, (family, queue), at);
        PausedRecord { queue_group: record.queue_group.filter(|_| !queue.is_empty()), ..record }
    };
    let by: Vec<_> = rules.iter().map(|rule| ((*rule).clone(), record(rule))).collect();
    let patch = |(rule, record): &_| pause::patch(Owner(found), rule, record, &Until::Activated);
    let mut patches = by.iter().map(patch);
    Some(Deactivation::Paused { patch: patches.next()?, otherwise: patches.collect(), by })
}

/// The record stays: activation takes back what that pause has set.
fn mark(found: &Value, record: PausedRecord) -> Deactivation {
    Deactivation::Marked { patch: pause::deactivate(Owner(found), &record), reason: record.reason }
}

impl Change for Deactivation {
    fn patch(&self) -> &Value {
        match self {
            Self::Paused { patch, .. } | Self::Marked { patch, .. } => patch,
        }
    }

    fn otherwise(&self) -> &[Value] {
        match self {
            Self::Paused { otherwise, .. } => otherwise,
            Self::Marked { .. } => &[],
        }
    }

    fn told(&self, object: Object<'_>, now: &Value) -> Result<String> {
        match self {
            Self::Paused { by, .. } => {
                match by.iter().find(|(rule, record)| pause::took(Owner(now), rule, record)) {
                    Some((rule, _)) => Ok(format!("deactivated ({}: {})", rule.field, shown(&rule.value))),
                    None => bail!("{object}: the API server took the write, but didn't keep what pauses it"),
                }
            }
            Self::Marked { reason, .. } => {
                let reason = printable(reason);
                Ok(format!("deactivated (it was paused already, because of {reason})"))
            }
        }
    }

    fn note(&self, object: Object<'_>) -> Option<String> {
        Some(format!("{object} stays paused until it is activated: {}", object.command("activate")))
    }
}

#[cfg(test)]
mod tests;
