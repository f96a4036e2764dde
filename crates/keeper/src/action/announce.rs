//! Announces the end of a run on the workload, once a run.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde_json::Value;
use tenure_index::{BatchCoverage, DueBatch, DuePod, Task, Uid};
use tenure_policy::{
    config::Config,
    naming::reference,
    notice::NoticePoints,
    pause::{self, Announcement, AtEnd, OwnerObject},
};
use tenure_service::call::{ApiError, persist};

use super::{ActionResult, Conflicts, Done, Pauser, json};
use crate::{events::EventRecord, recent::EVENT_REPAIR};

impl Pauser {
    /// Announces the end of the run of a group on an owner, or on a pod that has no such owner.
    pub(super) async fn announce(
        &self,
        group: &DueBatch,
        object: &OwnerReference,
        served: BatchCoverage,
        config: &Config,
    ) -> Result<Done, ApiError> {
        let mut conflicts = Conflicts::default();
        loop {
            match self.try_to_announce(group, object, served, config).await {
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
        config: &Config,
    ) -> Result<Done, ApiError> {
        let found = self.objects.get(&group.first.namespace, owner).await?;
        if found.metadata.uid.as_deref() != Some(&owner.uid) || found.metadata.deletion_timestamp.is_some() {
            return Ok(Done::nothing("its owner is going or gone", served));
        }
        let at = reference(owner, found.metadata.namespace.as_deref());
        let (object, table) = (json(&found), &config.table);
        let object = OwnerObject(&object);
        if table.rules(owner).any(|rule| object.is_paused(rule)) {
            return Ok(Done::nothing("its owner is paused", served));
        }
        let run = self.run(group, owner);
        let decision = decide(group, run, object.announcement());
        let (patch, notice) = match decision {
            Decision::Keep => (None, None),
            Decision::TellAgain { given } => (None, Some(given)),
            Decision::Clear => (Some((pause::withdraw(object), None)), None),
            Decision::Set { noted, is_notice } => {
                let notice = noted.given.filter(|_| is_notice);
                (Some((pause::announce(object, noted), Some(noted))), notice)
            }
        };
        let result = if patch.is_some() {
            ActionResult::Announced { owner: owner.clone(), end: run.end }
        } else {
            ActionResult::Nothing("it has been told")
        };
        if let Some((patch, noted)) = patch {
            self.write(&group.first, owner, &patch, noted).await?;
        }
        self.show_on_pods(group, owner, (run.end, decision), config);
        let then =
            if table.deletes(owner) { AtEnd::OwnerDeleted } else { self.at_end(group, table.knows(owner)) };
        let events =
            notice.map(|given| self.approaching(group, (run, given), at, then)).into_iter().collect();
        Ok(Done { result, events, served })
    }

    /// Returns the run that an owner is told of. It ends with the first of all its pods, due or not.
    fn run(&self, group: &DueBatch, owner: &OwnerReference) -> AnnouncedRun {
        let DuePod { namespace, family, queue, deadline, handed_out, .. } = &group.first;
        self.cluster.with(|index| {
            let of_all = index.first_end(namespace, Uid::of(&owner.uid));
            let end = group.pods().map(|pod| pod.deadline).chain(of_all).min().unwrap_or(*deadline);
            // the clock may have been set back since
            let now = self.clock.now().max(*handed_out);
            AnnouncedRun { end, points: index.notice(*family, queue), now }
        })
    }

    /// Has the pods of an owner show the end that the owner was told, where that is turned on.
    fn show_on_pods(
        &self,
        group: &DueBatch,
        owner: &OwnerReference,
        (end, decision): (Timestamp, Decision),
        config: &Config,
    ) {
        let is_pod = owner.api_version == "v1" && owner.kind == "Pod";
        if !config.notice_on_pods || self.dry_run || is_pod {
            return;
        }
        let of_owner = (group.first.namespace.as_str(), Uid::of(&owner.uid));
        match decision {
            Decision::Keep if group.task == Task::Withdraw => {}
            Decision::Clear => self.told.tell(of_owner, None, true, group.pods()),
            Decision::Keep | Decision::TellAgain { .. } => {
                self.told.tell(of_owner, Some(end), false, group.pods());
            }
            Decision::Set { .. } => self.told.tell(of_owner, Some(end), true, group.pods()),
        }
    }

    /// Writes a patch after which this is noted, or nothing.
    async fn write(
        &self,
        due: &DuePod,
        owner: &OwnerReference,
        patch: &Value,
        noted: Option<Announcement>,
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
                let is_noted = is_same && OwnerObject(&json(&found)).announcement() == noted;
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

    /// The event of a notice that is given at a time.
    fn approaching(
        &self,
        group: &DueBatch,
        (AnnouncedRun { end, points, now }, given): (AnnouncedRun, Timestamp),
        object: ObjectReference,
        then: AtEnd,
    ) -> EventRecord {
        let reason = pause::MAX_DURATION_APPROACHING;
        let note = pause::approaching(end, &group.first.queue, &object, then);
        // a dry run notes nothing: after a restart, the time of the point tells that the event has been written
        let at = if self.dry_run { points.last(end, now).unwrap_or(end) } else { given };
        let note = if self.dry_run { pause::dry_run(&note) } else { note };
        EventRecord {
            object,
            reason,
            action: "Announcing",
            note,
            at,
            cause: None,
            request: None,
            end: Some(end),
        }
    }
}

/// The run that an owner is told of.
#[derive(Clone, Copy, Debug)]
struct AnnouncedRun {
    end: Timestamp,
    points: NoticePoints,
    now: Timestamp,
}

/// The change to make to the end of the run that an object has noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// The noted end is right, or not from Tenure.
    Keep,
    /// The noted end is right, but the event of the last notice may be missing.
    TellAgain { given: Timestamp },
    /// The noted end is to be removed.
    Clear,
    /// The end is to be noted, with an event if that is a notice.
    Set { noted: Announcement, is_notice: bool },
}

/// Decides by what the object itself has noted: another keeper may have given the last notice.
fn decide(
    group: &DueBatch,
    AnnouncedRun { end, points, now }: AnnouncedRun,
    noted: Option<Announcement>,
) -> Decision {
    // the end that was announced for these pods
    let ours = noted.is_some_and(|noted| group.pods().any(|pod| pod.told == Some(noted.end)));
    if group.task == Task::Withdraw {
        return if ours { Decision::Clear } else { Decision::Keep };
    }
    let notice = || {
        let given = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        Decision::Set { noted: Announcement { end, given: Some(given) }, is_notice: true }
    };
    // an end that has passed, and wasn't that of these pods, is of an earlier run
    let Some(noted) = noted.filter(|noted| ours || noted.end > now) else { return notice() };
    // a keeper that gave one notice a run didn't note when
    let first = || noted.end.checked_sub(points.iter().next()?).ok();
    let given = noted.given.or_else(first).unwrap_or(now);
    match noted.given {
        _ if points.owes(end, given, now) => notice(),
        Some(given) if noted.end == end && !ours && now.duration_since(given) < EVENT_REPAIR => {
            Decision::TellAgain { given }
        }
        _ if noted.end == end => Decision::Keep,
        given => Decision::Set { noted: Announcement { end, given }, is_notice: false },
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

    /// Pods by the end of their run and the end that was announced before.
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
            handed_out: at(600),
            told: told.map(at),
            cause: Cause::WaitForStart,
            attempts: 0,
            outlives: false,
        });
        DueBatch { task, first: dues.next().unwrap(), rest: dues.collect() }
    }

