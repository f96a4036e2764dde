use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_types::{
    ExtendedDuration,
    runai::v3alpha1::{MaxDurationAction, OnReversal},
};

use super::*;
use crate::{
    cases::cases,
    floor::{PartialFloors, ReclaimResolveMethod},
    notice::NoticePoints,
    queue::RunaiQueue,
};

/// Queues in a row: the first is the root, and each is the parent of the next.
fn tree(row: &[Value]) -> QueueTree {
    let queue = |(number, spec): (usize, &Value)| {
        let mut spec = spec.clone();
        if let Some(parent) = number.checked_sub(1) {
            spec["parentQueue"] = format!("q{parent}").into();
        }
        (format!("q{number}"), RunaiQueue::read(&serde_json::from_value(spec).unwrap()).0)
    };
    row.iter().enumerate().map(queue).collect()
}

fn limits(floors: &Floors, row: &[Value]) -> QueueLimits {
    let tree = tree(row);
    let leaf = tree.find(&format!("q{}", row.len() - 1)).unwrap();
    QueueLimits::of(&tree, floors, leaf)
}

/// The ceiling of the last queue of a row, in seconds.
fn ceiling_of(row: &[Value]) -> Option<i64> {
    limits(&Floors::default(), row).ceiling.map(|ceiling| ceiling.to_signed().as_secs())
}

fn slice(spec: Value) -> Value {
    let mut spec = spec;
    spec["maxDurationAction"] = "Requeue".into();
    spec
}

#[test]
fn the_ceiling_is_the_least_on_the_path() {
    assert_eq!(ceiling_of(&[json!({}), json!({})]), None);
    assert_eq!(ceiling_of(&[json!({"maxDuration": "1h"}), json!({"maxDuration": "2h"})]), Some(3600));
    assert_eq!(ceiling_of(&[json!({"maxDuration": "2h"}), json!({"maxDuration": "1h"})]), Some(3600));
    assert_eq!(ceiling_of(&[slice(json!({"maxDuration": "1h"})), json!({"maxDuration": "2h"})]), Some(3600));
}

#[test]
fn a_time_slice_is_not_shorter_than_the_floors_of_the_queue_that_sets_it() {
    for floor in ["preemptMinRuntime", "reclaimMinRuntime"] {
        let own = json!({"maxDuration": "10s", floor: "30s"});
        assert_eq!(ceiling_of(&[slice(own.clone())]), Some(30));
        assert_eq!(ceiling_of(&[own]), Some(10), "a ceiling that pauses is as it is");
        let inherits = [json!({floor: "30s"}), slice(json!({"maxDuration": "10s"}))];
        assert_eq!(ceiling_of(&inherits), Some(30));
        assert_eq!(ceiling_of(&[slice(json!({"maxDuration": "10s", floor: "30s"})), json!({})]), Some(30));
    }
    let floors = Floors { preempt: "40s".parse().unwrap(), ..Floors::default() };
    let by_default = limits(&floors, &[slice(json!({"maxDuration": "10s"}))]);
    assert_eq!(by_default.ceiling, "40s".parse().ok());
}

#[test]
fn a_child_that_requeues_does_not_lengthen_the_ceiling_of_its_parent() {
    let root = json!({"maxDuration": "24h"});
    let day = Some(24 * 3600);
    assert_eq!(ceiling_of(&[root.clone(), slice(json!({"preemptMinRuntime": "720h"}))]), day);
    let own = slice(json!({"maxDuration": "1h", "preemptMinRuntime": "720h"}));
    assert_eq!(ceiling_of(&[root, own]), day, "its own slice is bounded, too");
}

#[test]
fn a_floor_of_a_child_does_not_lengthen_the_time_slice_of_its_parent() {
    let root = slice(json!({"maxDuration": "1h", "reclaimMinRuntime": "2h"}));
    assert_eq!(ceiling_of(&[root, json!({"reclaimMinRuntime": "3h"})]), Some(2 * 3600));
}

#[test]
fn a_ceiling_that_pauses_between_two_that_requeue_is_not_stretched() {
    let slice_of = |floor: &str| slice(json!({"maxDuration": "10s", "preemptMinRuntime": floor}));
    let row = [slice_of("60s"), json!({"maxDurationAction": "Pause"}), slice_of("40s")];
    assert_eq!(ceiling_of(&row), Some(10));
    assert_eq!(ceiling_of(&row[..2]), Some(10));
    assert_eq!(ceiling_of(&row[..1]), Some(60));
}

#[test]
fn what_ends_a_run_and_what_follows_is_inherited_from_the_nearest_queue_that_says() {
    let root = json!({
        "expiryNotice": "1m,1h", "maxDurationAction": "Requeue", "requeueDelay": "9s",
        "waitForPodsReady": {"timeout": "3m"},
    });
    let of = |leaf: Value| limits(&Floors::default(), &[root.clone(), leaf]);
    let seconds = |of: Option<ExtendedDuration>| of.map(|duration| duration.to_signed().as_secs());
    let timeout =
        |of: QueueLimits| of.nearest.pods_ready.map(|wait| wait.backoff.timeout.to_signed().as_secs());
    let inherited = of(json!({}));
    let points = |of: QueueLimits| of.nearest.notice.map(|points| points.to_string());
    assert_eq!(
        (points(inherited).as_deref(), seconds(inherited.nearest.slice_delay())),
        (Some("1h,1m"), Some(9))
    );
    assert_eq!(timeout(inherited), Some(180));
    let own = of(json!({"expiryNotice": "0s", "requeueDelay": "0s", "waitForPodsReady": {"timeout": "4m"}}));
    assert_eq!(
        (points(own).as_deref(), seconds(own.nearest.slice_delay()), timeout(own)),
        (Some("0s"), Some(0), Some(240))
    );
    assert_eq!(of(json!({"maxDurationAction": "Pause"})).nearest.slice_delay(), None);
    let at_once = limits(&Floors::default(), &[slice(json!({}))]);
    assert_eq!(seconds(at_once.nearest.slice_delay()), Some(0), "no queue says how long");
    assert_eq!(limits(&Floors::default(), &[json!({})]), QueueLimits::default());
}

