//! Workloads that don't get ready: when they make room, and when they come back.

mod capacity;
mod creation;

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_policy::{
    expiry::Family,
    floor::{Floors, PartialFloors},
    owner_table::OwnerTable,
    ready::{Cause, PodsReady},
    requeue::Backoff,
};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection,
    runai::v3alpha1::{QueueSpec, WaitForPodsReady},
    tensorstack::v1beta1,
};

use super::{CeilingIndex, CeilingOptions, tests::at};
use crate::{ActionOutcome, BatchCoverage, DueBatch, Task, Uid};

fn index_with(pods_ready: Option<PodsReady>) -> CeilingIndex {
    CeilingIndex::new(CeilingOptions {
        table: OwnerTable::default(),
        pods_ready,
        ..CeilingOptions::default()
    })
}

fn queue(index: &mut CeilingIndex, name: &str, spec: Value) {
    index.apply_queue(name, &serde_json::from_value::<QueueSpec>(spec).unwrap());
}

fn waiting(timeout: &str) -> Value {
    json!({"waitForPodsReady": {"timeout": timeout}})
}

/// An index with queue `q`.
fn index(spec: Value) -> CeilingIndex {
    let mut index = index_with(None);
    queue(&mut index, "q", spec);
    index
}

/// The state of a pod.
#[derive(Clone, Copy)]
enum Is {
    Waiting,
    Scheduled(i64),
    Ready,
    Lost(i64),
    /// It lost its readiness then, and its init containers have ended again three seconds later.
    Rebooted(i64),
}

/// A pod of a Job in queue `q`, scheduled at 0 unless it says otherwise.
fn pod(uid: &str, job: &str, is: Is) -> projection::Pod {
    younger(0, uid, job, is)
}

/// The same pod, with all its times `created` seconds later.
fn younger(created: i64, uid: &str, job: &str, is: Is) -> projection::Pod {
    let condition = |kind: &str, status: &str, since: i64| json!({"type": kind, "status": status, "lastTransitionTime": at(created + since)});
    let conditions = match is {
        Is::Waiting => vec![],
        Is::Scheduled(since) => vec![condition("PodScheduled", "True", since)],
        Is::Ready => vec![condition("PodScheduled", "True", 0), condition("Ready", "True", 2)],
        Is::Lost(since) => vec![
            condition("PodScheduled", "True", 0),
            condition("Initialized", "True", 1),
            condition("Ready", "False", since),
        ],
        Is::Rebooted(since) => vec![
            condition("PodScheduled", "True", 0),
            condition("Initialized", "True", since + 3),
            condition("Ready", "False", since),
        ],
    };
    serde_json::from_value(json!({
        "metadata": {
            "name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": at(created),
            "labels": {"kai.scheduler/queue": "q"}, "annotations": {"pod-group-name": format!("group-of-{job}")},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true},
            ],
        },
        "spec": {}, "status": {"conditions": conditions},
    }))
    .unwrap()
}

/// The group of the pods of `job`.
fn gang_of_two(index: &mut CeilingIndex) {
    group(index, "group-of-job", 2);
}

fn group(index: &mut CeilingIndex, name: &str, minimum: u32) {
    let group = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"minMember": minimum, "queue": "q"},
    });
    index.apply_group(PodGroupKind::Runai, &serde_json::from_value::<PodGroup>(group).unwrap());
}

/// When what is next becomes due, as seconds after 0: at that time itself it isn't yet.
fn due(index: &mut CeilingIndex) -> Option<i64> {
    let next = index.next_due_after(Timestamp::MIN)?;
    assert_eq!(index.next_batch(next - SignedDuration::from_millis(1)), None);
    Some(next.duration_since(at(0)).as_secs())
}

fn evicted(index: &mut CeilingIndex, now: Timestamp) -> Option<DueBatch> {
    index.next_batch(now).inspect(|group| assert_eq!(group.task, Task::Evict))
}

#[test]
fn a_pod_must_be_ready_within_the_timeout_of_the_nearest_block() {
    let configured = serde_json::from_value::<WaitForPodsReady>(json!({"timeout": "50s"})).unwrap();
    let own = waiting("20s");
    for (root, leaf, expected) in [
        (json!({}), json!({}), 50),
        (waiting("30s"), json!({}), 30),
        (waiting("30s"), own.clone(), 20),
        (json!({}), own, 20),
        (json!({}), json!({"waitForPodsReady": {}}), 300),
    ] {
        let mut index = index_with(Some(PodsReady::from(&configured)));
        let mut leaf = leaf;
        leaf["parentQueue"] = json!("root");
        queue(&mut index, "root", root);
        queue(&mut index, "q", leaf.clone());
        index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
        assert_eq!(due(&mut index), Some(expected), "{leaf}");
        let due = evicted(&mut index, at(400)).unwrap().first;
        assert_eq!((due.queue.as_str(), due.family, due.cause), ("q", Family::Runai, Cause::WaitForStart));
        assert_eq!(due.deadline, at(expected));
    }
}

