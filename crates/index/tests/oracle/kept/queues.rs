//! The queue and the ceiling that count for a pod, also once the object that named them is gone.

use tenure_types::podgroup::PodGroupKind;

use super::{agrees, pod, queue};
use crate::{
    event::Event,
    object::List,
    world::{ConfigObj, EvidenceObj, GroupObj, OwnerKind, OwnerObj, PodObj, RunaiObj, TensorstackObj, Wait},
};

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
fn an_executor_that_is_first_seen_while_it_terminates_lacks_evidence_of_its_drivers_start() {
    let (controller, scheduled) = (Some((OwnerKind::Pod, 2)), Some(7_000));
    let deleted = PodObj { controller, scheduled, terminating: true, grace: 5_000, ..pod(1, Some(0)) };
    agrees(&[
        queue(0, 2),
        Event::Pod(deleted),
        Event::Pod(PodObj { scheduled: Some(1_000), ..pod(2, Some(0)) }),
        Event::Pass(10_000),
    ]);
}

/// A member that joined late ends with the group, also if a list of pods was under way when it joined.
#[test]
fn a_pod_that_joined_its_group_late_keeps_the_groups_start() {
    let member = |uid, scheduled| {
        let groups = [Some(0), None, None, None, None];
        Event::Pod(PodObj { uid, scheduled: Some(scheduled), runai: Some(1), groups, ..PodObj::default() })
    };
    let group = |uid| Event::Group(GroupObj { uid, ..GroupObj::default() });
    let ceiling = RunaiObj { ceiling: Some(10_000_000), ..RunaiObj::default() };
    let begin = [Event::RunaiQueue(1, ceiling), group(1), member(1, 1_000)];
    let end = [
        Event::DeletePod(1),
        Event::DeleteGroup(PodGroupKind::Runai, 0, 0),
        group(2),
        Event::Pass(12_000),
        Event::Take(0),
    ];
    let listed = [Event::ListPods, member(2, 6_000), member(1, 1_000), Event::RetainPods(List(vec![1, 2]))];
    for join in [&[member(2, 6_000)][..], &listed] {
        agrees(&[&begin[..], join, &end].concat());
    }
}
