//! The returns of paused workloads.

use super::agrees;
use crate::{
    event::Event,
    world::{GroupObj, OwnerKind, OwnerObj, PodObj, RecordObj, RunaiObj, Wait, Whose},
};

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
