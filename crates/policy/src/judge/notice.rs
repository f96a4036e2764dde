//! Judges the notice of the end of a run, by the annotations of the object itself: another keeper
//! may have given the last notice.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_types::journal::AtEnd;

use super::{
    act::{Act, BatchCoverage, Notice, NoticeChange},
    case::{Case, MissingFact, RunState, Task},
};
use crate::{
    notice::NoticePoints,
    pause::{Announcement, OwnerObject, whole_millisecond},
};

/// Returns the notice that is due on `object`. [`Act::Leave`] if the object is gone, being deleted
/// or paused. [`Act::PutOff`] if the end that is to be announced has passed.
pub(super) fn judge(
    case: &Case,
    state: &RunState,
    now: Timestamp,
    object: OwnerReference,
    coverage: BatchCoverage,
) -> Result<Act, MissingFact> {
    let table = &case.config.table;
    let Some(found) = case.object(&object)? else { return Ok(Act::Leave("its owner is gone", coverage)) };
    if found.metadata.uid.as_deref() != Some(&object.uid) || found.metadata.deletion_timestamp.is_some() {
        return Ok(Act::Leave("its owner is being deleted or gone", coverage));
    }
    let noted = OwnerObject(&found.value);
    if table.rules(&object).any(|rule| noted.is_paused(rule)) {
        return Ok(Act::Leave("its owner is paused", coverage));
    }
    // the run ends with the first of all its pods, due or not
    let of_pods = if coverage == BatchCoverage::All { case.due.first_deadline } else { case.due.deadline };
    let end = state.first_end.map_or(of_pods, |first| first.min(of_pods));
    // the object is about to be paused. If only that pod is deleted, the object runs on until
    // another end, and its notice is still due
    if case.task == Task::Announce && end <= now {
        return Ok(Act::PutOff("the run of another of its pods has ended", coverage));
    }
    // the clock may have been set back since
    let now = now.max(case.due.handed_out);
    let announcement = noted.announcement();
    // true if the noted end is one that was announced for these pods
    let ours = announcement.is_some_and(|noted| match coverage {
        BatchCoverage::All => case.due.announced_ends.contains(&noted.end),
        _ => case.due.first_announced_end == Some(noted.end),
    });
    let (change, announced_at) = match case.task {
        Task::Note => (shown(end, announcement, state.since), None),
        task => decide(task, ours, state.notice, (end, now), announcement),
    };
    let then = match state.slice_delay {
        _ if table.deletes(&object) => AtEnd::OwnerDeleted,
        _ if !table.knows(&object) => AtEnd::Deleted,
        Some(delay) => AtEnd::Requeued(delay),
        None => AtEnd::Paused,
    };
    let more = state.more;
    Ok(Act::Announce(Box::new(Notice { object, coverage, end, change, announced_at, then, more })))
}

/// Returns the change by which an object shows the end of its run. Notices of earlier runs are
/// dropped.
fn shown(end: Timestamp, noted: Option<Announcement>, since: Option<Timestamp>) -> NoticeChange {
    let given = noted.and_then(|noted| noted.given_since(since));
    let announcement = Announcement { end, given };
    if noted == Some(announcement) { NoticeChange::Keep } else { NoticeChange::Set(announcement) }
}

