//! The runs of gangs: their starts, stamps and readiness, and lists of pods amid them.

use tenure_types::podgroup::PodGroupKind;

use super::{agrees, gang};
use crate::{
    event::{Event, StampEnd},
    object::List,
    world::{GroupObj, PodObj, RunaiObj, Wait},
};

/// Created and scheduled at a second, and ready since the next one, if it is.
fn member(uid: u32, second: i64, is_ready: bool) -> Event {
    let at = second * 1_000;
    Event::Pod(PodObj {
        uid,
        created: at,
        scheduled: Some(at),
        initialized: Some(at),
        ready: is_ready.then_some((true, at + 1_000)),
        runai: Some(1),
        groups: [Some(0), None, None, None, None],
        ..PodObj::default()
    })
}

#[test]
fn a_workload_that_was_ready_once_has_the_time_to_recover_when_a_member_is_replaced() {
    let mut events = gang(2);
    events.extend([member(1, 0, true), member(2, 0, true), Event::Pass(29_000)]);
    events.extend([Event::DeletePod(2), member(3, 29, false), Event::Pass(3_000), Event::Take(0)]);
    events.extend([Event::Pass(20_000), Event::Take(1)]);
    agrees(&events);
}

#[test]
fn a_workload_that_never_was_ready_has_no_more_time_when_a_member_is_replaced() {
    let mut events = gang(2);
    events.extend([member(1, 0, true), member(2, 0, false), Event::Pass(35_000)]);
    events.extend([Event::DeletePod(2), member(3, 35, false), Event::Pass(1_000), Event::Take(0)]);
    agrees(&events);
}

#[test]
fn the_time_to_recover_goes_on_while_members_are_replaced() {
    let mut events = gang(2);
    events.extend([member(1, 0, true), member(2, 0, true), Event::Pass(60_000)]);
    events.extend([Event::DeletePod(2), member(3, 60, false), Event::Pass(15_000)]);
    events.extend([Event::DeletePod(3), member(4, 75, false), Event::Pass(6_000), Event::Take(0)]);
    agrees(&events);
}

#[test]
fn a_run_goes_on_over_a_relist_while_a_member_shows_it() {
    let mut events = gang(1);
    events.extend([member(1, 10, true), member(2, 20, true), Event::ListPods]);
    events.extend([member(2, 20, true), Event::RetainPods(List(vec![2]))]);
    agrees(&events);
}

#[test]
fn a_run_of_which_a_relist_shows_no_member_is_another() {
    let mut events = gang(1);
    events.extend([member(1, 10, true), Event::ListPods, member(2, 20, true)]);
    events.push(Event::RetainPods(List(vec![2])));
    agrees(&events);
}

#[test]
fn a_stamp_that_is_ahead_does_not_move_the_start_that_pods_have_shown() {
    let group = |stamp: Option<i64>, min: u32| {
        Event::Group(GroupObj { stamp, min: Some(min), version: min, ..GroupObj::default() })
    };
    agrees(&[
        Event::RunaiQueue(1, RunaiObj { ceiling: Some(100_000_000), ..RunaiObj::default() }),
        Event::Pass(5_500),
        member(1, 5, true),
        group(Some(8_000), 1),
        group(Some(8_000), 3),
        Event::CheckStamps,
        group(None, 2),
    ]);
}

#[test]
fn a_volcano_group_takes_its_tasks_as_far_as_the_whole_does() {
    agrees(&[
        Event::RunaiQueue(1, RunaiObj::default()),
        Event::Group(GroupObj {
            kind: PodGroupKind::Volcano,
            min: Some(2),
            subgroups: List(vec![(1, Some(1), None), (2, Some(1), None)]),
            ..GroupObj::default()
        }),
        Event::Pod(PodObj {
            scheduled: Some(0),
            runai: Some(1),
            subgroup: Some(1),
            groups: [None, None, None, Some(0), None],
            ..PodObj::default()
        }),
        Event::Pod(PodObj {
            uid: 2,
            scheduled: Some(5_000),
            runai: Some(1),
            subgroup: Some(2),
            groups: [None, None, None, Some(0), None],
            ..PodObj::default()
        }),
    ]);
}

#[test]
fn a_start_that_pods_show_ahead_of_the_clock_is_no_earlier_for_it() {
    agrees(&[
        Event::RunaiQueue(1, RunaiObj { ceiling: Some(100_000_000), ..RunaiObj::default() }),
        Event::Group(GroupObj { min: Some(2), ..GroupObj::default() }),
        member(1, 4, true),
        member(2, 5, true),
        Event::Pass(4_950),
        Event::CheckStamps,
        Event::EndStamp(0, StampEnd::Written),
        Event::Pass(50),
        Event::CheckStamps,
        Event::EndStamp(0, StampEnd::Written),
    ]);
}

