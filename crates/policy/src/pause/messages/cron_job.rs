//! The notes of events on a `CronJob` that has paused Jobs. The keeper emits them.

use k8s_openapi::api::core::v1::ObjectReference;

use crate::naming::command;

/// Returns the note on a `CronJob` that starts no Job while this Job is paused: its
/// `concurrencyPolicy` is `Forbid`.
pub fn held_up(job: &ObjectReference) -> String {
    format!(
        "Starts no further Job while Job {} is paused, because concurrencyPolicy is Forbid: to finish that Job, {}",
        name(job),
        remedies(job)
    )
}

/// Returns the note on a `CronJob` that starts further Jobs while this Job is paused.
///
/// `paused` is the number of its paused Jobs, this Job included. `most` is the number that
/// `pausedHistoryLimit` keeps. None: all stay.
pub fn job_kept(job: &ObjectReference, paused: usize, most: Option<usize>) -> String {
    let rest = match most {
        None => "none of them is deleted by itself".to_owned(),
        Some(most) => format!("by pausedHistoryLimit, {most} of them are kept"),
    };
    format!(
        "Job {} is paused and hasn't ended, so no history limit and no ttlSecondsAfterFinished removes it. Paused Jobs of this CronJob: {paused}; {rest}. To finish that Job, {}",
        name(job),
        remedies(job)
    )
}

/// Returns the note on a `CronJob` whose oldest paused Job was deleted, since more than `most` are
/// paused.
pub fn job_deleted(job: &ObjectReference, most: usize) -> String {
    format!(
        "Deleted Job {}, the oldest of its paused Jobs: by pausedHistoryLimit, {most} of them are kept",
        name(job)
    )
}

fn name(job: &ObjectReference) -> &str {
    job.name.as_deref().unwrap_or_default()
}

fn remedies(job: &ObjectReference) -> String {
    let (name, namespace) = (name(job), job.namespace.as_deref().unwrap_or_default());
    format!("{}; to drop it, kubectl delete job {name} -n {namespace}", command("resume", job))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> ObjectReference {
        let [api_version, kind, name, namespace] =
            ["batch/v1", "Job", "train", "team"].map(|text| Some(text.to_owned()));
        ObjectReference { api_version, kind, name, namespace, ..ObjectReference::default() }
    }

    const REMEDIES: &str = "To finish that Job, kubectl tenure resume job.batch/train -n team; to drop it, kubectl delete job train -n team";

    #[test]
    fn a_cron_jobs_event_names_the_paused_job_that_holds_it_up_and_what_helps() {
        let expected = "Starts no further Job while Job train is paused, because concurrencyPolicy is Forbid: to finish that Job, kubectl tenure resume job.batch/train -n team; to drop it, kubectl delete job train -n team";
        assert_eq!(held_up(&job()), expected);
    }

    #[test]
    fn a_cron_job_that_goes_on_has_an_event_with_the_number_of_its_paused_jobs_and_what_removes_them() {
        let note = |rest: &str| {
            format!(
                "Job train is paused and hasn't ended, so no history limit and no ttlSecondsAfterFinished removes it. Paused Jobs of this CronJob: 5; {rest}. {REMEDIES}"
            )
        };
        assert_eq!(job_kept(&job(), 5, None), note("none of them is deleted by itself"));
        assert_eq!(job_kept(&job(), 5, Some(3)), note("by pausedHistoryLimit, 3 of them are kept"));
        let deleted =
            "Deleted Job train, the oldest of its paused Jobs: by pausedHistoryLimit, 3 of them are kept";
        assert_eq!(job_deleted(&job(), 3), deleted);
    }
}
