//! Histories that once showed a difference.

use tenure_types::podgroup::PodGroupKind;

use crate::{
    LENGTH,
    event::{Ask, End, EndShown, Event, Scope, StampEnd},
    history::history,
    object::List,
    shrink::{first_difference, is_possible},
    world::{
        ConfigObj, EvidenceObj, GroupObj, OwnerKind, OwnerObj, PodObj, RecordObj, RunaiObj, TensorstackObj,
        Wait, Whose,
    },
};

fn agrees(events: &[Event]) {
    if let Some((place, difference)) = first_difference(events) {
        panic!("after event {place}: {difference:#?}");
    }
}

/// A queue of the tensorstack family, with a ceiling of `seconds`.
fn queue(name: u8, seconds: i64) -> Event {
    Event::TensorstackQueue(name, TensorstackObj { ceiling: Some(seconds * 1_000_000), notice: None })
}

fn pod(uid: u32, queue: Option<u8>) -> PodObj {
    PodObj { uid, tensorstack: queue, ..PodObj::default() }
}

fn done(place: u8) -> Event {
    Event::RecordOutcome(place, Scope::All, End::Done)
}

#[test]
fn an_act_counts_also_for_a_pod_that_has_left_its_queue_and_come_back_meanwhile() {
    agrees(&[
        queue(0, 1),
        queue(1, 5),
        Event::Pod(pod(1, Some(0))),
        Event::Pass(2_000),
        Event::Take(0),
        Event::Pod(pod(1, None)),
        Event::Pod(pod(1, Some(1))),
        done(0),
        Event::Pass(200_000),
        Event::Take(1),
        done(1),
        Event::DeletePod(1),
        Event::Pod(pod(2, Some(0))),
        Event::Take(2),
    ]);
}

/// A pod that an act has not ended at its ceiling of a second.
fn tried_in_vain() -> Vec<Event> {
    vec![queue(0, 1), Event::Pod(pod(1, Some(0))), Event::Pass(2_000), Event::Take(0), done(0)]
}

#[test]
fn a_run_that_is_given_more_time_gets_all_tries_again_at_its_new_end() {
    let mut events = tried_in_vain();
    events.extend([queue(0, 100), Event::Pass(200_000), Event::Take(0)]);
    agrees(&events);
}

#[test]
fn an_end_that_moves_by_less_than_the_wait_for_the_next_try_forgets_none() {
    let mut events = tried_in_vain();
    events.extend([queue(0, 6), Event::Pass(10_000), Event::Take(0)]);
    agrees(&events);
}

#[test]
fn a_queue_that_is_missing_for_a_moment_forgets_no_try() {
    let mut events = tried_in_vain();
    events.extend([Event::DeleteTensorstack(0), Event::Pass(1_000), queue(0, 1), Event::Pass(9_000)]);
    events.push(Event::Take(0));
    agrees(&events);
}

#[test]
fn a_pod_that_changes_its_controller_after_a_final_result_keeps_its_tries() {
    let mut events = tried_in_vain();
    let owned = PodObj { controller: Some((OwnerKind::Job, 5)), ..pod(1, Some(0)) };
    events.extend([Event::Pass(10_000), Event::Take(0), Event::RecordOutcome(0, Scope::All, End::Final)]);
    events.extend([Event::Pod(owned), Event::Take(0)]);
    agrees(&events);
}

#[test]
fn a_workload_that_is_given_more_time_to_get_ready_gets_all_tries_again() {
    let waits = |seconds: i64| {
        let (timeout, recovery) = (Some(seconds * 1_000_000), None);
        let (by_creation, from_creation, on_capacity, off) = (false, false, false, false);
        let wait = Some(Wait { timeout, recovery, by_creation, from_creation, on_capacity, off });
        Event::RunaiQueue(1, RunaiObj { wait, ..RunaiObj::default() })
    };
    let pod = PodObj { scheduled: Some(0), runai: Some(1), ..PodObj::default() };
    let tried = [waits(1), Event::Pod(pod), Event::Pass(2_000), Event::Take(0), done(0)];
    let later = [waits(100), Event::Pass(200_000), Event::Take(0)];
    agrees(&[tried.as_slice(), later.as_slice()].concat());
}