#[test]
fn what_happens_when_pauses_are_undone_is_as_the_nearest_queue_says() {
    let of = |row: &[Value]| limits(&Floors::default(), row).nearest.on_reversal.unwrap_or_default();
    let says = |what: &str| json!({"onReversal": what});
    assert_eq!(of(&[json!({})]), OnReversal::Pause);
    assert_eq!(of(&[says("DeletePods"), json!({})]), OnReversal::DeletePods);
    assert_eq!(of(&[says("DeletePods"), says("Pause"), json!({})]), OnReversal::Pause);
    assert_eq!(of(&[says("Pause"), says("DeletePods")]), OnReversal::DeletePods);
}

#[test]
fn in_a_cycle_and_below_it_the_least_ceiling_of_all_its_queues_applies() {
    let queue = |parent: &str, ceiling: &str| RunaiQueue {
        parent: Some(parent.into()),
        ceiling: ceiling.parse().ok(),
        ..RunaiQueue::default()
    };
    let queues =
        [("a", queue("b", "3h")), ("b", queue("c", "1h")), ("c", queue("a", "")), ("leaf", queue("a", "2h"))];
    let tree: QueueTree = queues.into_iter().collect();
    for name in ["a", "b", "c", "leaf"] {
        let limits = QueueLimits::of(&tree, &Floors::default(), tree.find(name).unwrap());
        assert_eq!((limits.ceiling, limits.lacks_parent), ("1h".parse().ok(), true), "{name}");
    }
}

#[test]
fn a_queue_of_t9k_has_a_ceiling_and_a_notice_of_its_own_and_no_more() {
    let spec = serde_json::from_value(json!({"maxDuration": "1h", "expiryNotice": "5s,1m"})).unwrap();
    let (ceiling, notice) = ("1h".parse().ok(), "1m,5s".parse::<NoticePoints>().ok());
    let nearest = NearestFields { notice, ..NearestFields::default() };
    let expected = QueueLimits { ceiling, nearest, ..QueueLimits::default() };
    let tree: QueueTree = [("a", RunaiQueue::read_t9k(&spec).0)].into_iter().collect();
    assert_eq!(QueueLimits::of(&tree, &Floors::default(), tree.find("a").unwrap()), expected);
}

fn any_queue() -> impl Strategy<Value = Value> {
    let duration = || proptest::option::of((1u32..50).prop_map(|seconds| format!("{seconds}s")));
    let action = proptest::option::of(proptest::sample::select(vec!["Pause", "Requeue"]));
    (duration(), duration(), duration(), action).prop_map(|(ceiling, preempt, reclaim, action)| {
        json!({
            "maxDuration": ceiling, "preemptMinRuntime": preempt, "reclaimMinRuntime": reclaim,
            "maxDurationAction": action,
        })
    })
}

/// The ceiling of the last queue of a row, looked up queue by queue.
fn naive_ceiling(floors: &Floors, row: &[Value]) -> Option<ExtendedDuration> {
    let tree = tree(row);
    let path = tree.path(tree.find(&format!("q{}", row.len() - 1))?);
    let (mut action, mut unstretched, mut applies) = (MaxDurationAction::default(), None, None);
    for id in path.into_iter().rev() {
        let (_, queue) = tree.get(id)?;
        let least = |one: Option<ExtendedDuration>, other| one.into_iter().chain(other).min();
        action = queue.nearest.action.unwrap_or(action);
        unstretched = least(unstretched, queue.ceiling);
        let slice = queue.ceiling.map(|own| own.max(floors.longest(&tree, Some(id))));
        applies = if action == MaxDurationAction::Pause { unstretched } else { least(applies, slice) };
    }
    applies
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_field_of_a_child_lengthens_what_applies_to_its_parent(
        row in proptest::collection::vec(any_queue(), 2..6), default in 0u32..50,
    ) {
        let floors = Floors { preempt: format!("{default}s").parse().unwrap(), ..Floors::default() };
        let ceiling = |row: &[Value]| limits(&floors, row).ceiling.map_or(i64::MAX, ExtendedDuration::as_nanos);
        prop_assert!(ceiling(&row) <= ceiling(&row[..row.len() - 1]));
    }

    #[test]
    fn a_ceiling_on_the_way_down_is_the_one_that_is_looked_up_queue_by_queue(
        row in proptest::collection::vec(any_queue(), 1..6),
        (preempt, reclaim, of_pool) in (0u32..50, 0u32..50, 0u32..50),
        of_leaf in proptest::bool::ANY,
    ) {
        let seconds = |seconds: u32| format!("{seconds}s").parse().unwrap();
        let pool = PartialFloors { preempt: None, reclaim: Some(seconds(of_pool)) };
        let method = if of_leaf { ReclaimResolveMethod::Queue } else { ReclaimResolveMethod::Lca };
        let floors = Floors {
            preempt: seconds(preempt), reclaim: seconds(reclaim), method,
            node_pools: [("a".to_owned(), pool)].into(), ..Floors::default()
        };
        prop_assert_eq!(limits(&floors, &row).ceiling, naive_ceiling(&floors, &row));
    }
}
