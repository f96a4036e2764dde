//! Announces the end of a run on the workload, once a run.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde_json::Value;
use tenure_index::{BatchCoverage, DueBatch, DuePod, Task, Uid};
use tenure_policy::{
    owners::OwnerTable,
    pause::{self, AtEnd, OwnerObject},
};
use tenure_service::call::{ApiError, persist};

use super::{ActionResult, Conflicts, Done, Pauser, json, reference};
use crate::{events::EventRecord, recent::EVENT_REPAIR};

impl Pauser {
    /// Announces the end of the run of a group on an owner, or on a pod that has no such owner.
    pub(super) async fn announce(
        &self,
        group: &DueBatch,
        object: &OwnerReference,
        served: BatchCoverage,
        table: &OwnerTable,
    ) -> Result<Done, ApiError> {
        let mut conflicts = Conflicts::default();
        loop {
            match self.try_to_announce(group, object, served, table).await {
                Err(ApiError::Stale(_)) if conflicts.may_retry() => conflicts.wait().await,
                Err(ApiError::NotFound) => return Ok(Done::nothing("its owner is gone", served)),
                result => return result,
            }
        }
    }

    async fn try_to_announce(
        &self,
        group: &DueBatch,
        owner: &OwnerReference,
        served: BatchCoverage,
        table: &OwnerTable,
    ) -> Result<Done, ApiError> {
        let found = self.objects.get(&group.first.namespace, owner).await?;
        if found.metadata.uid.as_deref() != Some(&owner.uid) || found.metadata.deletion_timestamp.is_some() {
            return Ok(Done::nothing("its owner is going or gone", served));
        }
        let at = reference(owner, found.metadata.namespace.as_deref());
        let object = json(&found);
        if table.rules(owner).any(|rule| OwnerObject(&object).is_paused(rule)) {
            return Ok(Done::nothing("its owner is paused", served));
        }
        let end = self.end(group, owner);
        let (patch, event) = match decide(group, end, OwnerObject(&object).announced(), self.clock.now()) {
            Decision::Keep => (None, None),
            Decision::TellAgain => (None, Some(end)),
            Decision::Clear => (Some(pause::withdraw(OwnerObject(&object))), None),
            Decision::Set { first } => {
                (Some(pause::announce(OwnerObject(&object), end)), first.then_some(end))
            }
        };
        let result = if patch.is_some() {
            ActionResult::Announced { owner: owner.clone(), end }
        } else {
            ActionResult::Nothing("it has been told")
        };
        if let Some(patch) = patch {
            self.write(&group.first, owner, &patch, (group.task != Task::Withdraw).then_some(end)).await?;
        }
        let then =
            if table.deletes(owner) { AtEnd::OwnerDeleted } else { self.at_end(group, table.knows(owner)) };
        let events = event.map(|end| self.approaching(group, end, at, then)).into_iter().collect();
        Ok(Done { result, events, served })
    }

    /// Returns the earliest end among all pods of an owner, due or not.
    fn end(&self, group: &DueBatch, owner: &OwnerReference) -> Timestamp {
        let of_all = self.cluster.with(|index| index.first_end(&group.first.namespace, Uid::of(&owner.uid)));
        group.pods().map(|pod| pod.deadline).chain(of_all).min().unwrap_or(group.first.deadline)
    }

    /// Writes a patch after which this end is noted, or none.
    async fn write(
        &self,
        due: &DuePod,
        owner: &OwnerReference,
        patch: &Value,
        noted: Option<Timestamp>,
    ) -> Result<(), ApiError> {
        if self.dry_run {
            return Ok(());
        }
        self.announcements.until_ready().await;
        match self.objects.merge(&due.namespace, owner, patch).await {
            // it may have been applied nevertheless: then its event must still be written
            Err(error) if error.is_open() => {
                let found = persist(async || self.objects.get(&due.namespace, owner).await).await?;
                let is_same = found.metadata.uid.as_deref() == Some(&owner.uid);
                let is_noted = is_same && OwnerObject(&json(&found)).announced() == noted;
                if is_noted { Ok(()) } else { Err(error) }
            }
            result => result.map(drop),
        }
    }

    /// Returns what the keeper does at the end of the run of a group, for its announcement.
    fn at_end(&self, group: &DueBatch, is_pausable: bool) -> AtEnd {
        let DuePod { family, queue, .. } = &group.first;
        let delay = self.cluster.with(|index| index.slice_delay(*family, queue));
        match delay {
            _ if !is_pausable => AtEnd::Deleted,
            Some(delay) => AtEnd::Requeued(delay),
            None => AtEnd::Paused,
        }
    }

