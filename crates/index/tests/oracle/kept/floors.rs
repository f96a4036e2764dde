//! Floors, and the victims that a preemptor may have.

use tenure_types::podgroup::PodGroupKind;

use super::agrees;
use crate::{
    event::{Ask, Event},
    object::List,
    world::{ConfigObj, GroupObj, OwnerKind, PodObj, RunaiObj},
};

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

/// The second is created with its node, after the first was scheduled.
#[test]
fn a_pod_that_joins_another_without_a_controller_takes_no_floor_from_it() {
    let kind = PodGroupKind::Native;
    let groups = [None, None, None, None, Some(0)];
    agrees(&[
        floor(),
        Event::Pod(PodObj { groups, ..placed(1, 2, Some(1), None) }),
        Event::Group(GroupObj { kind, ..GroupObj::default() }),
        Event::Pod(PodObj { uid: 5, created: 3_000, bound: true, groups, ..PodObj::default() }),
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
fn a_pod_that_shows_its_binding_late_has_no_floor_again() {
    let bound = PodObj { scheduled: None, ..placed(1, 0, Some(1), None) };
    let late = placed(1, 3_600, Some(1), None);
    agrees(&[floor(), Event::Pod(bound), Event::Pass(3_700_000), Event::Pod(late), ask(1)]);
}

/// While a pod is exempt from ceilings, the keeper has no record of it, and the webhook has one.
#[test]
fn a_pod_that_shows_its_binding_late_keeps_its_floor_though_a_group_was_made_before() {
    let in_group = |second| placed(1, second, Some(1), Some(0));
    let group = GroupObj { queue: Some(3), created: Some(1_000_000), ..GroupObj::default() };
    agrees(&[
        floor(),
        Event::Pod(PodObj { scheduled: None, ..in_group(0) }),
        Event::Pass(1_800_000),
        Event::Group(group),
        Event::Pod(PodObj { critical: true, ..in_group(1_700) }),
        Event::Pod(in_group(1_700)),
        ask(1),
    ]);
}

#[test]
fn a_pod_of_which_it_is_not_known_since_when_it_is_there_is_no_substitute() {
    let bound = PodObj { scheduled: None, ..placed(1, 5, Some(1), None) };
    agrees(&[floor(), Event::Pod(bound), Event::Pod(placed(7, 5, Some(1), None)), ask(1)]);
}