#[test]
fn a_pod_that_shows_its_binding_late_has_no_more_time_to_get_ready() {
    let mut index = index(waiting("20s"));
    for is in [Is::Waiting, Is::Scheduled(15)] {
        let mut placed = pod("a", "job", is);
        placed.spec.node_name = Some("n".into());
        index.apply_pod(&placed);
        assert_eq!(due(&mut index), Some(20), "it was created with its node");
    }
}

#[test]
fn who_takes_no_room_or_is_ready_or_is_nowhere_awaited_may_go_on() {
    for (spec, is, expected) in [
        (waiting("10s"), Is::Scheduled(5), Some(15)),
        (waiting("10s"), Is::Waiting, None),
        (waiting("10s"), Is::Ready, None),
        (waiting("10s"), Is::Lost(60), None),
        (json!({}), Is::Scheduled(5), None),
    ] {
        let mut index = index(spec);
        index.apply_pod(&pod("a", "job", is));
        assert_eq!(due(&mut index), expected);
    }
}

#[test]
fn who_gets_ready_is_not_due_any_more_and_is_said_to_be_the_first_time() {
    let mut index = index(waiting("10s"));
    assert!(!index.apply_pod(&pod("a", "job", Is::Scheduled(0))));
    assert!(index.apply_pod(&pod("a", "job", Is::Ready)));
    assert!(!index.apply_pod(&pod("a", "job", Is::Ready)));
    assert_eq!(index.next_batch(at(60)), None);
    assert!(!index.apply_pod(&pod("a", "job", Is::Lost(70))));
    assert!(!index.apply_pod(&pod("a", "job", Is::Ready)), "it was ready before");
    assert!(!index.apply_pod(&pod("seen", "job", Is::Ready)), "the time is unknown at which it got ready");
}

#[test]
fn who_was_handed_out_is_awaited_until_it_is_ready_or_has_more_time() {
    let mut index = index(waiting("10s"));
    let waits = pod("a", "job", Is::Scheduled(0));
    index.apply_pod(&waits);
    // the pod as it was read when it was handed out
    let ready_by =
        |index: &mut CeilingIndex| index.run_state(&waits, (Family::Runai, "q"), None, None, at(11)).ready_by;
    let group = evicted(&mut index, at(11)).unwrap();
    assert_eq!((ready_by(&mut index), group.first.deadline), (Some(at(10)), at(10)));
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Paused, at(11));
    assert_eq!(ready_by(&mut index), Some(at(10)), "it outlives its pause");
    queue(&mut index, "q", waiting("1m"));
    assert_eq!(ready_by(&mut index), Some(at(60)));
    queue(&mut index, "q", json!({}));
    assert_eq!(ready_by(&mut index), None);
    queue(&mut index, "q", waiting("10s"));
    assert_eq!(ready_by(&mut index), Some(at(10)));
    index.apply_pod(&pod("a", "job", Is::Ready));
    assert_eq!(ready_by(&mut index), None);
}

#[test]
fn a_ready_pod_of_a_gang_is_awaited_with_the_others() {
    let mut index = index(waiting("10s"));
    gang_of_two(&mut index);
    let (ready, waits) = (pod("a", "job", Is::Ready), pod("b", "job", Is::Scheduled(0)));
    index.apply_pod(&ready);
    index.apply_pod(&waits);
    assert_eq!(evicted(&mut index, at(11)).unwrap().pods().count(), 2);
    let awaited =
        [&ready, &waits].map(|pod| index.run_state(pod, (Family::Runai, "q"), None, None, at(11)).ready_by);
    assert_eq!(awaited, [Some(at(10)); 2]);
    index.apply_pod(&pod("b", "job", Is::Ready));
    for pod in [&ready, &waits] {
        assert_eq!(index.run_state(pod, (Family::Runai, "q"), None, None, at(11)).ready_by, None);
    }
}

#[test]
fn who_was_ready_has_the_time_of_its_recovery() {
    let mut index = index(json!({"waitForPodsReady": {"timeout": "30s", "recoveryTimeout": "5s"}}));
    index.apply_pod(&pod("a", "job", Is::Lost(10)));
    assert_eq!(due(&mut index), Some(15));
    assert_eq!(evicted(&mut index, at(16)).unwrap().first.cause, Cause::WaitForRecovery);
}

#[test]
fn who_was_ready_has_its_recovery_and_no_start_when_its_node_reboots() {
    let recovering = json!({"waitForPodsReady": {"timeout": "10s", "recoveryTimeout": "20s"}});
    for (spec, expected) in [(waiting("10s"), None), (recovering, Some(25))] {
        let mut index = index(spec);
        index.apply_pod(&pod("a", "job", Is::Ready));
        index.apply_pod(&pod("a", "job", Is::Rebooted(5)));
        assert_eq!(due(&mut index), expected);
    }
}

