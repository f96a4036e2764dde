//! Tries to end or evict a run, notices, and acts in flight.

use tenure_types::podgroup::PodGroupKind;

use super::{agrees, done, gang, pod, queue};
use crate::{
    event::{End, Event, Scope},
    world::{ConfigObj, GroupObj, OwnerKind, OwnerObj, PodObj, RunaiObj, TensorstackObj, Wait},
};

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

#[test]
fn the_first_end_of_an_owner_is_as_its_queues_say_also_while_an_act_on_its_pod_is_in_flight() {
    let controller = Some((OwnerKind::Job, 7));
    agrees(&[
        Event::Owner(OwnerObj { uid: 7, kind: OwnerKind::Job, ..OwnerObj::default() }),
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
fn what_was_done_about_a_pod_counts_also_when_it_changes_its_group() {
    let mut events = gang(2);
    let alone = PodObj { uid: 9, scheduled: Some(0), runai: Some(1), ..PodObj::default() };
    events.extend([Event::Pod(alone.clone()), Event::Pass(31_000), Event::Take(0), done(0)]);
    events.push(Event::Pod(PodObj { groups: [Some(0), None, None, None, None], ..alone }));
    agrees(&events);
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