#[test]
fn a_start_far_ahead_that_only_a_stamp_shows_is_set_back() {
    agrees(&[
        Event::Group(GroupObj { min: Some(2), stamp: Some(900_000), ..GroupObj::default() }),
        member(1, 100, true),
        Event::Pass(1_500),
        Event::CheckStamps,
        Event::EndStamp(0, StampEnd::Written),
        Event::Pass(120_000),
        Event::CheckStamps,
    ]);
}

#[test]
fn a_start_ahead_of_the_clock_waits_for_it_though_its_run_ends_before() {
    let in_group = |uid, scheduled| PodObj {
        uid,
        scheduled: Some(scheduled),
        groups: [None, Some(0), None, None, None],
        ..PodObj::default()
    };
    agrees(&[
        Event::Group(GroupObj { kind: PodGroupKind::Tensorstack, ..GroupObj::default() }),
        Event::Pod(in_group(1, 300_000)),
        Event::CheckStamps,
        Event::Pod(PodObj { finished: true, ..in_group(1, 300_000) }),
        Event::EndStamp(0, StampEnd::Failed),
        Event::Pod(in_group(2, 375_000)),
        Event::CheckStamps,
    ]);
}

/// Of a gang of three, two pods that go on after one has succeeded: unready twice, and ready in between.
#[test]
fn a_recovery_begins_again_in_a_gang_with_a_pod_that_has_succeeded() {
    let wait = Wait {
        timeout: Some(300_000_000),
        recovery: Some(10_000_000),
        by_creation: false,
        from_creation: false,
        on_capacity: false,
        off: false,
    };
    let kind = PodGroupKind::Runai;
    let member = |uid, ready| PodObj {
        scheduled: Some(0),
        ready: Some(ready),
        groups: [Some(0), None, None, None, None],
        ..PodObj { uid, ..PodObj::default() }
    };
    let mut events = vec![
        Event::RunaiQueue(0, RunaiObj { wait: Some(wait), ..RunaiObj::default() }),
        Event::Group(GroupObj { kind, queue: Some(0), min: Some(3), ..GroupObj::default() }),
    ];
    // uids that are multiples of three fail
    events.extend([1, 2, 4].map(|uid| Event::Pod(member(uid, (true, 1_000)))));
    events.push(Event::Pod(PodObj { finished: true, ..member(1, (false, 2_000)) }));
    for at in [3_000, 40_000] {
        events.extend([
            Event::Pod(member(2, (false, at))),
            Event::Pass(4_000),
            Event::Pod(member(2, (true, at + 4_000))),
        ]);
        events.push(Event::Pass(20_000));
    }
    agrees(&events);
}

/// All pods of a gang were replaced while the watch had a gap, and the list breaks off once, after it has shown the new one.
#[test]
fn a_pod_that_a_list_shows_twice_since_it_broke_off_proves_no_run_before_it() {
    let member = |uid, scheduled| {
        let groups = [Some(0), None, None, None, None];
        Event::Pod(PodObj { uid, scheduled: Some(scheduled), runai: Some(1), groups, ..PodObj::default() })
    };
    let ceiling = RunaiObj { ceiling: Some(10_000_000), ..RunaiObj::default() };
    let begin = [Event::RunaiQueue(1, ceiling), Event::Group(GroupObj::default()), member(1, 1_000)];
    let list = [Event::ListPods, member(2, 9_000)];
    let end = [Event::RetainPods(List(vec![2])), Event::Pass(12_000), Event::Take(0)];
    agrees(&[&begin[..], &list, &list, &end].concat());
}

/// A group was replaced during a run that ended while the watch had a gap.
#[test]
fn a_queue_that_was_fixed_for_a_run_is_not_that_of_the_run_that_a_relist_shows() {
    let ceiling = |seconds: i64| RunaiObj { ceiling: Some(seconds * 1_000_000), ..RunaiObj::default() };
    let group = |uid, queue| Event::Group(GroupObj { uid, queue: Some(queue), ..GroupObj::default() });
    let member = |uid, scheduled| {
        let groups = [Some(0), None, None, None, None];
        Event::Pod(PodObj { uid, scheduled: Some(scheduled), groups, ..PodObj::default() })
    };
    agrees(&[
        Event::RunaiQueue(0, ceiling(60)),
        Event::RunaiQueue(1, ceiling(5)),
        group(1, 0),
        member(1, 1_000),
        group(2, 1),
        Event::ListPods,
        member(2, 2_000),
        Event::RetainPods(List(vec![2])),
        Event::Pass(9_000),
        Event::Take(0),
    ]);
}