/// Returns the change to the noted end, and the time of the notice that is due. None: no notice is
/// due.
///
/// `ours`: the noted end is one that was announced for these pods.
fn decide(
    task: Task,
    ours: bool,
    points: NoticePoints,
    (end, now): (Timestamp, Timestamp),
    noted: Option<Announcement>,
) -> (NoticeChange, Option<Timestamp>) {
    if task == Task::Withdraw {
        return (if ours { NoticeChange::Clear } else { NoticeChange::Keep }, None);
    }
    let notice = || {
        let given = whole_millisecond(now);
        (NoticeChange::Set(Announcement { end, given: Some(given) }), Some(given))
    };
    // an end that has passed, and wasn't announced for these pods, is of an earlier run
    let Some(noted) = noted.filter(|noted| ours || noted.end > now) else { return notice() };
    match noted.given {
        given if points.owes(end, given, now) => notice(),
        _ if noted.end == end => (NoticeChange::Keep, None),
        given => (NoticeChange::Set(Announcement { end, given }), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: (NoticeChange, Option<Timestamp>) = (NoticeChange::Keep, None);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// By the ends of runs of pods and the ends that were announced before, with notices 400 and 100 seconds before the end.
    fn decided(
        pods: &[(i64, Option<i64>)],
        noted: Option<(i64, Option<i64>)>,
        now: i64,
    ) -> (NoticeChange, Option<Timestamp>) {
        let end = pods.iter().map(|(end, _)| *end).min().unwrap();
        let ours = noted.is_some_and(|(end, _)| pods.iter().any(|(_, announced)| *announced == Some(end)));
        let noted = noted.map(|(end, given)| Announcement { end: at(end), given: given.map(at) });
        decide(Task::Announce, ours, "400s,100s".parse().unwrap(), (at(end), at(now)), noted)
    }

    fn notice(end: i64, given: i64) -> (NoticeChange, Option<Timestamp>) {
        let given = Some(at(given));
        (NoticeChange::Set(Announcement { end: at(end), given }), given)
    }

    fn silent(end: i64, given: Option<i64>) -> (NoticeChange, Option<Timestamp>) {
        (NoticeChange::Set(Announcement { end: at(end), given: given.map(at) }), None)
    }

    #[test]
    fn a_run_has_one_notice_at_each_point() {
        assert_eq!(decided(&[(1001, None), (1000, None)], None, 600), notice(1000, 600));
        assert_eq!(decided(&[(1000, Some(1000))], Some((1000, Some(600))), 899), KEEP);
        assert_eq!(decided(&[(1000, Some(1000))], Some((1000, Some(600))), 901), notice(1000, 901));
        assert_eq!(decided(&[(1000, Some(1000))], Some((1000, Some(901))), 999), KEEP);
    }

    #[test]
    fn the_next_keeper_gives_no_notice_twice_and_leaves_none_out() {
        assert_eq!(decided(&[(5000, None)], Some((5000, Some(1000))), 1400), KEEP);
        assert_eq!(decided(&[(1000, None)], Some((1000, Some(600))), 950), notice(1000, 950));
    }

    #[test]
    fn a_notice_to_an_earlier_run_does_not_count() {
        assert_eq!(decided(&[(1000, None)], Some((500, Some(450))), 600), notice(1000, 600));
    }

    #[test]
    fn a_moved_end_is_corrected_without_another_event_unless_a_point_has_passed() {
        assert_eq!(decided(&[(2000, Some(1000))], Some((1000, Some(950))), 960), silent(2000, Some(950)));
        assert_eq!(decided(&[(2000, Some(1000))], Some((1000, Some(950))), 1650), notice(2000, 1650));
        assert_eq!(decided(&[(980, Some(1000))], Some((1000, Some(600))), 700), silent(980, Some(600)));
        assert_eq!(decided(&[(780, Some(1000))], Some((1000, Some(600))), 700), notice(780, 700));
        let announced_by_another = decided(&[(2000, None)], Some((1000, Some(600))), 700);
        assert_eq!(announced_by_another, silent(2000, Some(600)));
    }

    #[test]
    fn points_that_lie_ahead_again_are_announced_again() {
        let noted = |given| Some((2000, Some(given)));
        assert_eq!(decided(&[(2000, Some(2000))], noted(950), 1600), notice(2000, 1600));
        assert_eq!(decided(&[(2000, Some(2000))], noted(1600), 1900), notice(2000, 1900));
    }

    #[test]
    fn an_end_that_is_shown_from_the_start_is_no_notice() {
        assert_eq!(decided(&[(1000, None)], Some((1000, None)), 599), KEEP);
        assert_eq!(decided(&[(1000, None)], Some((1000, None)), 600), notice(1000, 600));
        assert_eq!(decided(&[(1100, Some(1000))], Some((1000, None)), 650), silent(1100, None));
    }

    #[test]
    fn an_object_shows_the_end_of_its_run_and_keeps_the_notices_of_this_run_alone() {
        let of = |end, given: Option<i64>| Announcement { end: at(end), given: given.map(at) };
        let shown = |noted, since: i64| shown(at(1000), noted, Some(at(since)));
        let set = |given| NoticeChange::Set(of(1000, given));
        assert_eq!(shown(None, 0), set(None));
        assert_eq!(shown(Some(of(1000, None)), 0), NoticeChange::Keep);
        assert_eq!(shown(Some(of(1000, Some(600))), 0), NoticeChange::Keep);
        assert_eq!(shown(Some(of(1100, Some(600))), 0), set(Some(600)), "the end has moved");
        assert_eq!(shown(Some(of(1000, Some(600))), 600), NoticeChange::Keep, "of this run");
        assert_eq!(shown(Some(of(700, Some(600))), 601), set(None), "of an earlier run");
    }
}