#[test]
fn a_gang_is_evicted_only_when_fewer_are_ready_than_it_takes() {
    let mut index = index(json!({"waitForPodsReady": {"timeout": "30s", "recoveryTimeout": "5s"}}));
    gang_of_two(&mut index);
    for uid in ["a", "b", "c"] {
        index.apply_pod(&pod(uid, "job", Is::Ready));
    }
    index.apply_pod(&pod("a", "job", Is::Lost(40)));
    assert_eq!(due(&mut index), None, "two of three are ready");
    index.apply_pod(&pod("b", "job", Is::Lost(70)));
    assert_eq!(due(&mut index), Some(75));
    let group = evicted(&mut index, at(76)).unwrap();
    assert_eq!(group.pods().count(), 3, "those that are ready go with the others");
}

#[test]
fn the_pods_of_a_gang_whose_shape_changes_again_and_again_count_towards_the_last_one() {
    let mut index = index(waiting("10s"));
    gang_of_two(&mut index);
    group(&mut index, "group-of-job", 1);
    index.apply_pod(&pod("a", "job", Is::Ready));
    index.apply_pod(&pod("b", "job", Is::Scheduled(0)));
    gang_of_two(&mut index);
    assert_eq!(due(&mut index), Some(10));
    index.apply_pod(&pod("b", "job", Is::Ready));
    assert_eq!(due(&mut index), None);
}

#[test]
fn a_gang_that_was_ready_has_its_recovery_when_its_pods_are_replaced_one_after_the_other() {
    for (recovery, expected) in [(Value::Null, None), (json!("1m"), Some(9_240))] {
        let mut index = index(json!({"waitForPodsReady": {"timeout": "5m", "recoveryTimeout": recovery}}));
        gang_of_two(&mut index);
        for (created, uid, before) in [(0, "a", ""), (0, "b", ""), (9_000, "c", "b")] {
            index.delete_pod(Uid::of(before));
            index.apply_pod(&younger(created, uid, "job", Is::Ready));
            assert_eq!(due(&mut index), None);
        }
        index.delete_pod(Uid::of("a"));
        index.apply_pod(&younger(9_180, "d", "job", Is::Scheduled(5)));
        assert_eq!(due(&mut index), expected, "{recovery}");
    }
}

#[test]
fn what_has_expired_comes_before_what_is_not_ready() {
    let mut spec = waiting("10s");
    spec["maxDuration"] = json!("20s");
    let mut index = index(spec);
    index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
    assert_eq!(index.next_batch(at(60)).unwrap().task, Task::Expire);
}

#[test]
fn who_was_evicted_in_vain_is_due_again_ever_later_and_afresh_after_it_was_ready() {
    let mut index = index(json!({"waitForPodsReady": {"timeout": "10s", "recoveryTimeout": "10s"}}));
    index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
    let mut now = at(11);
    for wait in [5, 10, 20, 40, 40] {
        let group = evicted(&mut index, now).unwrap();
        index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, now);
        let next = index.next_due_after(Timestamp::MIN).unwrap();
        assert_eq!(next.duration_since(now).as_secs(), wait);
        now = next;
    }
    index.apply_pod(&pod("a", "job", Is::Ready));
    index.apply_pod(&pod("a", "job", Is::Lost(30)));
    assert_eq!(evicted(&mut index, now).unwrap().first.attempts, 0);
}

#[test]
fn what_outlives_a_pause_is_handed_out_as_such_and_apart_from_what_comes_later_until_it_was_ready() {
    let mut index = index(json!({"waitForPodsReady": {"timeout": "10s", "recoveryTimeout": "10s"}}));
    index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
    let group = evicted(&mut index, at(11)).unwrap();
    assert!(!group.first.outlives);
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Paused, at(11));
    index.apply_pod(&pod("b", "job", Is::Scheduled(1)));
    let later = at(60);
    let mut outlive = Vec::new();
    while let Some(group) = evicted(&mut index, later) {
        outlive.extend(group.pods().map(|pod| (pod.name.clone(), pod.outlives)));
        index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, later);
    }
    outlive.sort();
    assert_eq!(outlive, [("a".to_owned(), true), ("b".to_owned(), false)], "one group each");
    index.apply_pod(&pod("a", "job", Is::Ready));
    index.apply_pod(&pod("a", "job", Is::Lost(30)));
    assert!(!evicted(&mut index, later).unwrap().first.outlives);
}

#[test]
fn all_pods_of_an_owner_outlive_its_pause_even_if_they_were_due_later() {
    let mut index = index(waiting("10s"));
    index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
    index.apply_pod(&pod("b", "job", Is::Scheduled(1)));
    index.apply_pod(&pod("c", "other", Is::Scheduled(1)));
    let group = evicted(&mut index, at(10) + SignedDuration::from_millis(1)).unwrap();
    assert_eq!(group.pods().count(), 1, "the others aren't due yet");
    let in_flight = evicted(&mut index, at(12)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Paused, at(12));
    let outlives = ["a", "b", "c"].map(|name| index.outlives(Uid::of(name)));
    assert_eq!(outlives, [true, true, false]);
    index.record_outcome(&in_flight, BatchCoverage::All, ActionOutcome::Acted, at(12));
    assert!(index.outlives(Uid::of("b")), "what was handed out before, too");
}