#[test]
fn an_end_that_is_shown_goes_when_a_pod_without_one_begins_the_run() {
    let owner = OwnerObj { kind: OwnerKind::Job, ..OwnerObj::default() };
    let pod = PodObj { controller: Some((OwnerKind::Job, 1)), ..pod(2, Some(0)) };
    agrees(&[
        Event::Owner(owner),
        Event::WriteEnd(0, Some(14_501)),
        Event::Pass(61_000),
        Event::CheckEnds,
        Event::Pod(pod),
        Event::CheckEnds,
        Event::ShowEnd(0, EndShown::Written),
        Event::CheckEnds,
    ]);
}

/// Two pods of a Deployment, of which one is also of a Job below it and ends first.
fn owners_with_a_job_below() -> (OwnerObj, Vec<Event>) {
    let deployment = Some((OwnerKind::Deployment, 1));
    let job = OwnerObj { uid: 2, kind: OwnerKind::Job, controller: deployment, ..OwnerObj::default() };
    let events = vec![
        Event::RunaiQueue(1, RunaiObj { ceiling: Some(500_000_000), ..RunaiObj::default() }),
        Event::Owner(OwnerObj { uid: 1, kind: OwnerKind::Deployment, ..OwnerObj::default() }),
        Event::Owner(job.clone()),
        Event::Pod(PodObj { uid: 3, runai: Some(2), controller: deployment, ..PodObj::default() }),
        Event::Pod(PodObj {
            uid: 4,
            scheduled: Some(1_000),
            runai: Some(1),
            controller: Some((OwnerKind::Job, 2)),
            ..PodObj::default()
        }),
    ];
    (job, events)
}

#[test]
fn an_end_that_is_shown_goes_when_an_owner_leaves_with_the_pod_that_ends_first() {
    let (job, mut events) = owners_with_a_job_below();
    events.extend([
        Event::Pass(61_000),
        Event::CheckEnds,
        Event::ShowEnd(0, EndShown::Written),
        Event::CheckEnds,
        Event::Owner(OwnerObj { controller: None, ..job }),
        Event::CheckEnds,
    ]);
    agrees(&events);
}

#[test]
fn an_end_that_is_shown_goes_when_owners_go_round_in_a_circle() {
    let (_, mut events) = owners_with_a_job_below();
    events.extend([
        Event::Owner(OwnerObj {
            uid: 5,
            kind: OwnerKind::Job,
            controller: Some((OwnerKind::Job, 2)),
            ..OwnerObj::default()
        }),
        Event::Pass(61_000),
        Event::CheckEnds,
        Event::ShowEnd(0, EndShown::Written),
        Event::CheckEnds,
        Event::Owner(OwnerObj {
            uid: 1,
            kind: OwnerKind::Deployment,
            controller: Some((OwnerKind::Job, 5)),
            ..OwnerObj::default()
        }),
        Event::CheckEnds,
    ]);
    agrees(&events);
}

#[test]
fn an_end_that_an_owner_of_another_namespace_shows_is_not_that_of_the_pods_that_name_it() {
    let pod = PodObj { controller: Some((OwnerKind::ReplicaSet, 1)), namespace: 1, ..pod(2, None) };
    let pod = PodObj { groups: [Some(0), None, None, None, None], ..pod };
    agrees(&[
        Event::Owner(OwnerObj::default()),
        Event::Pod(pod),
        Event::CheckEnds,
        Event::Pass(61_000),
        Event::WriteEnd(0, Some(181_499)),
        Event::CheckEnds,
    ]);
}

#[test]
fn an_owner_that_becomes_the_root_after_it_was_read_shows_its_end() {
    let things = |things| Event::Configure(ConfigObj { things, ..ConfigObj::default() });
    let above = Some((OwnerKind::Thing, 3));
    agrees(&[
        things(true),
        Event::Owner(OwnerObj { kind: OwnerKind::Job, controller: above, ..OwnerObj::default() }),
        Event::WriteEnd(0, Some(14_501)),
        things(false),
        Event::Pod(PodObj { controller: Some((OwnerKind::Job, 1)), ..pod(2, Some(0)) }),
        Event::Pass(61_000),
        Event::CheckEnds,
    ]);
}

#[test]
fn an_act_that_ends_after_the_lead_is_lost_counts() {
    agrees(&[
        queue(0, 1),
        Event::Pod(pod(1, Some(0))),
        Event::Pass(2_000),
        Event::Take(0),
        Event::LoseLead,
        done(0),
    ]);
}

