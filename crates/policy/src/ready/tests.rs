use serde_json::{Value, json};
use tenure_types::podgroup::PodGroupKind;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A condition of this type, status, and time of its last change.
type Condition<'c> = (&'c str, &'c str, i64);

fn pod(conditions: &[Condition<'_>]) -> Pod {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(
            |(kind, status, since)| json!({"type": kind, "status": status, "lastTransitionTime": at(*since)}),
        )
        .collect();
    serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap()
}

#[test]
fn a_pod_was_ready_if_it_ceased_to_be_after_it_was_initialized() {
    use Readiness::{Lost, NotYet, Ready};
    let cases: &[(&[Condition<'_>], Readiness)] = &[
        (&[], NotYet),
        (&[("PodScheduled", "True", 0)], NotYet),
        (&[("Ready", "True", 5)], Ready),
        (&[("Ready", "False", 5)], NotYet),
        (&[("Ready", "False", 1), ("Initialized", "True", 9)], NotYet),
        (&[("Ready", "False", 1), ("Initialized", "True", 1)], NotYet),
        (&[("Ready", "False", 9), ("Initialized", "True", 1)], Lost(at(9))),
        (&[("Ready", "Unknown", 9), ("Initialized", "True", 1)], Lost(at(9))),
        (&[("Ready", "False", 9), ("Initialized", "False", 1)], NotYet),
    ];
    for (conditions, expected) in cases {
        assert_eq!(Readiness::of(&pod(conditions)), *expected, "{conditions:?}");
    }
    let untimed: Pod = serde_json::from_value(json!({"metadata": {}, "status": {"conditions": [
        {"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"},
    ]}}))
    .unwrap();
    assert_eq!(Readiness::of(&untimed), NotYet);
}

#[test]
fn a_pod_that_was_ready_is_not_forgotten_to_have_been_when_its_init_containers_run_again() {
    use Readiness::{Lost, NotYet, Ready};
    let rebooted = pod(&[("Ready", "False", 30), ("Initialized", "True", 33)]);
    assert_eq!(Readiness::of(&rebooted), NotYet, "by its conditions alone");
    assert_eq!(Ready.after(&rebooted), Lost(at(30)));
    assert_eq!(Lost(at(20)).after(&rebooted), Lost(at(20)));
    assert_eq!(NotYet.after(&rebooted), NotYet);
    let lost = pod(&[("Ready", "False", 40), ("Initialized", "True", 33)]);
    assert_eq!((Ready.after(&lost), Lost(at(20)).after(&lost)), (Lost(at(40)), Lost(at(40))));
    assert_eq!(Lost(at(20)).after(&pod(&[("Ready", "True", 50)])), Ready);
}

#[test]
fn the_time_to_ready_is_from_the_scheduling_and_never_negative() {
    let of = |conditions: &[Condition<'_>]| took(&pod(conditions)).map(|took| took.as_secs());
    assert_eq!(of(&[("PodScheduled", "True", 2), ("Ready", "True", 9)]), Some(7));
    assert_eq!(of(&[("PodScheduled", "True", 9), ("Ready", "True", 2)]), None);
    assert_eq!(of(&[("PodScheduled", "True", 2), ("Ready", "False", 9)]), None);
    assert_eq!(of(&[("Ready", "True", 9)]), None);
}

#[test]
fn room_is_free_that_a_pod_leaves_for_good() {
    let controller =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    let of = |phase: &str, deleted: Option<&str>, owners: &Value, disrupted: &str| {
        let conditions = [json!({"type": "DisruptionTarget", "status": disrupted})];
        let metadata = json!({"deletionTimestamp": deleted, "ownerReferences": owners});
        let status = json!({"phase": phase, "conditions": conditions});
        has_left_room(&serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
    };
    let deleted = Some("2026-01-01T00:00:00Z");
    assert!(of("Succeeded", None, &controller, "False") && of("Running", deleted, &controller, "False"));
    assert!(!of("Running", None, &controller, "False"), "it runs on");
    assert!(of("Failed", None, &json!([]), "False"), "nothing makes another");
    assert!(!of("Failed", None, &controller, "False"), "its controller may make another");
    assert!(!of("Running", deleted, &controller, "True"), "it was preempted or evicted");
}

/// A pod that was created at 0.
fn standing(subgroup: usize, scheduled: Option<i64>, readiness: Readiness) -> LivePod {
    LivePod { subgroup, created: at(0), scheduled: scheduled.map(at), readiness }
}

fn ready() -> LivePod {
    standing(0, Some(1), Readiness::Ready)
}

fn not_yet() -> LivePod {
    standing(0, Some(1), Readiness::NotYet)
}

fn lost(since: i64) -> LivePod {
    standing(0, Some(1), Readiness::Lost(at(since)))
}

/// A workload that was created and takes room since 0, and has had too few pods since then.
fn since(seconds: i64) -> NotReady {
    let since = at(seconds);
    NotReady { created: at(0), started: Some(at(0)), since, first_since: since, was_ready: false }
}

fn group(spec: &Value) -> GangShape {
    GangShape::of(PodGroupKind::Runai, &PodGroupKind::Runai.spec(spec))
}

fn of_at_least(minimum: u32) -> GangShape {
    group(&json!({"minMember": minimum}))
}

/// The second since which too few are ready, and whether enough were.
fn lacks(shape: &GangShape, pods: &[LivePod]) -> Option<(i64, bool)> {
    let lacking = NotReady::of(shape, pods, None)?;
    Some((lacking.since.duration_since(at(0)).as_secs(), lacking.was_ready))
}

#[test]
fn a_workload_lacks_pods_since_the_last_of_those_that_it_takes_was_ready() {
    for (minimum, pods, expected) in [
        (1, vec![ready()], None),
        (1, vec![not_yet()], Some((1, false))),
        (1, vec![lost(50)], Some((50, true))),
        // pods that no minimum needs may take as long as they like
        (2, vec![ready(), ready(), not_yet()], None),
        (2, vec![ready(), lost(50), lost(90)], Some((90, true))),
        (2, vec![ready(), not_yet(), lost(90)], Some((90, true))),
        (3, vec![ready(), not_yet(), lost(90)], Some((1, false))),
        (3, vec![lost(70), lost(50), lost(90)], Some((50, true))),
        // those that were not created can't be waited for
        (2, vec![ready()], None),
        (2, vec![not_yet()], Some((1, false))),
        (u32::MAX, vec![ready(), not_yet()], Some((1, false))),
        (0, vec![not_yet()], None),
        (1, vec![], None),
    ] {
        assert_eq!(lacks(&of_at_least(minimum), &pods), expected, "{minimum} of {pods:?}");
    }
}

#[test]
fn a_workload_takes_room_when_the_first_of_its_pods_is_scheduled() {
    let waits = || standing(0, None, Readiness::NotYet);
    let lacking = NotReady::of(&of_at_least(2), &[waits(), waits()], None).unwrap();
    assert_eq!(lacking.started, None, "it takes no room");
    let late = standing(0, Some(30), Readiness::NotYet);
    let lacking = NotReady::of(&of_at_least(2), &[waits(), late], None).unwrap();
    assert_eq!(lacking, NotReady { started: Some(at(30)), since: at(30), ..since(30) });
}

#[test]
fn a_pod_that_replaces_another_is_missing_since_it_was_created() {
    let replacement = LivePod { created: at(500), ..standing(0, Some(501), Readiness::NotYet) };
    assert_eq!(lacks(&of_at_least(2), &[ready(), replacement]), Some((500, false)));
}

#[test]
fn pods_that_were_replaced_took_room_since_the_run_started() {
    let replacement = |created: i64, scheduled: Option<i64>, readiness| LivePod {
        created: at(created),
        ..standing(0, scheduled, readiness)
    };
    let pods =
        [replacement(9_000, Some(9_005), Readiness::Ready), replacement(9_180, None, Readiness::NotYet)];
    for (start, started) in [(None, 9_005), (Some(at(5)), 5), (Some(at(9_999)), 9_005)] {
        let lacking = NotReady::of(&of_at_least(2), &pods, start).unwrap();
        let expected = NotReady { created: at(9_000), started: Some(at(started)), ..since(9_180) };
        assert_eq!(lacking, expected, "{start:?}");
    }
    let lacking = NotReady::of(&of_at_least(1), &[pods[1]], Some(at(5))).unwrap();
    assert_eq!(lacking.started, None, "it takes no room any more");
}

#[test]
fn each_subgroup_has_a_minimum_of_its_own() {
    let shape = group(&json!({"subGroups": [
        {"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2},
    ]}));
    let of = |subgroup: usize, pod: LivePod| LivePod { subgroup, ..pod };
    let leader = of(0, ready());
    assert_eq!(lacks(&shape, &[leader, of(1, ready()), of(1, ready())]), None);
    assert_eq!(lacks(&shape, &[leader, of(1, ready()), of(1, lost(60)), of(1, lost(40))]), Some((60, true)));
    assert_eq!(lacks(&shape, &[of(0, lost(80)), of(1, ready()), of(1, lost(60))]), Some((60, true)));
    assert_eq!(lacks(&shape, &[of(0, not_yet()), of(1, ready()), of(1, lost(60))]), Some((1, false)));
    // of no subgroup that there is
    assert_eq!(lacks(&shape, &[leader, of(1, ready()), of(1, ready()), of(2, not_yet())]), None);
}

#[test]
fn so_many_subgroups_have_to_be_ready_as_the_group_takes() {
    let shape = group(&json!({"minSubGroup": 2, "subGroups": [
        {"name": "a"}, {"name": "b"}, {"name": "c", "minMember": 2},
    ]}));
    let of = |subgroup: usize, pod: LivePod| LivePod { subgroup, ..pod };
    let lacks = |pods: &[LivePod]| lacks(&shape, pods);
    assert_eq!(lacks(&[of(0, ready()), of(1, ready()), of(2, not_yet())]), None, "it isn't needed");
    assert_eq!(lacks(&[of(0, ready()), of(1, lost(70)), of(2, ready()), of(2, ready())]), None);
    assert_eq!(lacks(&[of(0, lost(60)), of(1, lost(70)), of(2, ready()), of(2, ready())]), Some((70, true)));
    assert_eq!(lacks(&[of(0, not_yet()), of(1, ready()), of(2, ready())]), Some((1, false)), "c has too few");
    // those that were not created can't be waited for
    assert_eq!(lacks(&[of(0, ready())]), None);
    assert_eq!(lacks(&[of(0, not_yet())]), Some((1, false)));
    assert_eq!(lacks(&[of(0, ready()), of(2, not_yet())]), Some((1, false)), "of those that were");
    assert_eq!(lacks(&[of(3, not_yet())]), None);
}

fn waits(recovery: Option<&str>) -> PodsReady {
    let block = json!({"timeout": "5m", "recoveryTimeout": recovery});
    PodsReady::from(&serde_json::from_value::<WaitForPodsReady>(block).unwrap())
}

#[test]
fn what_was_ready_has_its_recovery_and_what_was_not_has_its_timeout() {
    use Cause::{WaitForRecovery, WaitForStart};
    let of = |recovery, seconds: i64, was_ready| {
        let deadline = waits(recovery).deadline(NotReady { was_ready, ..since(seconds) });
        deadline.map(|(until, cause)| (until.duration_since(at(0)).as_secs(), cause))
    };
    assert_eq!(of(None, 0, false), Some((300, WaitForStart)));
    assert_eq!(of(None, 300, false), Some((300, WaitForStart)), "its last pod came late");
    assert_eq!(of(Some("1m"), 301, false), Some((361, WaitForRecovery)), "else it would have been paused");
    assert_eq!(of(None, 301, false), None);
    assert_eq!(of(Some("1m"), 299, true), Some((359, WaitForRecovery)));
    assert_eq!(of(Some("10m"), 10, true), Some((610, WaitForRecovery)));
    assert_eq!(of(None, 299, true), None, "no limit");
}

#[test]
fn a_recovery_of_no_time_is_none() {
    assert_eq!(waits(Some("0s")).recovery, None);
    assert_eq!(waits(Some("soon")).recovery, None);
    assert_eq!(waits(Some("90s")).recovery, "90s".parse().ok());
    assert_eq!(waits(None).timestamp, RequeuingTimestamp::Eviction);
}

#[test]
fn what_is_too_far_ahead_is_never_reached() {
    let lacking = NotReady { started: Some(Timestamp::MAX), ..since(0) };
    assert_eq!(waits(None).deadline(lacking), Some((Timestamp::MAX, Cause::WaitForStart)));
}

/// The second until which a workload may lack pods.
fn until(block: &Value, lacking: NotReady) -> Option<i64> {
    let rules = PodsReady::from(&serde_json::from_value::<WaitForPodsReady>(block.clone()).unwrap());
    let (until, _) = PodsReady::applying(Some(rules), None)?.deadline(lacking)?;
    Some(until.duration_since(at(0)).as_secs())
}

#[test]
fn what_takes_no_room_may_wait_unless_its_creation_counts() {
    let (scheduled, created) = (json!({"timeout": "5m"}), json!({"timeout": "5m", "countFrom": "Creation"}));
    let waits = NotReady { created: at(-60), started: None, ..since(0) };
    assert_eq!((until(&scheduled, waits), until(&created, waits)), (None, Some(240)));
    let placed = NotReady { started: Some(at(100)), ..waits };
    assert_eq!((until(&scheduled, placed), until(&created, placed)), (Some(400), Some(240)));
    // the start of a run whose first pods were replaced
    let replaced = NotReady { created: at(50), started: Some(at(20)), ..waits };
    assert_eq!((until(&scheduled, replaced), until(&created, replaced)), (Some(320), Some(320)));
}

#[test]
fn what_has_never_been_placed_was_never_ready_whenever_its_present_pods_were_created() {
    let created = json!({"timeout": "5m", "recoveryTimeout": "1m", "countFrom": "Creation"});
    let replaced = NotReady { created: at(0), started: None, ..since(900) };
    assert_eq!(until(&created, replaced), Some(300), "to replace its pods gains no time");
    let placed_late = NotReady { created: at(0), started: Some(at(880)), ..since(900) };
    assert_eq!(until(&created, placed_late), Some(300));
    let was_ready = NotReady { was_ready: true, ..placed_late };
    assert_eq!(until(&created, was_ready), Some(960));
}

#[test]
fn rules_that_are_turned_off_apply_to_no_workload_and_hide_the_configured_ones() {
    let rules = |enable: Option<bool>| {
        PodsReady::from(&serde_json::from_value::<WaitForPodsReady>(json!({"enable": enable})).unwrap())
    };
    let [on, off] = [rules(Some(true)), rules(Some(false))];
    assert_eq!(rules(None), on);
    assert_eq!(PodsReady::applying(Some(off), Some(on)), None);
    assert_eq!(PodsReady::applying(None, Some(off)), None);
    assert_eq!(PodsReady::applying(Some(on), Some(off)), Some(on));
}

/// A run that has too few ready pods since a second, with the memory of it.
fn recalled(memory: &mut RunMemory, seconds: i64, was_ready: bool) -> NotReady {
    memory.recall(NotReady { was_ready, ..since(seconds) })
}

#[test]
fn a_run_that_was_ready_once_stays_so_when_its_pods_are_replaced() {
    let mut memory = RunMemory::default();
    memory.note(true, true, || false);
    let lacking = recalled(&mut memory, 299, false);
    assert_eq!(waits(None).deadline(lacking), None);
    let recovery = waits(Some("1m")).deadline(lacking).unwrap();
    assert_eq!(recovery, (at(359), Cause::WaitForRecovery));
}

#[test]
fn a_run_that_was_never_ready_has_its_timeout_whenever_its_present_pods_were_created() {
    let mut memory = RunMemory::default();
    recalled(&mut memory, 5, false);
    let lacking = recalled(&mut memory, 301, false);
    assert_eq!(waits(Some("1m")).deadline(lacking), Some((at(300), Cause::WaitForStart)));
}

#[test]
fn a_recovery_runs_on_when_another_pod_is_replaced_and_ends_when_enough_are_ready() {
    let mut memory = RunMemory::default();
    memory.note(true, true, || false);
    assert_eq!(recalled(&mut memory, 10, false).since, at(10));
    memory.note(false, false, || false);
    assert_eq!(recalled(&mut memory, 60, false).since, at(10));
    assert_eq!(recalled(&mut memory, 5, false).since, at(5));
    memory.note(true, true, || false);
    assert_eq!(recalled(&mut memory, 90, false).since, at(90));
}

#[test]
fn a_recovery_ends_when_all_are_ready_that_are_left_after_others_succeeded_and_not_while_one_is_missed() {
    for (has_succeeded, replaced, expected) in [(true, true, 90), (true, false, 10), (false, true, 10)] {
        let mut memory = RunMemory::default();
        memory.note(true, true, || false);
        memory.leave(has_succeeded);
        assert_eq!(recalled(&mut memory, 10, false).since, at(10));
        memory.leave(false);
        memory.note(false, true, || true);
        if replaced {
            memory.join();
        }
        memory.note(false, true, || true);
        assert_eq!(recalled(&mut memory, 90, false).since, at(expected), "{has_succeeded} {replaced}");
    }
}

#[test]
fn pods_that_show_that_a_run_was_ready_are_believed_when_they_are_gone() {
    let mut memory = RunMemory::default();
    memory.note(false, true, || false);
    assert!(recalled(&mut memory, 50, false).was_ready);
    let mut memory = RunMemory::default();
    assert!(recalled(&mut memory, 50, true).was_ready && recalled(&mut memory, 70, false).was_ready);
}
