//! `kubectl tenure activate`: resumes workloads that were deactivated.

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use tenure_policy::pause::{Return, annotate, is_deactivation};
use tenure_types::keys::{ACTIVE_ANNOTATION, REQUEUE_STATE_ANNOTATION};

use crate::{
    change::{ChangeSubject, Command, ObjectChange},
    table::printable,
};

/// Resume workloads that were deactivated
///
/// Tenure deactivates a workload whose pods don't get ready when it has come back as often as its queue allows
/// (backoffLimitCount), and a person does it by deactivate. In one write, this sets back the field that the pause has
/// set, and removes the record of the pause (annotation tenure.dev/paused), annotation tenure.dev/active, and the count
/// of returns (annotation tenure.dev/requeue-state), which begins again at 0.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Activate;

const EXAMPLES: &str = "\
Examples:
  kubectl tenure activate job/training
  kubectl tenure activate job training-1 training-2 -n research --dry-run
  kubectl annotate job/training tenure.dev/active-               # the same without this plugin: the keeper does the rest";

impl Command for Activate {
    const VERB: &'static str = "activate";

    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange> {
        subject.not_copied()?;
        let ChangeSubject { object, found, metadata, .. } = subject;
        let is_inactive = found.is_inactive();
        if subject.record_text().is_none() {
            if is_inactive {
                let gone = json!({ACTIVE_ANNOTATION: null, REQUEUE_STATE_ANNOTATION: null});
                let told = "activated (Tenure had not paused it: nothing but annotations was changed)";
                return Ok(ObjectChange::new(annotate(found, &gone), |_| Ok(told.into()), None));
            }
            bail!("{object} is not deactivated: it has no annotation {ACTIVE_ANNOTATION}: \"false\"");
        }
        let record = subject.paused(&[])?;
        if is_inactive || is_deactivation(&record) {
            return Ok(subject.resumption(record, "activated", None));
        }
        let (why, verb) = match Return::of(&record, metadata) {
            Return::Requeue(at) => {
                (format!("it comes back by itself at {at}. To bring it back at once"), "requeue")
            }
            Return::Never | Return::Reactivate | Return::Deactivate => {
                let reason = printable(&record.reason);
                (format!("it was paused because of {reason}. To let it go on"), "resume")
            }
        };
        bail!("{object} is not deactivated: {why}: {}", object.command(verb))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::change::testing::{judged, object, record, told};

    fn suspended(reason: &str, more: &[(&str, &str)]) -> Value {
        let record = record(reason, "spec.suspend", &json!(true), &json!(false));
        object(&[&[("paused", record.as_str())], more].concat(), &json!({"suspend": true}))
    }

    const STATE: (&str, &str) = ("requeue-state", r#"{"count":2,"requeueAt":"2026-01-02T03:09:05Z"}"#);

    #[test]
    fn what_was_deactivated_goes_on_and_counts_anew() {
        for found in [
            suspended("WorkloadInactive", &[("active", "false"), STATE]),
            suspended("Deactivated", &[("active", "false"), STATE]),
            // by hand, while it waited
            suspended("PodsReadyTimeout", &[("active", "false"), STATE]),
        ] {
            let activation = judged(&Activate, "job", &found).unwrap();
            let annotations = json!({"tenure.dev/paused": null, "tenure.dev/active": null, "tenure.dev/requeue-state": null});
            let metadata = json!({"uid": "u", "resourceVersion": "7", "annotations": annotations});
            assert_eq!(activation.patch, json!({"metadata": metadata, "spec": {"suspend": false}}));
            let now = json!({"spec": {"suspend": false}});
            assert_eq!(told(&activation, &now), Ok("activated (spec.suspend: false)".into()));
        }
    }

    #[test]
    fn what_was_never_paused_is_marked_as_active() {
        let found = object(&[("active", "false")], &json!({"suspend": true}));
        let activation = judged(&Activate, "job", &found).unwrap();
        let annotations = json!({"tenure.dev/active": null, "tenure.dev/requeue-state": null});
        let metadata = json!({"uid": "u", "resourceVersion": "7", "annotations": annotations});
        assert_eq!(activation.patch, json!({"metadata": metadata}));
    }

    #[test]
    fn what_is_not_deactivated_is_told_with_what_helps() {
        for (found, expected) in [
            (
                object(&[], &json!({})),
                "job.batch/test is not deactivated: it has no annotation tenure.dev/active",
            ),
            (
                suspended("PodsReadyTimeout", &[STATE]),
                "comes back by itself at 2026-01-02T03:09:05Z. To bring it back at once: kubectl tenure requeue job.batch/test -n ns",
            ),
            (
                suspended("MaxDurationExceeded", &[]),
                "it was paused because of MaxDurationExceeded. To let it go on: kubectl tenure resume job.batch/test -n ns",
            ),
        ] {
            let error = judged(&Activate, "job", &found).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