    /// With notices 400 and 100 seconds before the end.
    fn decided(pods: &[(i64, Option<i64>)], noted: Option<(i64, Option<i64>)>, now: i64) -> Decision {
        let end = pods.iter().map(|(end, _)| *end).min().unwrap();
        let run = AnnouncedRun { end: at(end), points: "400s,100s".parse().unwrap(), now: at(now) };
        let noted = noted.map(|(end, given)| Announcement { end: at(end), given: given.map(at) });
        decide(&group(Task::Announce, pods), run, noted)
    }

    fn notice(end: i64, given: i64) -> Decision {
        Decision::Set { noted: Announcement { end: at(end), given: Some(at(given)) }, is_notice: true }
    }

    fn silent(end: i64, given: Option<i64>) -> Decision {
        Decision::Set { noted: Announcement { end: at(end), given: given.map(at) }, is_notice: false }
    }

    #[test]
    fn a_run_is_told_once_at_each_point() {
        assert_eq!(decided(&[(1001, None), (1000, None)], None, 600), notice(1000, 600));
        assert_eq!(decided(&[(1000, Some(1000))], Some((1000, Some(600))), 899), Decision::Keep);
        assert_eq!(decided(&[(1000, Some(1000))], Some((1000, Some(600))), 901), notice(1000, 901));
        assert_eq!(decided(&[(1000, Some(1000))], Some((1000, Some(901))), 999), Decision::Keep);
    }

