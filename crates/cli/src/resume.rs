//! `kubectl tenure resume`: resumes workloads that Tenure has paused.

use anyhow::Result;
use clap::Args;
use tenure_policy::pause::{Return, is_deactivation};

use crate::change::{BulkArgs, ChangeSubject, Command, ObjectChange};

/// Resume workloads that Tenure has paused
///
/// Restores the field that the pause has set to its former value, and removes the record of the pause (annotation
/// tenure.dev/paused), in one write. If the field was changed since, it is left alone and only the record is removed.
/// New pods get a full ceiling of their queue.
///
/// Takes back every pause by Tenure: a workload that would have come back by itself does so now, as by requeue, and a
/// deactivated workload is active again, as by activate.
///
/// In place of names, --queue, -l and --all select workloads by the records of their pauses, as list shows them with
/// state Paused or Requeueing. Deactivated workloads are left out. A count comes last; --dry-run shows the workloads
/// that would be resumed.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES, mut_arg("objects", |objects| objects.required(false)))]
pub struct Resume {
    /// A field that may be restored although Tenure's own table doesn't have it for this kind, because an admin has added
    /// it to the keeper's table
    #[arg(long = "field", value_name = "PATH")]
    fields: Vec<String>,

    #[command(flatten)]
    bulk: BulkArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure resume deployment/test
  kubectl tenure resume job training-1 training-2 -n research
  kubectl tenure resume pytorchjobs.kubeflow.org/bert deploy/web --dry-run
  kubectl tenure resume rollout/web --field spec.replicas    # of a kind that your admin has added
  kubectl tenure resume -A --queue research --since 1h --dry-run    # workloads paused in the last hour
  kubectl tenure resume --all -n research";

impl Command for Resume {
    const VERB: &'static str = "resume";

    fn bulk(&self) -> Option<&BulkArgs> {
        Some(&self.bulk)
    }

    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange> {
        let ChangeSubject { object, found, metadata, .. } = subject;
        let record = subject.paused(&self.fields)?;
        let note = match Return::of(&record, metadata) {
            _ if is_deactivation(&record) || found.is_inactive() => {
                Some(format!("{object} was deactivated: it is active again, and its returns count from 0."))
            }
            Return::Requeue(at) => Some(subject.keeps_count(at)),
            Return::Never | Return::Reactivate | Return::Deactivate => None,
        };
        Ok(subject.resumption(record, "resumed", note))
    }
}

#[cfg(test)]
mod tests;