#[test]
fn a_time_slice_is_not_shorter_than_the_floors_up_the_tree() {
    let slice = |more: Value| {
        let mut spec = json!({"parentQueue": "root", "maxDuration": "10s", "requeueDelay": "7s"});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let requeue = || json!({"maxDurationAction": "Requeue"});
    for (root, leaf, ends, delay) in [
        (json!({"preemptMinRuntime": "30s"}), slice(json!({})), 10, None),
        (json!({}), slice(requeue()), 10, Some(7)),
        (json!({"preemptMinRuntime": "30s"}), slice(requeue()), 30, Some(7)),
        (json!({"reclaimMinRuntime": "40s", "preemptMinRuntime": "30s"}), slice(requeue()), 40, Some(7)),
        (json!({"maxDurationAction": "Requeue", "requeueDelay": "9s"}), slice(json!({})), 10, Some(7)),
        (requeue(), slice(json!({"maxDurationAction": "Pause"})), 10, None),
    ] {
        let mut index = index_with(None);
        queue(&mut index, "root", root);
        queue(&mut index, "q", leaf.clone());
        index.apply_pod(&pod("a", "job", Is::Ready));
        assert_eq!(due(&mut index), Some(ends), "{leaf}");
        let found =
            index.queue_rules(Family::Runai, "q").slice_delay().map(|delay| delay.to_signed().as_secs());
        assert_eq!(found, delay, "{leaf}");
        assert_eq!(index.queue_rules(Family::Tensorstack, "q").slice_delay(), None);
    }
}

/// By a default of 30 s against preemption and 50 s against reclaim, and of 70 s against reclaim in a node pool.
#[test]
fn a_default_floor_lengthens_a_time_slice_only_where_no_queue_says_another() {
    let floors = Floors {
        preempt: "30s".parse().unwrap(),
        reclaim: "50s".parse().unwrap(),
        node_pools: BTreeMap::from([(
            "a100".into(),
            PartialFloors { reclaim: Some("70s".parse().unwrap()), ..PartialFloors::default() },
        )]),
        ..Floors::default()
    };
    let settings = CeilingOptions { floors, ..CeilingOptions::default() };
    for (root, leaf, ends) in [
        (json!({}), json!({}), 70),
        (json!({"preemptMinRuntime": "0s"}), json!({"reclaimMinRuntime": "0s"}), 70),
        (json!({"reclaimMinRuntime": "0s"}), json!({}), 30),
        (json!({"reclaimMinRuntime": "0s"}), json!({"preemptMinRuntime": "0s"}), 10),
        (json!({"reclaimMinRuntime": "20s"}), json!({"preemptMinRuntime": "0s"}), 20),
    ] {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        let spec = json!({"parentQueue": "root", "maxDuration": "10s", "maxDurationAction": "Requeue"});
        let mut own = leaf.as_object().unwrap().clone();
        own.extend(spec.as_object().unwrap().clone());
        queue(&mut index, "root", root.clone());
        queue(&mut index, "q", own.into());
        index.apply_pod(&pod("a", "job", Is::Ready));
        index.next_due_after(Timestamp::MIN);
        index.configure(settings.clone());
        assert_eq!(due(&mut index), Some(ends), "{root} {leaf}");
    }
}

#[test]
fn a_workload_may_shorten_its_own_time_slice_below_its_floor() {
    let mut index = index(json!({
        "maxDuration": "10s", "maxDurationAction": "Requeue", "preemptMinRuntime": "30s",
    }));
    for (own, ends) in [("5s", 5), ("20s", 20), ("1h", 30)] {
        let mut pod = pod("a", "job", Is::Ready);
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert("tenure.dev/max-duration".into(), own.into());
        index.delete_pod(Uid::of("a"));
        index.apply_pod(&pod);
        assert_eq!(due(&mut index), Some(ends), "{own}");
    }
}

/// A Job of source 1 that was paused at a time, and comes back at another.
fn paused(
    index: &mut CeilingIndex,
    name: &str,
    paused_at: Timestamp,
    returns: Option<Timestamp>,
    more: &Value,
) {
    let record = json!({
        "reason": more.get("reason").unwrap_or(&json!("PodsReadyTimeout")), "at": paused_at, "queue": "q",
        "queueGroup": more["group"], "field": "spec.suspend", "value": true, "previousValue": false,
    });
    let state = json!({"count": 1, "requeueAt": returns, "priority": more["priority"]});
    let annotations = json!({
        "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
    });
    let created = more.get("created").and_then(Value::as_i64).unwrap_or_default();
    let metadata = json!({
        "name": name, "uid": name, "namespace": "ns", "creationTimestamp": at(created), "annotations": annotations,
    });
    index.apply_owner(1, &serde_json::from_value(metadata).unwrap());
}

/// The same Job when it isn't paused any more.
fn resumed(index: &mut CeilingIndex, name: &str) {
    let metadata = json!({"name": name, "uid": name, "namespace": "ns"});
    index.apply_owner(1, &serde_json::from_value(metadata).unwrap());
}

/// The names of the due workloads, in order.
fn returned(index: &mut CeilingIndex, now: Timestamp) -> Vec<String> {
    let mut due = index.due_returns(now);
    due.sort_by(|one, other| one.turn.cmp(&other.turn));
    due.iter().map(|due| due.paused.name.to_string()).collect()
}

#[test]
fn those_that_are_due_come_back_by_priority_and_then_by_the_time_of_the_strategy() {
    for (strategy, expected) in
        [("Eviction", ["urgent", "new", "z-old", "low"]), ("Creation", ["urgent", "z-old", "new", "low"])]
    {
        let block = json!({"waitForPodsReady": {"requeuingStrategy": {"timestamp": strategy}}});
        let mut index = index(block);
        let soon = Some(at(100));
        // the end of a time slice is a pause like any other
        paused(&mut index, "z-old", at(60), soon, &json!({"created": 1, "reason": "MaxDurationExceeded"}));
        paused(&mut index, "new", at(50), soon, &json!({"created": 2}));
        paused(&mut index, "urgent", at(70), soon, &json!({"created": 3, "priority": 9}));
        paused(&mut index, "low", at(10), soon, &json!({"created": 0, "priority": -1}));
        assert_eq!(returned(&mut index, at(99)), [""; 0]);
        assert_eq!(returned(&mut index, at(100)), expected);
    }
}

#[test]
fn queues_of_one_name_in_both_families_have_each_its_own_order_of_return() {
    let mut index = index(json!({"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Creation"}}}));
    index.apply_queue("q", &v1beta1::QueueSpec::default());
    let soon = Some(at(100));
    for (family, group) in [("runai", "scheduling.run.ai"), ("t9k", "scheduler.tensorstack.dev")] {
        for (name, paused_at, created) in [("old", 60, 1), ("new", 50, 2)] {
            let more = json!({"created": created, "group": group});
            paused(&mut index, &format!("{family}-{name}"), at(paused_at), soon, &more);
        }
    }
    assert_eq!(returned(&mut index, at(100)), ["runai-old", "runai-new", "t9k-new", "t9k-old"]);
}

