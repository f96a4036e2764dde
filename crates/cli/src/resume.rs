//! `kubectl tenure resume`, `requeue` and `activate`: they undo pauses.
//!
//! Each is a [`ChangeCommand`] of [`crate::change`], which reads, writes and reports. The three differ in
//! the states that they accept: `resume` takes every pause, `requeue` those that end by themselves,
//! `activate` deactivations.

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use tenure_policy::pause::{self, annotate};
use tenure_types::keys::{ACTIVE_ANNOTATION, REQUEUE_STATE_ANNOTATION};

use crate::{
    change::{BulkArgs, ChangeCommand, ChangeSubject, ObjectChange, PauseState},
    print::printable,
};

/// Resume workloads that Tenure has paused
///
/// Restores the field that the pause has set to its former value, and removes the record of the pause (annotation
/// tenure.dev/paused), in one write. A second write hands the field back to the field manager that it had before. If the
/// field was changed since, it is left alone and only the record is removed. New pods get a full ceiling of their queue.
///
/// Takes back every pause by Tenure: a workload that would have come back by itself does so now, as by requeue, and a
/// deactivated workload is active again, as by activate.
///
/// In place of names, --queue, -l and --all select workloads by the records of their pauses, as list shows them with
/// state Paused or Requeueing. Deactivated workloads are left out. A count comes last; --dry-run shows the workloads
/// that would be resumed.
#[derive(Clone, Debug, Args)]
#[command(
    mut_arg("objects", |objects| objects.required(false)),
    after_help = "\
Examples:
  kubectl tenure resume deployment/test
  kubectl tenure resume job training-1 training-2 -n research
  kubectl tenure resume pytorchjobs.kubeflow.org/bert deploy/web --dry-run
  kubectl tenure resume rollout/web --field spec.replicas    # of a kind that your admin has added
  kubectl tenure resume -A --queue research --since 1h --dry-run    # workloads paused in the last hour
  kubectl tenure resume --all -n research"
)]
pub struct Resume {
    /// Also restore this field, by which an admin has the keeper pause a further kind (keeper.owners of the chart). Without
    /// this flag, only fields by which Tenure pauses kinds that it knows itself are restored
    #[arg(long = "field", value_name = "PATH")]
    fields: Vec<String>,

    #[command(flatten)]
    bulk: BulkArgs,
}

impl ChangeCommand for Resume {
    const VERB: &'static str = "resume";

    fn bulk(&self) -> Option<&BulkArgs> {
        Some(&self.bulk)
    }

    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange> {
        let undone = pause::forget_undone(subject.found).filter(|_| subject.record_text().is_none());
        if let Some(patch) = undone.filter(|_| subject.paused_by().is_none()) {
            let message = "resumed (it runs already: its undone pauses count from 0)";
            return Ok(ObjectChange::new(patch, |_| Ok(message.into()), None));
        }
        let record = subject.paused(&self.fields)?;
        let note = match subject.state(&record) {
            // since the list was read: the list leaves deactivated ones out
            PauseState::Deactivated if self.bulk.selects() => {
                let object = subject.object;
                bail!("{object} was deactivated meanwhile. To let it go on: {}", object.command("activate"))
            }
            PauseState::Deactivated => {
                let object = subject.object;
                Some(format!("{object} was deactivated: it is active again, and its returns count from 0."))
            }
            PauseState::Returns(at) => Some(subject.keeps_count(at)),
            PauseState::Stays => None,
        };
        Ok(subject.resumption(record, "resumed", note))
    }
}

/// Resume workloads at once that would come back by themselves
///
/// A workload whose pods didn't get ready, or whose time slice has ended, waits before Tenure resumes it. This ends
/// the wait, in one write. The count of its returns because its pods didn't get ready is kept.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure queue research                  # workloads that wait, and until when
  kubectl tenure requeue job/training
  kubectl tenure requeue job training-1 training-2 -n research --dry-run")]
pub struct Requeue;

impl ChangeCommand for Requeue {
    const VERB: &'static str = "requeue";

    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange> {
        let (object, record) = (subject.object, subject.paused(&[])?);
        let (why, verb) = match subject.state(&record) {
            PauseState::Returns(at) => {
                return Ok(subject.resumption(record, "requeued", Some(subject.keeps_count(at))));
            }
            PauseState::Deactivated => ("it is deactivated".to_owned(), "activate"),
            PauseState::Stays => {
                let reason = printable(&record.reason);
                (format!("it was paused because of {reason}, until a person resumes it"), "resume")
            }
        };
        bail!("{object} doesn't wait to come back: {why}. To let it go on: {}", object.command(verb))
    }
}

/// Resume workloads that were deactivated
///
/// Tenure deactivates a workload whose pods don't get ready when it has come back as often as its queue allows
/// (backoffLimitCount), and a person does it by deactivate. In one write, this sets back the field that the pause has
/// set, and removes the record of the pause (annotation tenure.dev/paused), annotation tenure.dev/active, and the count
/// of returns (annotation tenure.dev/requeue-state), which begins again at 0.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure activate job/training
  kubectl tenure activate job training-1 training-2 -n research --dry-run
  kubectl annotate job/training tenure.dev/active-               # the same without this plugin: the keeper does the rest")]
pub struct Activate;

impl ChangeCommand for Activate {
    const VERB: &'static str = "activate";

    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange> {
        subject.not_copied()?;
        let ChangeSubject { object, found, .. } = subject;
        if subject.record_text().is_none() {
            if found.is_inactive() {
                let gone = json!({ACTIVE_ANNOTATION: null, REQUEUE_STATE_ANNOTATION: null});
                let message = "activated (Tenure had not paused it: nothing but annotations was changed)";
                return Ok(ObjectChange::new(annotate(found, &gone), |_| Ok(message.into()), None));
            }
            bail!("{object} is not deactivated: it has no annotation {ACTIVE_ANNOTATION}: \"false\"");
        }
        let record = subject.paused(&[])?;
        let (why, verb) = match subject.state(&record) {
            PauseState::Deactivated => return Ok(subject.resumption(record, "activated", None)),
            PauseState::Returns(at) => {
                (format!("it comes back by itself at {at}. To bring it back at once"), "requeue")
            }
            PauseState::Stays => {
                let reason = printable(&record.reason);
                (format!("it was paused because of {reason}. To let it go on"), "resume")
            }
        };
        bail!("{object} is not deactivated: {why}: {}", object.command(verb))
    }
}

#[cfg(test)]
mod tests;
