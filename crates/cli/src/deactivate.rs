//! `kubectl tenure deactivate`: stops workloads until they are activated.
//!
//! A [`ChangeCommand`] of [`crate::change`]. The patch is made by the code of `tenure_policy` that the
//! keeper pauses with, and is written at once, with the record of the pause.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use kube::core::ApiResource;
use serde_json::Value;
use tenure_policy::{
    expiry::Family,
    owner_table::PauseRule,
    pause::{self, DEACTIVATED, OwnerObject, Pause, PausePlan, ResumeCondition, Reversals, is_deactivation},
};
use tenure_types::paused::PausedRecord;

use crate::{
    change::{ChangeCommand, ChangeSubject, ObjectChange, ObjectName, shown},
    print::printable,
};

/// Stop workloads until they are activated
///
/// Pauses a workload as Tenure does (a Deployment is scaled to 0, a Job is suspended), and marks it with annotation
/// tenure.dev/active: "false", in one write. It doesn't come back by itself. A workload that Tenure has paused already
/// stays paused, and doesn't come back by itself any more. activate reverses this.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure deactivate job/training
  kubectl tenure deactivate job training-1 training-2 -n research --dry-run
  kubectl tenure activate job/training                           # lets it go on")]
pub struct Deactivate;

impl ChangeCommand for Deactivate {
    const VERB: &'static str = "deactivate";

    const PAUSES: bool = true;

    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange> {
        subject.not_copied()?;
        let ChangeSubject { object, found, .. } = subject;
        if let Some(rule) = subject.paused_by() {
            if subject.record_text().is_none() {
                let (field, value) = (&rule.field, shown(found.at(&rule.field)));
                bail!(
                    "{object} is paused already, but not by Tenure: its {field} is {value}. Tenure won't resume it"
                );
            }
            let record = subject.paused(&[])?;
            let is_inactive = is_deactivation(&record) && found.is_inactive();
            let activate = object.command("activate");
            ensure!(!is_inactive, "{object} is deactivated already. To let it go on: {activate}");
            // the record stays: activation undoes what its pause has set
            let message =
                format!("deactivated (it was paused already, because of {})", printable(&record.reason));
            let patch = pause::deactivate(found, &record);
            return Ok(ObjectChange::new(patch, move |_| Ok(message.clone()), Some(note(object))));
        }
        ensure!(!found.is_finished(), "{object} has ended: there is nothing to stop");
        pauses(subject).with_context(|| {
            let ApiResource { kind, api_version, .. } = &object.kind.resource;
            format!(
                "{object} can't be paused: this plugin knows no field that pauses a {kind} of {api_version} (kinds that an admin has added are known to the keeper alone)"
            )
        })
    }
}

/// Returns a pause by each rule for the kind: the first rule whose field the API server knows
/// counts. None: there is no rule.
fn pauses(subject: ChangeSubject<'_>) -> Option<ObjectChange> {
    let ChangeSubject { object, found, clock, .. } = subject;
    let at = pause::whole_millisecond(clock.now());
    let (family, queue) = queue_of(found.0).unwrap_or((Family::Runai, ""));
    let record = |rule: &PauseRule| {
        let plan = PausePlan { reason: DEACTIVATED, at, until: ResumeCondition::Activated };
        let pause = Pause::new(plan, Reversals::of(found, DEACTIVATED, None));
        let record = pause::record(found, rule, (family, queue), pause);
        PausedRecord { queue_group: record.queue_group.filter(|_| !queue.is_empty()), ..record }
    };
    let by: Vec<_> = subject.rules().into_iter().map(|rule| (rule.clone(), record(rule))).collect();
    let mut patches = by.iter().map(|(_, record)| pause::patch(found, record, &ResumeCondition::Activated));
    let (first, otherwise) = (patches.next()?, patches.collect());
    let command = by.iter().find_map(|(rule, _)| rule.command.as_ref());
    let after = command.map(|command| pause::command(found, &command.pause));
    let name = object.to_string();
    let message = move |now: &Value| {
        let took = by.iter().find(|(_, record)| pause::took(OwnerObject(now), record));
        let (_, record) = took.with_context(|| {
            let fields: Vec<&str> = by.iter().map(|(_, record)| record.field.as_str()).collect();
            let fields = fields.join(" and ");
            format!(
                "{name}: the API server took the write and dropped {fields}: see whether an admission webhook resets it"
            )
        })?;
        Ok(format!("deactivated ({}: {})", record.field, shown(&record.value)))
    };
    Some(ObjectChange { otherwise, after, ..ObjectChange::new(first, message, Some(note(object))) })
}

/// Returns the note about the way back.
fn note(object: ObjectName<'_>) -> String {
    format!("{object} stays paused until it is activated: {}", object.command("activate"))
}

/// Returns the queue that a workload names: by the labels of its pod templates, at any depth, or
/// else by its own labels. None: no label names a queue.
fn queue_of(object: &Value) -> Option<(Family, &str)> {
    let below = match object {
        Value::Object(fields) => fields.values().find_map(queue_of),
        Value::Array(items) => items.iter().find_map(queue_of),
        _ => None,
    };
    below.or_else(|| {
        let labels = object.get("metadata")?.get("labels")?;
        let named = |family: Family| labels.get(family.row().queue_label)?.as_str();
        let queue = |family| Some((family, named(family).filter(|queue| !queue.is_empty())?));
        Family::ALL.into_iter().find_map(queue)
    })
}

#[cfg(test)]
mod tests;