#[test]
fn returns_of_different_queues_go_by_priority_and_time_and_not_by_the_name_of_the_queue() {
    let mut index = index(json!({}));
    let of = |queue: &str, name: &str, paused_at, priority: i32| {
        let record = json!({
            "reason": "PodsReadyTimeout", "at": at(paused_at), "queue": queue,
            "field": "spec.suspend", "value": true, "previousValue": false,
        });
        let state = json!({"count": 1, "requeueAt": at(100), "priority": priority});
        let annotations = json!({
            "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
        });
        let metadata = json!({"name": name, "uid": name, "namespace": "ns", "annotations": annotations});
        serde_json::from_value(metadata).unwrap()
    };
    for (queue, name, paused_at, priority) in
        [("a", "third", 30, 0), ("b", "second", 20, 0), ("c", "first", 90, 5), ("a", "fourth", 40, 0)]
    {
        index.apply_owner(1, &of(queue, name, paused_at, priority));
    }
    assert_eq!(returned(&mut index, at(100)), ["first", "second", "third", "fourth"]);
}

/// A gang of two in a queue with a timeout of 30 minutes, of which one is to be replaced.
fn gang_in_time(recovery: &Value) -> CeilingIndex {
    let mut index = index(json!({"waitForPodsReady": {"timeout": "30m", "recoveryTimeout": recovery}}));
    gang_of_two(&mut index);
    index
}

#[test]
fn a_gang_that_was_ready_once_is_not_evicted_at_its_timeout_when_a_member_is_replaced() {
    let mut index = gang_in_time(&Value::Null);
    for uid in ["a", "b"] {
        index.apply_pod(&pod(uid, "job", Is::Ready));
    }
    index.delete_pod(Uid::of("b"));
    index.apply_pod(&younger(29 * 60, "c", "job", Is::Scheduled(1)));
    assert_eq!(index.next_batch(at(3_600)), None);
}

#[test]
fn a_gang_that_was_never_ready_is_evicted_at_its_timeout_whenever_its_members_were_created() {
    let mut index = gang_in_time(&Value::Null);
    index.apply_pod(&pod("a", "job", Is::Ready));
    index.apply_pod(&pod("b", "job", Is::Scheduled(0)));
    assert_eq!(due(&mut index), Some(30 * 60));
    index.delete_pod(Uid::of("b"));
    index.apply_pod(&younger(31 * 60, "c", "job", Is::Scheduled(0)));
    let group = evicted(&mut index, at(32 * 60)).unwrap();
    assert_eq!((group.first.cause, group.first.deadline), (Cause::WaitForStart, at(30 * 60)));
}

