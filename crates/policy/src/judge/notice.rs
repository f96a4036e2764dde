//! Judges the notice of the end of a run, by what the object itself has noted: another keeper may have given the last one.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{
    act::{Act, BatchCoverage, Notice, NoticeChange},
    case::{Case, EVENT_REPAIR, Question, RunState, Task},
};
use crate::{
    notice::NoticePoints,
    pause::{Announcement, AtEnd, OwnerObject},
};

pub(super) fn judge(
    case: &Case,
    state: &RunState,
    now: Timestamp,
    object: OwnerReference,
    coverage: BatchCoverage,
) -> Result<Act, Question> {
    let table = &case.config.table;
    let Some(found) = case.object(&object)? else { return Ok(Act::Leave("its owner is gone", coverage)) };
    if found.metadata.uid.as_deref() != Some(&object.uid) || found.metadata.deletion_timestamp.is_some() {
        return Ok(Act::Leave("its owner is going or gone", coverage));
    }
    let noted = OwnerObject(&found.value);
    if table.rules(&object).any(|rule| noted.is_paused(rule)) {
        return Ok(Act::Leave("its owner is paused", coverage));
    }
    // the run ends with the first of all its pods, due or not
    let of_pods = if coverage == BatchCoverage::All { case.due.first_deadline } else { case.due.deadline };
    let end = state.first_end.map_or(of_pods, |first| first.min(of_pods));
    // the clock may have been set back since
    let now = now.max(case.due.handed_out);
    let announcement = noted.announcement();
    // the end that was announced for these pods
    let ours = announcement.is_some_and(|noted| match coverage {
        BatchCoverage::All => case.due.told.contains(&noted.end),
        _ => case.due.first_told == Some(noted.end),
    });
    let (change, told) = decide(case.task, ours, state.notice, (end, now), announcement);
    let then = match state.slice_delay {
        _ if table.deletes(&object) => AtEnd::OwnerDeleted,
        _ if !table.knows(&object) => AtEnd::Deleted,
        Some(delay) => AtEnd::Requeued(delay),
        None => AtEnd::Paused,
    };
    Ok(Act::Announce(Box::new(Notice { object, coverage, end, change, told, then })))
}

/// Returns the change of what is noted, and the time of the notice to tell.
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
        let given = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        (NoticeChange::Set(Announcement { end, given: Some(given) }), Some(given))
    };
    // an end that has passed, and wasn't that of these pods, is of an earlier run
    let Some(noted) = noted.filter(|noted| ours || noted.end > now) else { return notice() };
    // a keeper that gave one notice a run didn't note when
    let first = || noted.end.checked_sub(points.iter().next()?).ok();
    let given = noted.given.or_else(first).unwrap_or(now);
    match noted.given {
        _ if points.owes(end, given, now) => notice(),
        // the event of the last notice may be missing
        Some(given) if noted.end == end && !ours && now.duration_since(given) < EVENT_REPAIR => {
            (NoticeChange::Keep, Some(given))
        }
        _ if noted.end == end => (NoticeChange::Keep, None),
        given => (NoticeChange::Set(Announcement { end, given }), None),
    }
}