    fn approaching(
        &self,
        group: &DueBatch,
        end: Timestamp,
        object: ObjectReference,
        then: AtEnd,
    ) -> EventRecord {
        let reason = pause::MAX_DURATION_APPROACHING;
        let note = pause::approaching(end, &group.first.queue, &object, then);
        let note = if self.dry_run { pause::dry_run(&note) } else { note };
        EventRecord { object, reason, action: "Announcing", note, at: end, cause: None }
    }
}

/// The change to make to the end of the run that an object has noted.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// The noted end is right, or not from Tenure.
    Keep,
    /// The noted end is right, but its event may be missing.
    TellAgain,
    /// The noted end is to be removed.
    Clear,
    /// The end is to be noted; only the first note of a run has an event.
    Set { first: bool },
}

fn decide(group: &DueBatch, end: Timestamp, announced: Option<Timestamp>, now: Timestamp) -> Decision {
    // the end that was announced for these pods
    let ours = announced.is_some() && group.pods().any(|pod| pod.told == announced);
    match announced {
        _ if group.task == Task::Withdraw && ours => Decision::Clear,
        _ if group.task == Task::Withdraw => Decision::Keep,
        Some(at) if at == end && !ours && now.duration_since(group.first.since) < EVENT_REPAIR => {
            Decision::TellAgain
        }
        Some(at) if at == end => Decision::Keep,
        // none, or one of an earlier run
        announced => Decision::Set { first: !ours && announced.is_none_or(|at| at <= now) },
    }
}

#[cfg(test)]
mod tests {
    use tenure_index::Claim;
    use tenure_policy::{expiry::Family, ready::Cause};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Pods by the end of their run and the end that was announced before; due since 600.
    fn group(task: Task, pods: &[(i64, Option<i64>)]) -> DueBatch {
        let mut dues = pods.iter().map(|(end, told)| DuePod {
            claim: Claim::default(),
            uid: Uid::of(""),
            namespace: String::new(),
            name: String::new(),
            family: Family::Runai,
            queue: String::new(),
            deadline: at(*end),
            since: at(600),
            told: told.map(at),
            cause: Cause::WaitForStart,
            attempts: 0,
            outlives: false,
        });
        DueBatch { task, first: dues.next().unwrap(), rest: dues.collect() }
    }

    fn decided(pods: &[(i64, Option<i64>)], announced: Option<i64>, now: i64) -> Decision {
        let end = pods.iter().map(|(end, _)| *end).min().unwrap();
        decide(&group(Task::Announce, pods), at(end), announced.map(at), at(now))
    }

    #[test]
    fn a_run_is_told_once() {
        assert_eq!(decided(&[(1001, None), (1000, None)], None, 600), Decision::Set { first: true });
        assert_eq!(decided(&[(1000, None)], Some(1000), 999), Decision::Keep);
    }

    #[test]
    fn what_an_earlier_run_was_told_does_not_count() {
        assert_eq!(decided(&[(1000, None)], Some(500), 600), Decision::Set { first: true });
    }

    #[test]
    fn a_moved_end_is_corrected_without_another_event() {
        assert_eq!(decided(&[(2000, Some(1000))], Some(1000), 700), Decision::Set { first: false });
        assert_eq!(decided(&[(2000, Some(1000))], Some(1000), 1700), Decision::Set { first: false });
        assert_eq!(decided(&[(900, Some(1000))], Some(1000), 700), Decision::Set { first: false });
        assert_eq!(
            decided(&[(2000, None)], Some(1000), 700),
            Decision::Set { first: false },
            "told by another"
        );
    }

    #[test]
    fn an_event_that_a_crash_may_have_prevented_is_told_again_for_a_while() {
        assert_eq!(decided(&[(1000, None)], Some(1000), 601), Decision::TellAgain);
        assert_eq!(decided(&[(1000, Some(1000))], Some(1000), 601), Decision::Keep);
    }

    #[test]
    fn where_no_ceiling_applies_any_more_what_was_told_is_taken_away() {
        let withdraw = group(Task::Withdraw, &[(1000, Some(1000))]);
        let decided = |announced: Option<i64>| decide(&withdraw, at(1000), announced.map(at), at(700));
        assert_eq!(decided(Some(1000)), Decision::Clear);
        assert_eq!(decided(Some(900)), Decision::Keep);
        assert_eq!(decided(None), Decision::Keep);
    }
}