#[test]
fn a_gang_that_never_had_its_minimum_has_its_timeout_from_the_first_of_all_its_pods() {
    let mut index = gang_in_time(&Value::Null);
    index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
    index.apply_pod(&younger(29 * 60, "b", "job", Is::Scheduled(0)));
    index.delete_pod(Uid::of("a"));
    assert_eq!(due(&mut index), Some(30 * 60));
}

#[test]
fn a_recovery_does_not_start_again_with_each_replaced_member() {
    let mut index = gang_in_time(&json!("10m"));
    for uid in ["a", "b"] {
        index.apply_pod(&pod(uid, "job", Is::Ready));
    }
    for (created, uid, before) in [(100, "c", "b"), (400, "d", "c"), (600, "e", "d")] {
        index.delete_pod(Uid::of(before));
        index.apply_pod(&younger(created, uid, "job", Is::Scheduled(0)));
        assert_eq!(due(&mut index), Some(700), "{uid}");
    }
    assert_eq!(evicted(&mut index, at(701)).unwrap().first.cause, Cause::WaitForRecovery);
}

#[test]
fn a_recovery_ends_whenever_all_pods_beside_those_that_succeeded_are_ready_though_none_asks() {
    for spec in [
        json!({"queue": "q", "minMember": 3}),
        json!({"queue": "q", "subGroups": [{"name": "default", "minMember": 3}]}),
    ] {
        let mut index = index(json!({"waitForPodsReady": {"timeout": "30m", "recoveryTimeout": "10m"}}));
        let group =
            json!({"metadata": {"name": "group-of-job", "namespace": "ns", "uid": "group"}, "spec": spec});
        index.apply_group(PodGroupKind::Runai, &serde_json::from_value::<PodGroup>(group).unwrap());
        for uid in ["a", "b", "c"] {
            index.apply_pod(&pod(uid, "job", Is::Ready));
        }
        let mut succeeded = pod("c", "job", Is::Ready);
        succeeded.status.phase = Some("Succeeded".into());
        index.apply_pod(&succeeded);
        assert_eq!(due(&mut index), None, "all that are left are ready: {spec}");
        for lost in [100, 200, 300] {
            index.apply_pod(&pod("b", "job", Is::Lost(lost)));
            assert_eq!(due(&mut index), Some(lost + 600), "{spec}");
            index.apply_pod(&pod("b", "job", Is::Ready));
        }
        index.apply_pod(&pod("d", "job", Is::Scheduled(400)));
        assert_eq!(due(&mut index), Some(600), "it was created at 0, and is needed from then on: {spec}");
    }
}

#[test]
fn readiness_is_remembered_for_a_run_and_no_longer() {
    let mut index = gang_in_time(&Value::Null);
    for uid in ["a", "b"] {
        index.apply_pod(&pod(uid, "job", Is::Ready));
    }
    index.retain_pods(&HashSet::new());
    for uid in ["c", "d"] {
        index.apply_pod(&younger(100, uid, "job", Is::Scheduled(0)));
    }
    assert_eq!(due(&mut index), Some(100 + 30 * 60));
}

#[test]
fn a_queue_that_there_is_not_is_under_the_configured_block_and_never_named() {
    let configured = serde_json::from_value::<WaitForPodsReady>(json!({"timeout": "10s"})).unwrap();
    let mut index = index_with(Some(PodsReady::from(&configured)));
    let queues = |index: &mut CeilingIndex| {
        let evicted = evicted(index, at(11)).unwrap().first.queue.clone();
        index.forget_notices();
        let returned = index.due_returns(at(11)).first().unwrap().paused.queue.to_string();
        [evicted, returned]
    };
    index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
    paused(&mut index, "other", at(0), Some(at(10)), &json!({}));
    assert_eq!(queues(&mut index), ["", ""]);
    queue(&mut index, "q", json!({}));
    assert_eq!(queues(&mut index), ["q", "q"]);
}

#[test]
fn who_is_due_to_come_back_is_so_until_it_is_resumed() {
    let mut index = index(json!({}));
    paused(&mut index, "a", at(0), Some(at(10)), &json!({}));
    assert_eq!((index.next_return(at(9)), index.counts(at(9), at(9)).returning), (Some(at(10)), 1));
    assert_eq!(returned(&mut index, at(9)), [""; 0]);
    assert_eq!((returned(&mut index, at(10)), index.next_return(at(10))), (vec!["a".to_owned()], None));
    assert_eq!(returned(&mut index, at(99)), ["a"]);
    resumed(&mut index, "a");
    assert_eq!((returned(&mut index, at(99)), index.counts(at(99), at(99)).returning), (vec![], 0));
}

