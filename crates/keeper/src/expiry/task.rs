//! Tasks about pods, and the consequence of a try.
//!
//! The `ExpiryController` queues a [`PodTask`] for each key of due pods, and gives the [`ActionOutcome`]
//! of each try to the index.

use jiff::Timestamp;
use tenure_index::{ActionOutcome, DueKey, DueWork, Task};
use tenure_policy::judge::Act;
use tenure_service::work::Work;

use crate::action::ActionFailure;

/// A task about the pods that one act may serve.
#[derive(Debug)]
pub struct PodTask {
    /// The key of the pods, the most urgent task, and the time since which it is due.
    pub due: DueWork,
}

impl Work for PodTask {
    type Key = DueKey;
    /// Expiries come before evictions, each by the time since which it is due.
    type Rank = (Task, Timestamp);

    fn key(&self) -> DueKey {
        self.due.key.clone()
    }

    fn namespace(&self) -> &str {
        &self.due.key.namespace
    }

    fn rank(&self) -> (Task, Timestamp) {
        (self.due.task, self.due.since)
    }

    fn is_retry(&self) -> bool {
        self.due.is_retry
    }

    fn replaces(&self, known: &Self) -> bool {
        self.due.is_retry != known.due.is_retry
    }
}

/// Returns the outcome of a try. `is_late`: the try was made a minute or more after the deadline. A
/// failure counts towards the tries after which the pod is deleted only if it shows that the owner
/// can't be read or paused.
pub fn outcome(
    task: Task,
    (dry_run, is_late): (bool, bool),
    result: Result<&Act, &ActionFailure>,
) -> ActionOutcome {
    match (task, result) {
        // a dry run reports an action only once
        (Task::Expire | Task::Evict, Ok(act)) if dry_run && act.is_done() => ActionOutcome::Final,
        (Task::Expire | Task::Evict, Ok(Act::Exempt)) => ActionOutcome::Final,
        (_, Ok(Act::TooEarly)) => ActionOutcome::TooEarly,
        (_, Ok(Act::Extended)) => ActionOutcome::Moved,
        (Task::Evict, Ok(Act::Pause(..) | Act::Command(..) | Act::PausedBefore)) => ActionOutcome::Paused,
        (Task::Expire | Task::Evict, Err(failure)) if failure.counts_as_try(is_late) => ActionOutcome::Acted,
        (_, Ok(Act::PutOff(..)) | Err(_)) => ActionOutcome::Failed,
        (_, Ok(_)) => ActionOutcome::Acted,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;
    use tenure_policy::{
        judge::{BatchCoverage, OwnerDeletion, PodDeletion},
        pause::{Pause, PausePlan, PodDeletionCause, ResumeCondition, Reversals},
    };
    use tenure_service::call::ApiError;

    use super::*;

    const IN_TIME: (bool, bool) = (false, false);
    const LATE: (bool, bool) = (false, true);

    fn answer(code: u16, message: &str) -> ApiError {
        let status = json!({"status": "Failure", "code": code, "message": message, "reason": ""});
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap())).into()
    }

    fn paused() -> Act {
        let plan = PausePlan {
            reason: "MaxDurationExceeded",
            at: Timestamp::UNIX_EPOCH,
            until: ResumeCondition::Resumed,
        };
        Act::Pause(OwnerReference::default(), Box::new(Pause::new(plan, Reversals::default())))
    }

    fn nothing() -> Act {
        Act::Leave("", BatchCoverage::All)
    }

    #[test]
    fn a_try_that_failed_is_not_one_that_a_pod_has_outlived() {
        let failures = [
            ActionFailure::Api(ApiError::NotLeading),
            ActionFailure::Delete(ApiError::NotFound),
            ActionFailure::Pause { owner: OwnerReference::default(), source: ApiError::NotFound },
        ];
        for (task, failure) in
            [Task::Expire, Task::Evict].iter().flat_map(|task| failures.iter().map(move |of| (*task, of)))
        {
            assert_eq!(outcome(task, IN_TIME, Err(failure)), ActionOutcome::Failed, "{failure}");
        }
    }

    #[test]
    fn a_late_try_counts_if_the_owner_changes_each_time_or_the_api_server_fails_to_change_it() {
        let owner = OwnerReference::default;
        let webhook = || answer(500, "failed calling webhook \"of.tenant\"");
        let denial = || answer(429, "admission webhook \"of.tenant\" denied the request");
        let in_the_way = [
            ActionFailure::Pause { owner: owner(), source: ApiError::Stale(String::new()) },
            ActionFailure::Pause { owner: owner(), source: webhook() },
            ActionFailure::Pause { owner: owner(), source: denial() },
            ActionFailure::Pause { owner: owner(), source: ApiError::Timeout },
            ActionFailure::DeleteOwner { owner: owner(), source: ApiError::Stale(String::new()) },
            ActionFailure::DeleteOwner { owner: owner(), source: webhook() },
        ];
        for failure in &in_the_way {
            assert_eq!(outcome(Task::Expire, IN_TIME, Err(failure)), ActionOutcome::Failed, "{failure}");
            assert_eq!(outcome(Task::Expire, LATE, Err(failure)), ActionOutcome::Acted, "{failure}");
            assert!(failure.refused(false).is_none() && failure.refused(true).is_some(), "{failure}");
        }
    }

    #[test]
    fn no_outage_of_the_api_server_counts_as_a_try_however_late() {
        let owner = OwnerReference::default;
        let away = [
            ActionFailure::Api(ApiError::Timeout),
            ActionFailure::Api(answer(503, "the server is currently unable to handle the request")),
            ActionFailure::Delete(ApiError::Timeout),
            ActionFailure::Pause { owner: owner(), source: ApiError::NotLeading },
            ActionFailure::DeleteOwner { owner: owner(), source: ApiError::NotLeading },
        ];
        for failure in &away {
            assert_eq!(outcome(Task::Expire, LATE, Err(failure)), ActionOutcome::Failed, "{failure}");
            assert_eq!(failure.refused(true), None, "{failure}");
        }
    }

    #[test]
    fn an_act_that_is_put_off_is_not_a_try() {
        for task in [Task::Expire, Task::Evict] {
            assert_eq!(
                outcome(task, IN_TIME, Ok(&Act::PutOff("", BatchCoverage::All))),
                ActionOutcome::Failed
            );
            assert_eq!(outcome(task, IN_TIME, Ok(&Act::TooEarly)), ActionOutcome::TooEarly);
        }
    }

    #[test]
    fn a_try_counts_after_which_the_pod_runs_on() {
        let owner = OwnerReference::default;
        let no_field = ActionFailure::NoField { owner: owner(), fields: String::new() };
        let refused = [
            ActionFailure::Pause { owner: owner(), source: ApiError::Refused(String::new()) },
            ActionFailure::Pause { owner: owner(), source: ApiError::Forbidden(String::new()) },
            ActionFailure::DeleteOwner { owner: owner(), source: ApiError::Forbidden(String::new()) },
            ActionFailure::ForbiddenOwner(owner()),
            ActionFailure::Unreadable { owner: owner(), source: ApiError::Timeout },
            ActionFailure::Dropped { owner: owner(), field: String::new() },
        ];
        for failure in &refused {
            assert_eq!(outcome(Task::Expire, IN_TIME, Err(failure)), ActionOutcome::Acted, "{failure}");
        }
        for task in [Task::Expire, Task::Evict] {
            assert_eq!(
                outcome(task, IN_TIME, Err(&no_field)),
                ActionOutcome::Acted,
                "the owner has no such field"
            );
            assert_eq!(outcome(task, IN_TIME, Ok(&Act::Exempt)), ActionOutcome::Final);
            assert_eq!(outcome(task, IN_TIME, Ok(&nothing())), ActionOutcome::Acted);
        }
        assert_eq!(outcome(Task::Expire, IN_TIME, Ok(&paused())), ActionOutcome::Acted);
        assert_eq!(outcome(Task::Expire, IN_TIME, Ok(&Act::PausedBefore)), ActionOutcome::Acted);
        for result in [paused(), Act::PausedBefore] {
            assert_eq!(outcome(Task::Evict, IN_TIME, Ok(&result)), ActionOutcome::Paused);
        }
    }

    #[test]
    fn a_dry_run_says_once_what_it_would_do() {
        for task in [Task::Expire, Task::Evict] {
            let (owner, ceiling) = (OwnerReference::default(), None);
            let pod = PodDeletion { alone: PodDeletionCause::NoOwner, ceiling: None, undone: None };
            let deletions =
                [Act::DeletePod(Box::new(pod)), Act::DeleteOwner(Box::new(OwnerDeletion { owner, ceiling }))];
            for result in deletions.into_iter().chain([paused()]) {
                assert_eq!(outcome(task, (true, false), Ok(&result)), ActionOutcome::Final);
            }
            assert_eq!(outcome(task, (true, false), Ok(&nothing())), ActionOutcome::Acted);
        }
    }

    #[test]
    fn a_run_that_was_granted_more_time_was_not_tried_in_vain() {
        assert_eq!(outcome(Task::Expire, IN_TIME, Ok(&Act::Extended)), ActionOutcome::Moved);
    }

    #[test]
    fn what_could_not_be_recorded_is_recorded_again() {
        for task in [Task::Announce, Task::Withdraw] {
            assert_eq!(outcome(task, IN_TIME, Ok(&nothing())), ActionOutcome::Acted);
            assert_eq!(
                outcome(task, IN_TIME, Err(&ActionFailure::Api(ApiError::NotLeading))),
                ActionOutcome::Failed
            );
        }
    }
}