#[test]
fn a_workload_that_had_a_notice_at_one_point_gets_one_at_the_next() {
    agrees(&[
        Event::Configure(ConfigObj { notice: [3_000_000, 5_000_000, 0], ..ConfigObj::default() }),
        Event::RunaiQueue(2, RunaiObj { ceiling: Some(3_000_000), ..RunaiObj::default() }),
        Event::Pass(152_001),
        Event::Pod(PodObj { scheduled: Some(154_000), runai: Some(2), ..PodObj::default() }),
        Event::Take(2),
        done(2),
    ]);
}

/// The events of a group that takes `min` pods. They must be ready within 30 seconds, and again
/// within 20.
fn gang(min: u32) -> Vec<Event> {
    let wait = Some(Wait {
        timeout: Some(30_000_000),
        recovery: Some(20_000_000),
        by_creation: false,
        from_creation: false,
        on_capacity: false,
        off: false,
    });
    vec![
        Event::Configure(ConfigObj { wait, ..ConfigObj::default() }),
        Event::RunaiQueue(1, RunaiObj::default()),
        Event::Group(GroupObj { min: Some(min), ..GroupObj::default() }),
    ]
}

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

/// Paused in a queue of either family, and back after 10 seconds.
fn paused(uid: u32, tensorstack: bool, priority: i32) -> Event {
    let record = RecordObj {
        at: 0,
        queue: 1,
        tensorstack: Some(tensorstack),
        deactivated: false,
        unready: false,
        whose: Whose::Bearer,
        holds: false,
    };
    let (record, returns, priority) = (Some(record), Some(10_000), Some(priority));
    Event::Owner(OwnerObj { uid, record, returns, priority, ..OwnerObj::default() })
}

#[test]
fn returns_are_ordered_by_priority_across_queues() {
    agrees(&[paused(1, true, 0), paused(2, false, 5), Event::Pass(10_000), Event::Returns]);
}

#[test]
fn the_first_end_of_an_owner_is_as_its_queues_say_also_while_an_act_on_its_pod_is_in_flight() {
    let controller = Some((OwnerKind::Deployment, 7));
    agrees(&[
        Event::Owner(OwnerObj { uid: 7, ..OwnerObj::default() }),
        queue(0, 1),
        Event::Pod(PodObj { controller, ..pod(1, Some(0)) }),
        Event::Pass(2_000),
        Event::Take(0),
        queue(0, 100),
    ]);
}

#[test]
fn the_next_expiry_of_a_queue_is_as_it_says_also_while_an_act_on_a_pod_is_in_flight() {
    agrees(&[
        Event::RunaiQueue(1, RunaiObj::default()),
        queue(0, 1),
        Event::Pod(PodObj { runai: Some(1), ..pod(1, Some(0)) }),
        Event::Pass(2_000),
        Event::Take(0),
        queue(0, 100),
    ]);
}

#[test]
fn the_next_expiry_is_the_first_also_of_pods_that_are_tried_again() {
    agrees(&[
        queue(0, 1),
        queue(1, 2),
        Event::Pod(pod(1, Some(0))),
        Event::Pod(pod(2, Some(1))),
        Event::Pass(3_000),
        Event::Take(0),
        Event::Take(1),
        done(1),
        Event::Pass(1_000),
        done(0),
    ]);
}