#[test]
fn a_pod_that_names_a_paused_owner_holds_up_its_return_for_ten_minutes_at_most() {
    for kind in ["Job", "Thing"] {
        let mut index = index(json!({}));
        paused(&mut index, "job", at(1), Some(at(10)), &json!({}));
        let mut stranger = pod("x", "job", Is::Waiting);
        let owner = stranger.metadata.owner_references.iter_mut().flatten().next().unwrap();
        kind.clone_into(&mut owner.kind);
        index.apply_pod(&stranger);
        let held = (vec![], Some(at(601)));
        assert_eq!((returned(&mut index, at(10)), index.next_return(at(10))), held, "{kind}");
        assert_eq!((returned(&mut index, at(600)), index.next_return(at(600))), held, "{kind}");
        let back = (vec!["job".to_owned()], None);
        assert_eq!((returned(&mut index, at(601)), index.next_return(at(601))), back, "{kind}");
    }
}

#[test]
fn a_pod_past_its_ceiling_holds_up_the_return_of_its_owner_until_it_is_gone() {
    let mut index = index(json!({"maxDuration": "1m"}));
    index.apply_pod(&pod("a", "job", Is::Ready));
    paused(&mut index, "job", at(61), Some(at(70)), &json!({}));
    assert_eq!(returned(&mut index, at(9_000)), [""; 0]);
    index.delete_pod(Uid::of("a"));
    assert_eq!(returned(&mut index, at(9_000)), ["job"]);
}

#[test]
fn who_has_pods_still_waits_until_they_are_gone() {
    let mut index = index(json!({}));
    index.apply_pod(&pod("a", "job", Is::Ready));
    index.apply_pod(&pod("b", "other", Is::Ready));
    paused(&mut index, "job", at(1), Some(at(10)), &json!({}));
    assert_eq!(returned(&mut index, at(10)), [""; 0]);
    index.delete_pod(Uid::of("a"));
    assert_eq!(returned(&mut index, at(10)), ["job"]);
}

#[test]
fn the_record_of_who_runs_again_is_checked_also_once_its_time_has_come() {
    let mut index = index(json!({}));
    paused(&mut index, "job", at(0), Some(at(10)), &json!({}));
    index.apply_pod(&younger(5, "a", "job", Is::Ready));
    let mut are_due = |now: i64| index.due_returns(at(now)).iter().map(|due| due.is_due).collect::<Vec<_>>();
    assert_eq!([9, 10].map(&mut are_due), [[false], [false]]);
    index.delete_pod(Uid::of("a"));
    assert!(index.due_returns(at(10)).iter().all(|due| due.is_due));
}

#[test]
fn a_workload_of_kueues_comes_back_when_the_job_that_it_is_of_has_no_pods() {
    let mut index = index(json!({}));
    index.apply_pod(&pod("a", "job", Is::Ready));
    let record = json!({
        "reason": "PodsReadyTimeout", "at": at(1), "queue": "q", "field": "spec.active", "value": false,
        "previousValue": true,
    });
    let state = json!({"count": 1, "requeueAt": at(10)});
    let job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": true});
    let metadata = json!({
        "name": "job-job-1f", "uid": "w", "namespace": "ns", "labels": {"kueue.x-k8s.io/job-uid": "job"},
        "ownerReferences": [job], "annotations": {
            "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
        },
    });
    index.apply_workload(1, &serde_json::from_value(metadata).unwrap());
    assert_eq!(returned(&mut index, at(10)), [""; 0]);
    index.delete_pod(Uid::of("a"));
    assert_eq!(returned(&mut index, at(11)), ["job-job-1f"]);
    index.retain_owners(1, &HashSet::new());
    assert_eq!(index.counts(at(0), at(0)).returning, 0);
}

#[test]
fn a_workload_that_was_deactivated_while_it_waited_is_handed_out_at_once_even_with_pods() {
    let mut index = index(json!({}));
    let deactivated = |index: &mut CeilingIndex, reason: &str| {
        let record = json!({
            "reason": reason, "at": at(0), "queue": "q", "field": "spec.suspend", "previousValue": false,
        });
        let state = json!({"count": 1, "requeueAt": at(500)});
        let annotations = json!({
            "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
            "tenure.dev/active": "false",
        });
        let metadata = json!({"name": "job", "uid": "job", "namespace": "ns", "annotations": annotations});
        index.apply_owner(1, &serde_json::from_value(metadata).unwrap());
    };
    index.apply_pod(&pod("a", "job", Is::Ready));
    deactivated(&mut index, "PodsReadyTimeout");
    assert_eq!(
        (returned(&mut index, at(1)), index.counts(at(1), at(1)).returning),
        (vec!["job".to_owned()], 0)
    );
    deactivated(&mut index, "Deactivated");
    assert_eq!(index.next_return(Timestamp::MIN), None);
    assert_eq!(returned(&mut index, Timestamp::MAX), ["job"], "it runs again: its record is looked at");
    index.delete_pod(Uid::of("a"));
    assert_eq!(returned(&mut index, Timestamp::MAX), [""; 0]);
}

