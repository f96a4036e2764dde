//! Tasks about pods, and the consequence of a try.
//!
//! The `ExpiryController` queues a [`PodTask`] for each key of due pods, and gives the [`Outcome`]
//! of each try to the index.

use jiff::Timestamp;
use tenure_index::{DueKey, DueWork, Outcome, Task};
use tenure_policy::judge::Act;
use tenure_service::work::Work;

use crate::action::Failure;

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
pub fn outcome(task: Task, (dry_run, is_late): (bool, bool), result: Result<&Act, &Failure>) -> Outcome {
    match (task, result) {
        // a dry run reports an action only once
        (Task::Expire | Task::Evict, Ok(act)) if dry_run && act.is_done() => Outcome::Final,
        (Task::Expire | Task::Evict, Ok(Act::Exempt)) => Outcome::Final,
        (_, Ok(Act::TooEarly)) => Outcome::TooEarly,
        (_, Ok(Act::Extended)) => Outcome::Moved,
        (Task::Evict, Ok(Act::Pause(..) | Act::Command(..) | Act::PausedBefore)) => Outcome::Paused,
        (Task::Expire | Task::Evict, Err(failure)) if failure.counts_as_try(is_late) => Outcome::Acted,
        (_, Ok(Act::PutOff(..)) | Err(_)) => Outcome::Failed,
        (_, Ok(_)) => Outcome::Acted,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;
    use tenure_policy::{
        judge::{BatchCoverage, OwnerDeletion, PodDeletion},
        pause::{Alone, Pause, PausePlan, ResumeCondition, Reversals},
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
            Failure::Api(ApiError::NotLeading),
            Failure::Delete(ApiError::NotFound),
            Failure::Pause { owner: OwnerReference::default(), source: ApiError::NotFound },
        ];
        for (task, failure) in
            [Task::Expire, Task::Evict].iter().flat_map(|task| failures.iter().map(move |of| (*task, of)))
        {
            assert_eq!(outcome(task, IN_TIME, Err(failure)), Outcome::Failed, "{failure}");
        }
    }

    #[test]
    fn a_late_try_counts_if_the_owner_changes_each_time_or_the_api_server_fails_to_change_it() {
        let owner = OwnerReference::default;
        let webhook = || answer(500, "failed calling webhook \"of.tenant\"");
        let in_the_way = [
            Failure::Pause { owner: owner(), source: ApiError::Stale(String::new()) },
            Failure::Pause { owner: owner(), source: webhook() },
            Failure::Pause { owner: owner(), source: ApiError::Timeout },
            Failure::DeleteOwner { owner: owner(), source: ApiError::Stale(String::new()) },
            Failure::DeleteOwner { owner: owner(), source: webhook() },
        ];
        for failure in &in_the_way {
            assert_eq!(outcome(Task::Expire, IN_TIME, Err(failure)), Outcome::Failed, "{failure}");
            assert_eq!(outcome(Task::Expire, LATE, Err(failure)), Outcome::Acted, "{failure}");
            assert!(failure.refused(false).is_none() && failure.refused(true).is_some(), "{failure}");
        }
    }

    #[test]
    fn no_outage_of_the_api_server_counts_as_a_try_however_late() {
        let owner = OwnerReference::default;
        let away = [
            Failure::Api(ApiError::Timeout),
            Failure::Api(answer(503, "the server is currently unable to handle the request")),
            Failure::Delete(ApiError::Timeout),
            Failure::Pause { owner: owner(), source: ApiError::NotLeading },
            Failure::Pause { owner: owner(), source: answer(429, "too many requests") },
            Failure::DeleteOwner { owner: owner(), source: ApiError::NotLeading },
        ];
        for failure in &away {
            assert_eq!(outcome(Task::Expire, LATE, Err(failure)), Outcome::Failed, "{failure}");
            assert_eq!(failure.refused(true), None, "{failure}");
        }
    }

    #[test]
    fn an_act_that_is_put_off_is_not_a_try() {
        for task in [Task::Expire, Task::Evict] {
            assert_eq!(outcome(task, IN_TIME, Ok(&Act::PutOff("", BatchCoverage::All))), Outcome::Failed);
            assert_eq!(outcome(task, IN_TIME, Ok(&Act::TooEarly)), Outcome::TooEarly);
        }
    }

    #[test]
    fn a_try_counts_after_which_the_pod_runs_on() {
        let owner = OwnerReference::default;
        let no_field = Failure::NoField { owner: owner(), fields: String::new() };
        let refused = [
            Failure::Pause { owner: owner(), source: ApiError::Refused(String::new()) },
            Failure::Pause { owner: owner(), source: ApiError::Forbidden(String::new()) },
            Failure::DeleteOwner { owner: owner(), source: ApiError::Forbidden(String::new()) },
            Failure::ForbiddenOwner(owner()),
            Failure::Unreadable { owner: owner(), source: ApiError::Timeout },
            Failure::Dropped { owner: owner(), field: String::new() },
        ];
        for failure in &refused {
            assert_eq!(outcome(Task::Expire, IN_TIME, Err(failure)), Outcome::Acted, "{failure}");
        }
        for task in [Task::Expire, Task::Evict] {
            assert_eq!(outcome(task, IN_TIME, Err(&no_field)), Outcome::Acted, "the owner has no such field");
            assert_eq!(outcome(task, IN_TIME, Ok(&Act::Exempt)), Outcome::Final);
            assert_eq!(outcome(task, IN_TIME, Ok(&nothing())), Outcome::Acted);
        }
        assert_eq!(outcome(Task::Expire, IN_TIME, Ok(&paused())), Outcome::Acted);
        assert_eq!(outcome(Task::Expire, IN_TIME, Ok(&Act::PausedBefore)), Outcome::Acted);
        for result in [paused(), Act::PausedBefore] {
            assert_eq!(outcome(Task::Evict, IN_TIME, Ok(&result)), Outcome::Paused);
        }
    }

    #[test]
    fn a_dry_run_says_once_what_it_would_do() {
        for task in [Task::Expire, Task::Evict] {
            let (owner, ceiling) = (OwnerReference::default(), None);
            let pod = PodDeletion { alone: Alone::NoOwner, ceiling: None, undone: None };
            let deletions =
                [Act::DeletePod(Box::new(pod)), Act::DeleteOwner(Box::new(OwnerDeletion { owner, ceiling }))];
            for result in deletions.into_iter().chain([paused()]) {
                assert_eq!(outcome(task, (true, false), Ok(&result)), Outcome::Final);
            }
            assert_eq!(outcome(task, (true, false), Ok(&nothing())), Outcome::Acted);
        }
    }

    #[test]
    fn a_run_that_was_granted_more_time_was_not_tried_in_vain() {
        assert_eq!(outcome(Task::Expire, IN_TIME, Ok(&Act::Extended)), Outcome::Moved);
    }

    #[test]
    fn what_could_not_be_told_is_told_again() {
        for task in [Task::Announce, Task::Withdraw] {
            assert_eq!(outcome(task, IN_TIME, Ok(&nothing())), Outcome::Acted);
            assert_eq!(outcome(task, IN_TIME, Err(&Failure::Api(ApiError::NotLeading))), Outcome::Failed);
        }
    }
}