#[test]
fn the_end_of_an_owner_in_the_middle_of_a_chain_takes_the_ceiling_above_away() {
    let (top, middle) = ((OwnerKind::Deployment, 7), (OwnerKind::ReplicaSet, 8));
    let (kind, uid) = middle;
    agrees(&[
        queue(0, 100),
        Event::Owner(OwnerObj { uid: 7, own: Some(1_000_000), ..OwnerObj::default() }),
        Event::Owner(OwnerObj { kind, uid, controller: Some(top), ..OwnerObj::default() }),
        Event::Pod(PodObj { controller: Some(middle), ..pod(1, Some(0)) }),
        Event::DeleteOwner(8),
        Event::Pass(2_000),
        Event::Take(0),
    ]);
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
fn what_was_done_about_a_pod_counts_also_when_it_changes_its_group() {
    let mut events = gang(2);
    let alone = PodObj { uid: 9, scheduled: Some(0), runai: Some(1), ..PodObj::default() };
    events.extend([Event::Pod(alone.clone()), Event::Pass(31_000), Event::Take(0), done(0)]);
    events.push(Event::Pod(PodObj { groups: [Some(0), None, None, None, None], ..alone }));
    agrees(&events);
}

/// On one node, scheduled at a second, in a queue with a floor of an hour or without one.
fn placed(uid: u32, second: i64, queue: Option<u8>, group: Option<u8>) -> PodObj {
    let scheduled = Some(second * 1_000);
    let groups = [group, None, None, None, None];
    PodObj { uid, scheduled, bound: true, runai: queue, groups, subgroup: Some(1), ..PodObj::default() }
}

fn floor() -> Event {
    Event::RunaiQueue(1, RunaiObj { reclaim: Some(3_600_000_000), ..RunaiObj::default() })
}

/// Wants the room of the pods of these bits.
fn ask(victims: u8) -> Event {
    Event::Ask(Ask { queue: Some(2), priority: 25, node: 1, victims, ..Ask::default() })
}

#[test]
fn the_overall_minimum_counts_for_floors_beside_those_of_subgroups() {
    let kind = PodGroupKind::Tensorstack;
    let subgroups = List(vec![(1, Some(1), None)]);
    let group = GroupObj { kind, min: Some(3), subgroups, ..GroupObj::default() };
    let member = |uid| {
        Event::Pod(PodObj { groups: [None, Some(0), None, None, None], ..placed(uid, 5, Some(1), None) })
    };
    agrees(&[floor(), Event::Group(group), member(1), member(3), member(5), ask(6)]);
}

/// The second has no time of scheduling, and so comes after the first.
#[test]
fn a_pod_that_joins_another_without_a_controller_takes_no_floor_from_it() {
    let kind = PodGroupKind::Native;
    let groups = [None, None, None, None, Some(0)];
    agrees(&[
        floor(),
        Event::Pod(PodObj { groups, ..placed(1, 2, Some(1), None) }),
        Event::Group(GroupObj { kind, ..GroupObj::default() }),
        Event::Pod(PodObj { uid: 5, bound: true, groups, ..PodObj::default() }),
        ask(3),
    ]);
}

/// Of a gang of two without a controller, the pod that came last may go with none of the others; one of them no floor protects.
#[test]
fn a_member_that_no_floor_protects_takes_no_pod_that_came_later_along() {
    let mut events = vec![floor(), Event::Group(GroupObj { min: Some(2), ..GroupObj::default() })];
    events.extend(
        [(1, 1, None), (3, 2, Some(1)), (5, 3, Some(1))]
            .map(|(uid, second, queue)| Event::Pod(placed(uid, second, queue.or(Some(2)), Some(0)))),
    );
    events.extend([1, 2, 4, 5, 6, 7].map(ask));
    agrees(&events);
}

#[test]
fn a_rigid_gang_is_no_substitute_in_pieces() {
    agrees(&[
        floor(),
        Event::Group(GroupObj { min: Some(2), ..GroupObj::default() }),
        Event::Pod(placed(1, 5, None, Some(0))),
        Event::Pod(placed(3, 5, None, Some(0))),
        Event::Pod(placed(7, 5, Some(1), None)),
        ask(4),
    ]);
}

#[test]
fn a_pod_that_names_two_gangs_is_a_piece_of_the_first_alone() {
    let kind = PodGroupKind::Tensorstack;
    let member = |uid, runai| {
        let groups = [runai, Some(1), None, None, None];
        Event::Pod(PodObj { groups, ..placed(uid, 5, None, None) })
    };
    agrees(&[
        floor(),
        Event::Group(GroupObj { name: 1, ..GroupObj::default() }),
        Event::Group(GroupObj { kind, name: 1, min: Some(3), ..GroupObj::default() }),
        Event::Pod(placed(1, 5, Some(1), None)),
        member(5, Some(1)),
        member(7, None),
        member(8, None),
        ask(5),
    ]);
}

#[test]
fn a_member_that_names_no_queue_takes_no_protection_from_the_others_of_its_gang() {
    let kind = PodGroupKind::Coscheduling;
    let member = |uid, queue| {
        Event::Pod(PodObj { groups: [None, None, Some(0), None, None], ..placed(uid, 5, queue, None) })
    };
    let group = GroupObj { kind, min: Some(2), ..GroupObj::default() };
    agrees(&[floor(), Event::Group(group), member(1, None), member(3, Some(1)), ask(3)]);
}

#[test]
fn a_pod_that_waits_moves_no_running_pod_of_its_gang_to_another_queue() {
    let kind = PodGroupKind::Coscheduling;
    let groups = [None, None, Some(0), None, None];
    let group = GroupObj { kind, min: Some(2), ..GroupObj::default() };
    let running = |uid| {
        let controller = Some((OwnerKind::Job, 5));
        Event::Pod(PodObj { groups, controller, ..placed(uid, 5, Some(1), None) })
    };
    let waiting = |uid| Event::Pod(PodObj { uid, runai: Some(3), groups, ..PodObj::default() });
    for uid in [0, 4, 9] {
        agrees(&[floor(), Event::Group(group.clone()), running(5), running(7), waiting(uid), ask(1)]);
    }
}

#[test]
fn members_of_a_gang_have_each_the_floor_of_its_own_queue() {
    let kind = PodGroupKind::Coscheduling;
    let groups = [None, None, Some(0), None, None];
    let group = GroupObj { kind, min: Some(2), ..GroupObj::default() };
    let member = |uid, queue| Event::Pod(PodObj { groups, ..placed(uid, 5, Some(queue), None) });
    for victims in 1..=3 {
        agrees(&[floor(), Event::Group(group.clone()), member(1, 3), member(3, 1), ask(victims)]);
    }
}

#[test]
fn members_that_no_floor_protects_leave_enough_for_those_within_theirs_or_go_alone() {
    let of_all = Ask { queue: Some(9), priority: 25, node: 1, victims: 255, ..Ask::default() };
    agrees(&[
        floor(),
        Event::Pod(PodObj { name: 2, ..placed(1, 5, None, Some(0)) }),
        Event::Group(GroupObj::default()),
        Event::Pod(placed(5, 6, Some(2), Some(0))),
        Event::Pod(placed(9, 6, Some(1), Some(0))),
        Event::Ask(of_all),
    ]);
    let member = |uid, queue| {
        let groups = [None, None, None, Some(0), None];
        Event::Pod(PodObj { groups, ..placed(uid, 5, Some(queue), None) })
    };
    agrees(&[
        Event::Configure(ConfigObj { reclaim: 600_000_000, ..ConfigObj::default() }),
        member(1, 3),
        Event::Group(GroupObj { kind: PodGroupKind::Volcano, ..GroupObj::default() }),
        member(3, 9),
        Event::Ask(Ask { queue: Some(3), ..of_all }),
    ]);
}

#[test]
fn a_pod_that_its_gang_can_spare_stays_where_another_leaves_a_subgroup_too_few() {
    let member = |uid, queue, subgroup| {
        Event::Pod(PodObj { subgroup: Some(subgroup), ..placed(uid, 5, Some(queue), Some(0)) })
    };
    agrees(&[
        floor(),
        Event::Group(GroupObj { subgroups: List(vec![(0, Some(2), None)]), ..GroupObj::default() }),
        member(1, 1, 1),
        member(3, 2, 0),
        member(4, 1, 0),
        ask(3),
    ]);
}

/// Of two subgroups one is enough: either may go for the other, and not both.
#[test]
fn a_subgroup_that_its_gang_does_not_need_may_go_as_a_whole() {
    let member = |uid, second, subgroup| {
        Event::Pod(PodObj { subgroup: Some(subgroup), ..placed(uid, second, Some(1), Some(0)) })
    };
    let subgroups = List(vec![(0, Some(1), None), (1, Some(1), None)]);
    let group = GroupObj { subgroups, parts: Some(1), ..GroupObj::default() };
    agrees(&[floor(), Event::Group(group), member(1, 5, 0), member(3, 6, 1), ask(1), ask(2), ask(3)]);
}

#[test]
fn a_group_that_is_made_for_a_running_pod_does_not_change_its_floor() {
    for made in [4_000, 6_000] {
        let group = GroupObj { queue: Some(3), created: Some(made), ..GroupObj::default() };
        agrees(&[floor(), Event::Pod(placed(1, 5, Some(1), Some(0))), Event::Group(group), ask(1)]);
    }
}

#[test]
fn a_pod_of_which_it_is_not_known_since_when_it_is_there_is_no_substitute() {
    let bound = PodObj { scheduled: None, ..placed(1, 5, Some(1), None) };
    agrees(&[floor(), Event::Pod(bound), Event::Pod(placed(7, 5, Some(1), None)), ask(1)]);
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

#[test]
fn a_group_that_is_made_for_a_running_pod_does_not_lengthen_its_run() {
    let group = |uid, queue, created| GroupObj {
        uid,
        queue: Some(queue),
        created: Some(created),
        ..GroupObj::default()
    };
    agrees(&[
        Event::RunaiQueue(0, RunaiObj { ceiling: Some(60_000_000), ..RunaiObj::default() }),
        Event::RunaiQueue(1, RunaiObj { ceiling: Some(5_000_000), ..RunaiObj::default() }),
        Event::Pod(PodObj {
            scheduled: Some(1_000),
            runai: Some(1),
            groups: [Some(0), None, None, None, None],
            ..PodObj::default()
        }),
        Event::Group(group(2, 0, 3_000)),
        // nor does the same trick in two steps
        Event::Group(group(3, 0, 1_000)),
        Event::Pass(5_000),
        Event::Take(0),
    ]);
}

#[test]
fn an_end_that_is_final_counts_as_no_try_after_another_controller_has_come() {
    let wait = Wait {
        timeout: Some(1_000_000),
        recovery: None,
        by_creation: false,
        from_creation: false,
        on_capacity: false,
        off: false,
    };
    let scheduled = PodObj { scheduled: Some(0), tensorstack: Some(1), ..PodObj::default() };
    agrees(&[
        Event::Configure(ConfigObj { wait: Some(wait), ..ConfigObj::default() }),
        Event::Pod(scheduled.clone()),
        Event::Pass(2_000),
        Event::Take(0),
        Event::RecordOutcome(0, Scope::All, End::Final),
        Event::Pod(PodObj { controller: Some((OwnerKind::Job, 5)), ..scheduled }),
        Event::Take(0),
    ]);
}

#[test]
fn no_history_gives_two_pods_the_same_uid() {
    assert!(is_possible(&history(0x1394_b43d_b7b8_be1e, LENGTH)));
}

#[test]
fn an_end_that_is_remembered_for_a_missing_queue_is_no_later_than_the_one_that_counts() {
    let kind = PodGroupKind::Tensorstack;
    let ceiling = |ceiling| TensorstackObj { ceiling: Some(ceiling), notice: None };
    let notice = |first| TensorstackObj { ceiling: None, notice: Some([first, 1_500_000, 1_000_000]) };
    agrees(&[
        Event::RunaiQueue(2, RunaiObj { ceiling: Some(2_000_000), ..RunaiObj::default() }),
        Event::Pass(8_000),
        Event::Group(GroupObj { name: 1, queue: Some(2), ..GroupObj::default() }),
        Event::Pod(PodObj {
            created: 8_000,
            scheduled: Some(8_000),
            tensorstack: Some(1),
            groups: [Some(1), Some(0), None, None, None],
            ..PodObj::default()
        }),
        Event::Pass(999),
        Event::TensorstackQueue(2, notice(1_000_000)),
        Event::Pass(1_502),
        Event::TensorstackQueue(0, ceiling(1_500_000)),
        Event::Pod(PodObj { uid: 4_324_984, groups: [None, Some(1), None, None, None], ..PodObj::default() }),
        Event::Group(GroupObj { kind, name: 1, ..GroupObj::default() }),
        Event::Group(GroupObj { kind, ..GroupObj::default() }),
        Event::TensorstackQueue(2, notice(1_500_000)),
    ]);
}

#[test]
fn evidence_counts_also_after_a_queue_with_a_shorter_ceiling_is_gone() {
    let evidence = EvidenceObj { tensorstack: Some(0), ..EvidenceObj::default() };
    agrees(&[
        queue(0, 2),
        Event::Pod(PodObj { created: 53_000, scheduled: Some(65_000), evidence, ..pod(1, Some(2)) }),
        queue(2, 1),
        Event::DeleteTensorstack(2),
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

/// A pod that names itself as its controller, beside one that names it, too: each is acted on once.
#[test]
fn a_pod_that_controls_itself_is_in_a_batch_once() {
    let controlled =
        |uid| PodObj { controller: Some((OwnerKind::Pod, 2)), scheduled: Some(0), ..pod(uid, Some(0)) };
    agrees(&[
        queue(0, 2),
        Event::Pod(controlled(1)),
        Event::Pod(controlled(2)),
        Event::Pass(5_000),
        Event::Take(2),
        done(0),
    ]);
}

/// A driver that comes back shows its executor's start again, and one that goes takes what is further below along.
#[test]
fn a_driver_that_comes_back_is_evidence_again() {
    let executor =
        PodObj { controller: Some((OwnerKind::Pod, 2)), scheduled: Some(7_000), ..pod(1, Some(0)) };
    let driver = |queue, scheduled| Event::Pod(PodObj { scheduled, ..pod(2, queue) });
    agrees(&[Event::Pod(executor), driver(Some(0), Some(1_000)), driver(None, None), driver(Some(0), None)]);
}

/// A pod that names no queue that exists runs for longer than the ceiling of the queue that becomes the default.
#[test]
fn a_default_queue_that_is_set_grants_time_to_runs_that_it_makes_overdue() {
    let spec = RunaiObj { ceiling: Some(10_000_000), ..RunaiObj::default() };
    let graced = ConfigObj { notice: [5_000_000, 0, 0], grace: 60_000_000, ..ConfigObj::default() };
    agrees(&[
        Event::Configure(graced.clone()),
        Event::RunaiQueue(1, spec),
        Event::Pod(PodObj { scheduled: Some(0), runai: Some(3), ..PodObj::default() }),
        Event::Pass(100_000),
        Event::Configure(ConfigObj { defaults: (Some(1), None), ..graced }),
        Event::Pass(59_000),
        Event::Pass(2_000),
    ]);
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

/// The tries of the younger pod are forgotten once no queue ends its run, and the next one still waits.
#[test]
fn a_try_that_waits_though_those_before_it_were_forgotten_hides_no_earlier_end() {
    let member = |groups| PodObj { scheduled: Some(19_000), groups, ..PodObj::default() };
    let other = |tensorstack, runai, groups| {
        Event::Pod(PodObj { uid: 3, created: 13_000, tensorstack, runai, groups, ..PodObj::default() })
    };
    agrees(&[
        Event::RunaiQueue(2, RunaiObj::default()),
        Event::Pass(61_000),
        Event::Pod(member([Some(1), None, None, Some(0), None])),
        Event::TensorstackQueue(1, TensorstackObj { ceiling: Some(1_500_000), ..TensorstackObj::default() }),
        other(Some(1), None, [None; 5]),
        Event::Group(GroupObj { name: 1, queue: Some(1), ..GroupObj::default() }),
        Event::Take(1),
        Event::RunaiQueue(1, RunaiObj { ceiling: Some(2_000_000), ..RunaiObj::default() }),
        done(1),
        other(None, Some(2), [None, None, None, Some(0), None]),
        Event::Group(GroupObj { kind: PodGroupKind::Volcano, own: Some(1_500_000), ..GroupObj::default() }),
    ]);
}

/// The default queue was fixed for a pod that names none any more, and is gone.
#[test]
fn a_queue_that_was_fixed_and_is_gone_has_no_rules_for_the_pod() {
    let wait = Wait {
        timeout: Some(2_000_000),
        recovery: Some(10_000_000),
        by_creation: false,
        from_creation: true,
        on_capacity: false,
        off: false,
    };
    let pod = PodObj { created: 168_000, scheduled: Some(168_000), ..PodObj::default() };
    agrees(&[
        Event::RunaiQueue(1, RunaiObj::default()),
        Event::Configure(ConfigObj { wait: Some(wait), defaults: (Some(1), None), ..ConfigObj::default() }),
        Event::Pod(PodObj { runai: Some(3), ..pod.clone() }),
        Event::Pod(pod),
        Event::RetainRunai(List(vec![])),
    ]);
}

/// A queue of which the first that waits comes back once another workload has left, and one that waits there.
fn waits_for_room() -> Vec<Event> {
    let (timeout, recovery) = (Some(300_000_000), None);
    let (by_creation, from_creation, on_capacity, off) = (false, false, true, false);
    let wait = Some(Wait { timeout, recovery, by_creation, from_creation, on_capacity, off });
    let record = RecordObj {
        at: 0,
        queue: 1,
        tensorstack: Some(false),
        deactivated: false,
        unready: true,
        whose: Whose::Bearer,
        holds: false,
    };
    let (record, returns) = (Some(record), Some(60_000));
    vec![
        Event::RunaiQueue(1, RunaiObj { wait, ..RunaiObj::default() }),
        Event::Owner(OwnerObj { uid: 9, record, returns, ..OwnerObj::default() }),
    ]
}

/// A ready pod of a Job, in a group of KAI-Scheduler.
fn occupant(uid: u32, job: u32, group: u8) -> PodObj {
    let (controller, groups) = (Some((OwnerKind::Job, job)), [Some(group), None, None, None, None]);
    let (runai, scheduled, ready) = (Some(1), Some(0), Some((true, 1_000)));
    PodObj { uid, scheduled, ready, runai, groups, controller, ..PodObj::default() }
}

fn left(pod: &PodObj) -> Event {
    Event::Pod(PodObj { finished: true, ..pod.clone() })
}

#[test]
fn a_workload_whose_pods_have_a_group_each_has_left_with_its_last_pod() {
    let (one, other) = (occupant(4, 6, 0), occupant(5, 6, 1));
    let mut events = waits_for_room();
    for name in [0, 1] {
        events.push(Event::Group(GroupObj { name, uid: 20 + u32::from(name), ..GroupObj::default() }));
    }
    events.extend([Event::Pod(one.clone()), Event::Pod(other.clone()), left(&one), Event::Returns]);
    events.extend([left(&other), Event::Pass(5_000), Event::Returns]);
    agrees(&events);
}

#[test]
fn a_workload_that_shares_a_group_with_another_has_left_without_it() {
    let (one, other) = (occupant(4, 6, 0), occupant(5, 7, 0));
    let mut events = waits_for_room();
    events.push(Event::Group(GroupObj { uid: 20, ..GroupObj::default() }));
    events.extend([Event::Pod(one.clone()), Event::Pod(other), left(&one)]);
    events.extend([Event::Pass(5_000), Event::Returns]);
    agrees(&events);
}

#[test]
fn a_pod_that_runs_on_under_another_owner_leaves_no_room() {
    let pod = occupant(4, 6, 0);
    let elsewhere = PodObj { controller: Some((OwnerKind::Job, 7)), ..pod.clone() };
    let mut events = waits_for_room();
    events.extend([Event::Pod(pod.clone()), Event::Pod(elsewhere), Event::Pod(pod)]);
    events.extend([Event::Pass(5_000), Event::Returns]);
    agrees(&events);
}

#[test]
fn a_pod_that_names_a_daemon_set_leaves_no_room() {
    let pod = PodObj { controller: Some((OwnerKind::DaemonSet, 6)), ..occupant(4, 6, 0) };
    let mut events = waits_for_room();
    events.extend([Event::Pod(pod.clone()), left(&pod), Event::Pass(5_000), Event::Returns]);
    agrees(&events);
}

#[test]
fn a_pod_that_terminates_for_long_lacks_the_evidence_of_its_groups_queue() {
    let groups = [None, Some(0), None, None, None];
    let pod = PodObj { scheduled: Some(1_000), groups, ..pod(1, None) };
    let deleted = PodObj { terminating: true, grace: 5_000, ..pod.clone() };
    let evidence = EvidenceObj { tensorstack: Some(0), ..EvidenceObj::default() };
    agrees(&[
        queue(0, 2),
        Event::Group(GroupObj { kind: PodGroupKind::Tensorstack, queue: Some(0), ..GroupObj::default() }),
        Event::Pod(pod),
        Event::Pod(deleted.clone()),
        Event::Pass(10_000),
        Event::Pod(PodObj { evidence, ..deleted }),
    ]);
}

#[test]
fn a_pod_that_is_first_seen_while_it_terminates_keeps_the_queue_of_its_group() {
    let groups = [None, Some(0), None, None, None];
    let deleted = PodObj { scheduled: Some(1_000), groups, terminating: true, grace: 5_000, ..pod(1, None) };
    agrees(&[
        queue(0, 2),
        Event::Group(GroupObj { kind: PodGroupKind::Tensorstack, queue: Some(0), ..GroupObj::default() }),
        Event::Pod(deleted),
        Event::DeleteGroup(PodGroupKind::Tensorstack, 0, 0),
        Event::Pass(10_000),
    ]);
}

#[test]
fn a_pod_whose_owner_gets_another_kind_is_due_again() {
    let owned = |kind| Event::Pod(PodObj { controller: Some((kind, 6)), ..pod(1, Some(0)) });
    agrees(&[
        queue(0, 1),
        owned(OwnerKind::DaemonSet),
        Event::Pass(2_000),
        Event::Take(0),
        Event::RecordOutcome(0, Scope::All, End::Final),
        owned(OwnerKind::Thing),
        Event::Take(0),
    ]);
}