    #[test]
    fn the_next_keeper_gives_no_notice_twice_and_leaves_none_out() {
        assert_eq!(decided(&[(5000, None)], Some((5000, Some(1000))), 1400), Decision::Keep);
        assert_eq!(decided(&[(1000, None)], Some((1000, Some(600))), 950), notice(1000, 950));
    }

    #[test]
    fn what_an_earlier_run_was_told_does_not_count() {
        assert_eq!(decided(&[(1000, None)], Some((500, Some(450))), 600), notice(1000, 600));
    }

    #[test]
    fn a_moved_end_is_corrected_without_another_event_unless_a_point_has_passed() {
        assert_eq!(decided(&[(2000, Some(1000))], Some((1000, Some(950))), 960), silent(2000, Some(950)));
        assert_eq!(decided(&[(2000, Some(1000))], Some((1000, Some(950))), 1650), notice(2000, 1650));
        assert_eq!(decided(&[(980, Some(1000))], Some((1000, Some(600))), 700), silent(980, Some(600)));
        assert_eq!(decided(&[(780, Some(1000))], Some((1000, Some(600))), 700), notice(780, 700));
        let told_by_another = decided(&[(2000, None)], Some((1000, Some(600))), 700);
        assert_eq!(told_by_another, silent(2000, Some(600)));
    }

    #[test]
    fn points_that_lie_ahead_again_are_told_again() {
        let noted = |given| Some((2000, Some(given)));
        assert_eq!(decided(&[(2000, Some(2000))], noted(950), 1600), notice(2000, 1600));
        assert_eq!(decided(&[(2000, Some(2000))], noted(1600), 1900), notice(2000, 1900));
    }

    #[test]
    fn a_notice_of_a_keeper_that_did_not_note_when_is_that_of_the_first_point() {
        assert_eq!(decided(&[(1000, None)], Some((1000, None)), 601), Decision::Keep);
        assert_eq!(decided(&[(1000, None)], Some((1000, None)), 901), notice(1000, 901));
        assert_eq!(decided(&[(1100, Some(1000))], Some((1000, None)), 650), silent(1100, None));
    }

    #[test]
    fn an_event_that_a_crash_may_have_prevented_is_told_again_for_a_while() {
        let again = Decision::TellAgain { given: at(600) };
        assert_eq!(decided(&[(1000, None)], Some((1000, Some(600))), 601), again);
        assert_eq!(decided(&[(1000, Some(1000))], Some((1000, Some(600))), 601), Decision::Keep);
    }

    #[test]
    fn where_no_ceiling_applies_any_more_what_was_told_is_taken_away() {
        let withdraw = group(Task::Withdraw, &[(1000, Some(1000))]);
        let run = AnnouncedRun { end: at(1000), points: NoticePoints::default(), now: at(700) };
        let decided = |end: Option<i64>| {
            decide(&withdraw, run, end.map(|end| Announcement { end: at(end), given: None }))
        };
        assert_eq!(decided(Some(1000)), Decision::Clear);
        assert_eq!(decided(Some(900)), Decision::Keep);
        assert_eq!(decided(None), Decision::Keep);
    }
}