#[test]
fn who_has_no_time_of_return_never_comes_back() {
    let mut index = index(json!({}));
    paused(&mut index, "a", at(0), None, &json!({}));
    assert_eq!((index.next_return(Timestamp::MIN), index.counts(at(9), at(9)).returning), (None, 0));
    assert_eq!(returned(&mut index, Timestamp::MAX), [""; 0]);
}

/// Numbers that look as if they were drawn at random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((self.0 >> 33) % bound).unwrap()
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

const TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// Jobs of one pod that never gets ready, a keeper's index, and an API server whose clock jumps.
struct Simulation {
    index: CeilingIndex,
    random: Random,
    backoff: Backoff,
    /// Seconds that have really gone by, and what the API server's clock is ahead.
    elapsed: i64,
    ahead: i64,
    jobs: HashMap<String, Life>,
}

#[derive(Default)]
struct Life {
    /// Its pod, and when that was scheduled.
    pod: Option<(String, Timestamp)>,
    /// When it comes back, if it is paused.
    returns: Option<Timestamp>,
    count: i32,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let strategy = json!({"backoffBaseSeconds": 5, "backoffFactor": "2", "backoffMaxSeconds": 60});
        let block = json!({"timeout": "10s", "requeuingStrategy": strategy});
        let mut simulation = Self {
            index: index(json!({"waitForPodsReady": block})),
            random: Random(seed),
            backoff: Backoff::from(&serde_json::from_value::<WaitForPodsReady>(block).unwrap()),
            elapsed: 0,
            ahead: 0,
            jobs: HashMap::new(),
        };
        for name in ["a", "b", "c", "d"] {
            simulation.jobs.insert(name.into(), Life::default());
            simulation.start(name);
        }
        simulation
    }

    fn now(&self) -> Timestamp {
        at(self.elapsed + self.ahead)
    }

    fn start(&mut self, name: &str) {
        let (uid, now) = (format!("{name}-{}-{}", self.elapsed, self.ahead), self.now());
        self.index.apply_pod(&pod(&uid, name, Is::Scheduled(self.elapsed + self.ahead)));
        let life = self.jobs.get_mut(name).unwrap();
        (life.pod, life.returns) = (Some((uid, now)), None);
    }

    fn evict(&mut self) {
        let now = self.now();
        while let Some(group) = self.index.next_batch(now) {
            assert_eq!(group.task, Task::Evict);
            let name = group.first.name.split('-').next().unwrap().to_owned();
            let fails = self.random.one_in(5);
            let life = self.jobs.get_mut(&name).unwrap();
            let (_, scheduled) = life.pod.as_ref().unwrap();
            assert!(now > *scheduled + TIMEOUT, "{name} is evicted at {now}, scheduled at {scheduled}");
            // one that is paused already still has its pod
            if !fails && life.returns.is_none() {
                life.count += 1;
                let returns = now + self.backoff.wait(life.count);
                life.returns = Some(returns);
                paused(&mut self.index, &name, now, Some(returns), &json!({}));
            }
            self.index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, now);
        }
    }

    /// Its controller is sometimes slow.
    fn delete_pods(&mut self) {
        for life in self.jobs.values_mut().filter(|life| life.returns.is_some()) {
            if let Some((uid, _)) = &life.pod
                && !self.random.one_in(3)
            {
                self.index.delete_pod(Uid::of(uid));
                life.pod = None;
            }
        }
    }

    fn bring_back(&mut self) {
        let now = self.now();
        for name in returned(&mut self.index, now) {
            let life = &self.jobs[&name];
            assert!(
                life.returns.is_some_and(|at| at <= now),
                "{name} is back at {now}, not {:?}",
                life.returns
            );
            assert_eq!(life.pod, None, "{name} still has a pod");
            if !self.random.one_in(5) {
                resumed(&mut self.index, &name);
                self.start(&name);
            }
        }
    }

    fn step(&mut self) {
        self.elapsed += self.random.below(3);
        self.evict();
        self.delete_pods();
        if self.random.one_in(50) {
            self.index.forget_notices();
        }
        self.bring_back();
    }

    fn counts(&self) -> Vec<i32> {
        let mut counts: Vec<_> = self.jobs.iter().map(|(name, life)| (name, life.count)).collect();
        counts.sort();
        counts.into_iter().map(|(_, count)| count).collect()
    }
}

#[test]
fn however_the_clock_jumps_nothing_is_early_by_it_and_all_goes_on_when_it_is_right_again() {
    for seed in 0..50 {
        let mut simulation = Simulation::new(seed);
        for _ in 0..1_000 {
            if simulation.random.one_in(40) {
                simulation.ahead = simulation.random.below(1201) - 600;
            }
            simulation.step();
        }
        simulation.ahead = 0;
        let (before, healed) = (simulation.counts(), simulation.elapsed);
        // what was written while the clock was ahead may be as far ahead itself
        while simulation.elapsed < healed + 900 {
            simulation.step();
        }
        let went_on = simulation.counts().iter().zip(&before).all(|(now, before)| now > before);
        assert!(went_on, "seed {seed}: {before:?}, {:?}", simulation.counts());
    }
}
