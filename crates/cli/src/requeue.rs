//! `kubectl tenure requeue`: resumes workloads at once that would come back by themselves.

use anyhow::{Result, bail};
use clap::Args;
use tenure_policy::pause::{Return, is_deactivation};

use crate::{
    change::{ChangeSubject, Command, ObjectChange},
    table::printable,
};

/// Resume workloads at once that would come back by themselves
///
/// A workload whose pods didn't get ready, or whose time slice has ended, waits before Tenure resumes it. This ends
/// the wait, in one write. The count of its returns because its pods didn't get ready is kept.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Requeue;

const EXAMPLES: &str = "\
Examples:
  kubectl tenure queue research                  # workloads that wait, and until when
  kubectl tenure requeue job/training
  kubectl tenure requeue job training-1 training-2 -n research --dry-run";

impl Command for Requeue {
    const VERB: &'static str = "requeue";

    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange> {
        let ChangeSubject { object, found, metadata, .. } = subject;
        let record = subject.paused(&[])?;
        let (why, verb) = match Return::of(&record, metadata) {
            Return::Requeue(at) => {
                return Ok(subject.resumption(record, "requeued", Some(subject.keeps_count(at))));
            }
            _ if is_deactivation(&record) || found.is_inactive() => {
                ("it is deactivated".to_owned(), "activate")
            }
            Return::Never | Return::Reactivate | Return::Deactivate => {
                let reason = printable(&record.reason);
                (format!("it was paused because of {reason}, until a person resumes it"), "resume")
            }
        };
        bail!("{object} doesn't wait to come back: {why}. To let it go on: {}", object.command(verb))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::change::testing::{judged, object, record};

    fn suspended(reason: &str, more: &[(&str, &str)]) -> Value {
        let record = record(reason, "spec.suspend", &json!(true), &json!(false));
        object(&[&[("paused", record.as_str())], more].concat(), &json!({"suspend": true}))
    }

    fn state(count: u32) -> String {
        format!(r#"{{"count":{count},"requeueAt":"2026-01-02T03:09:05Z","priority":5}}"#)
    }

    #[test]
    fn who_waits_comes_back_and_its_count_stays() {
        let found = suspended("PodsReadyTimeout", &[("requeue-state", &state(2))]);
        let resumption = judged(&Requeue, "job", &found).unwrap();
        assert_eq!(resumption.patch["spec"], json!({"suspend": false}));
        let annotations = &resumption.patch["metadata"]["annotations"];
        assert_eq!(annotations["tenure.dev/paused"], Value::Null);
        let kept: Value =
            serde_json::from_str(annotations["tenure.dev/requeue-state"].as_str().unwrap()).unwrap();
        assert_eq!(kept, json!({"count": 2, "priority": 5}));
        let note = resumption.note.unwrap();
        assert!(
            note.ends_with("by itself at 2026-01-02T03:09:05Z. It keeps its count of returns, 2."),
            "{note}"
        );
    }

    #[test]
    fn the_pause_between_two_time_slices_is_a_wait_too() {
        let found = suspended("MaxDurationExceeded", &[("requeue-state", &state(0))]);
        let resumption = judged(&Requeue, "job", &found).unwrap();
        assert_eq!(resumption.patch["metadata"]["annotations"]["tenure.dev/requeue-state"], Value::Null);
    }

    #[test]
    fn who_does_not_wait_is_told_with_what_helps() {
        for (found, expected) in [
            (object(&[], &json!({"suspend": true})), "was not paused by Tenure"),
            (
                suspended("WorkloadInactive", &[("active", "false")]),
                "it is deactivated. To let it go on: kubectl tenure activate job.batch/test -n ns",
            ),
            (
                suspended("PodsReadyTimeout", &[("active", "false"), ("requeue-state", &state(1))]),
                "it is deactivated. To let it go on: kubectl tenure activate",
            ),
            (
                suspended("MaxDurationExceeded", &[]),
                "until a person resumes it. To let it go on: kubectl tenure resume job.batch/test -n ns",
            ),
        ] {
            let error = judged(&Requeue, "job", &found).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
