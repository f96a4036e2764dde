//! Tells a workload when its run will end, once a run.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde_json::Value;
use tenure_index::{Due, Group, Task};
use tenure_policy::pause::{self, Owner};
use tenure_types::projection::Pod;

use super::{Actor, Deed, Done, Failure, READS, Target, json, of_pod, reference};
use crate::{api::ApiError, events::Happening, recent::EVENT_REPAIR};

impl Actor {
    pub(super) async fn announce(&self, group: &Group, target: Target, pod: &Pod) -> Result<Done, Failure> {
        let now = self.clock.now();
        if group.task == Task::Announce && group.first.deadline <= now {
            return Ok(Done::nothing("its run has ended", true));
        }
        let object = match target {
            Target::Owner(owner) => owner,
            Target::Pod => of_pod(pod),
            Target::Nothing(why, of_owner) => return Ok(Done::nothing(why, of_owner)),
        };
        let mut tries = 1..READS;
        loop {
            match self.try_to_announce(group, &object).await {
                Err(ApiError::Stale(_)) if tries.next().is_some() => {}
                Err(ApiError::NotFound) => return Ok(Done::nothing("its owner is gone", true)),
                result => return Ok(result?),
            }
        }
    }

    async fn try_to_announce(&self, group: &Group, owner: &OwnerReference) -> Result<Done, ApiError> {
        let found = self.objects.get(&group.first.namespace, owner).await?;
        if found.metadata.uid.as_deref() != Some(&owner.uid) || found.metadata.deletion_timestamp.is_some() {
            return Ok(Done::nothing("its owner is going or gone", true));
        }
        let at = reference(owner, found.metadata.namespace.as_deref());
        let object = json(&found);
        if self.table.rules(owner).any(|rule| Owner(&object).is_paused(rule)) {
            return Ok(Done::nothing("its owner is paused", true));
        }
        let (patch, event) = match decide(group, Owner(&object).announced(), self.clock.now()) {
            Decision::Keep => (None, None),
            Decision::TellAgain(end) => (None, Some(end)),
            Decision::Clear => (Some(pause::withdraw(Owner(&object))), None),
            Decision::Set { end, first } => {
                (Some(pause::announce(Owner(&object), end)), first.then_some(end))
            }
        };
        let deed = if patch.is_some() { Deed::Announced } else { Deed::Nothing("it has been told") };
        if let Some(patch) = patch {
            self.write(&group.first, owner, &patch).await?;
        }
        let events = event.map(|end| approaching(group, end, at)).into_iter().collect();
        Ok(Done { deed, events, of_owner: true })
    }

    async fn write(&self, due: &Due, owner: &OwnerReference, patch: &Value) -> Result<(), ApiError> {
        if self.dry_run {
            return Ok(());
        }
        self.limit.until_ready().await;
        self.objects.merge(&due.namespace, owner, patch).await.map(drop)
    }
}

/// What is to become of what an object says about the end of its run.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is right, or not ours.
    Keep,
    /// It is right, but its event may be missing.
    TellAgain(Timestamp),
    /// It is to be taken away.
    Clear,
    /// It is to be this; an event is for the first of a run.
    Set { end: Timestamp, first: bool },
}

fn decide(group: &Group, announced: Option<Timestamp>, now: Timestamp) -> Decision {
    // what one of these pods was told counts no longer
    let stale = announced.is_some() && group.pods().any(|pod| pod.told == announced);
    let end = group.pods().map(|pod| pod.deadline).min().unwrap_or(group.first.deadline);
    match announced {
        _ if group.task == Task::Withdraw => {
            if stale {
                Decision::Clear
            } else {
                Decision::Keep
            }
        }
        Some(at) if at == end && now.duration_since(group.first.since) < EVENT_REPAIR => {
            Decision::TellAgain(end)
        }
        // another pod of the same owner ends it earlier
        Some(at) if now < at && at <= end && !stale => Decision::Keep,
        Some(at) if now < at => Decision::Set { end, first: false },
        // none, or one of an earlier run
        _ => Decision::Set { end, first: !stale },
    }
}

fn approaching(group: &Group, end: Timestamp, object: ObjectReference) -> Happening {
    let reason = pause::MAX_DURATION_APPROACHING;
    let note = pause::approaching(end, &group.first.queue);
    Happening { object, reason, action: "Announcing", note, at: end }
}

#[cfg(test)]
mod tests {
    use tenure_index::Uid;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Pods by the end of their run and what they were told before; due since 600.
    fn group(task: Task, pods: &[(i64, Option<i64>)]) -> Group {
        let mut dues = pods.iter().map(|(end, told)| Due {
            uid: Uid::of(""),
            namespace: String::new(),
            name: String::new(),
            queue: String::new(),
            deadline: at(*end),
            since: at(600),
            told: told.map(at),
            attempts: 0,
        });
        Group { task, first: dues.next().unwrap(), rest: dues.collect() }
    }

    fn decided(pods: &[(i64, Option<i64>)], announced: Option<i64>, now: i64) -> Decision {
        decide(&group(Task::Announce, pods), announced.map(at), at(now))
    }

    #[test]
    fn a_run_is_told_once_with_the_end_of_its_first_pod() {
        assert_eq!(
            decided(&[(1001, None), (1000, None)], None, 600),
            Decision::Set { end: at(1000), first: true }
        );
        assert_eq!(decided(&[(1001, None)], Some(1000), 601), Decision::Keep);
    }

    #[test]
    fn what_an_earlier_run_was_told_does_not_count() {
        assert_eq!(decided(&[(1000, None)], Some(500), 600), Decision::Set { end: at(1000), first: true });
    }

    #[test]
    fn a_moved_end_is_corrected_without_another_event() {
        assert_eq!(
            decided(&[(2000, Some(1000))], Some(1000), 700),
            Decision::Set { end: at(2000), first: false }
        );
        assert_eq!(
            decided(&[(900, Some(1000))], Some(1000), 700),
            Decision::Set { end: at(900), first: false }
        );
    }

    #[test]
    fn an_event_that_a_crash_may_have_prevented_is_told_again_for_a_while() {
        assert_eq!(decided(&[(1000, None)], Some(1000), 601), Decision::TellAgain(at(1000)));
        assert_eq!(decided(&[(1000, None)], Some(1000), 999), Decision::Keep);
    }

    #[test]
    fn where_no_ceiling_applies_any_more_what_was_told_is_taken_away() {
        let withdraw = group(Task::Withdraw, &[(1000, Some(1000))]);
        assert_eq!(decide(&withdraw, Some(at(1000)), at(700)), Decision::Clear);
        assert_eq!(decide(&withdraw, Some(at(900)), at(700)), Decision::Keep);
        assert_eq!(decide(&withdraw, None, at(700)), Decision::Keep);
    }
}
