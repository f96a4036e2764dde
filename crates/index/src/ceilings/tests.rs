use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection,
    runai::v3alpha1,
    tensorstack::v1beta1,
};

use super::{CeilingIndex, CeilingOptions};
use tenure_policy::{
    expiry::Family,
    kueue::{KueueQueue, KueueQueues},
    notice::NoticePoints,
    owner_table::{OnExpiry, OwnerTable, PauseRule},
};

use crate::{ActionOutcome, BatchCoverage, DueBatch, Task, TaskSet, Uid};

const THRESHOLD: i32 = 2_000_000_000;

fn index() -> CeilingIndex {
    CeilingIndex::new(CeilingOptions::default())
}

/// `seconds` after the time at which all pods of these tests are created.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A pod of queue `demo` of the tensorstack family, with what `change` says.
fn pod(uid: &str, change: &Value) -> projection::Pod {
    let mut pod = json!({
        "metadata": {
            "name": format!("pod-{uid}"), "namespace": "ns", "uid": uid, "creationTimestamp": at(0),
            "labels": {"scheduler.tensorstack.dev/queue": "demo"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}
            ],
        },
        "spec": {}, "status": {},
    });
    json_merge(&mut pod, change);
    serde_json::from_value(pod).unwrap()
}

fn json_merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                json_merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn tensorstack(index: &mut CeilingIndex, ceiling: &str) {
    index.apply_queue(
        "demo",
        &v1beta1::QueueSpec { max_duration: Some(ceiling.into()), ..Default::default() },
    );
}

fn runai(index: &mut CeilingIndex, name: &str, parent: &str, ceiling: &str) {
    let spec = json!({"parentQueue": parent, "maxDuration": ceiling});
    index.apply_queue(name, &serde_json::from_value::<v3alpha1::QueueSpec>(spec).unwrap());
}

/// The pods of each batch that is due.
fn batches(index: &mut CeilingIndex, now: Timestamp) -> Vec<Vec<Uid>> {
    let all = index.batches(now).into_iter();
    all.map(|batch| batch.pods().map(|pod| pod.uid).collect()).collect()
}

#[test]
fn a_pod_is_due_after_its_ceiling_and_not_at_it() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(index.next_batch(at(10)), None);
    let due = index.next_batch(at(11)).unwrap().first;
    assert_eq!((due.namespace.as_str(), due.name.as_str(), due.queue.as_str()), ("ns", "pod-a", "demo"));
    assert_eq!(due.deadline, at(10));
}

#[test]
fn the_next_time_is_when_there_is_something_to_claim() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
    index.apply_pod(&pod("a", &json!({})));
    let next = index.next_due_after(Timestamp::MIN).unwrap();
    assert!(index.next_batch(next).is_some());
}

#[test]
fn a_queue_may_come_after_its_pods() {
    let mut index = index();
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
    tensorstack(&mut index, "10s");
    assert!(index.next_batch(at(11)).is_some());
}

#[test]
fn a_change_of_the_queue_moves_the_deadlines_of_its_pods() {
    let mut index = index();
    tensorstack(&mut index, "1h");
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(index.next_batch(at(20)), None);
    tensorstack(&mut index, "10s");
    let group = index.next_batch(at(20)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(20));
    tensorstack(&mut index, "1h");
    assert_eq!(index.next_batch(at(100)), None);
    index.delete_queue(Family::Tensorstack, "demo");
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
}

#[test]
fn exempt_pods_are_never_due() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    for (uid, change) in [
        ("no-queue", json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": ""}}})),
        ("cluster", json!({"metadata": {"namespace": "kube-system"}})),
        ("important", json!({"spec": {"priority": THRESHOLD}})),
        ("terminating", json!({"metadata": {"deletionTimestamp": at(0)}})),
        ("finished", json!({"status": {"phase": "Succeeded"}})),
    ] {
        index.apply_pod(&pod(uid, &change));
        assert_eq!(index.next_due_after(Timestamp::MIN), None, "{uid}");
    }
}

#[test]
fn a_pod_past_its_ceiling_terminates_no_longer_than_is_allowed() {
    let terminating = |ends: i64, grace: i64| json!({"metadata": {"deletionTimestamp": at(ends), "deletionGracePeriodSeconds": grace}});
    let mut index = index();
    tensorstack(&mut index, "100s");
    let of = |index: &mut CeilingIndex, now, longest| {
        let longest = SignedDuration::from_secs(longest);
        let overlong = index.overlong(at(now), longest);
        let alone = index.overlong_pod(Uid::of("a"), at(now), longest);
        assert_eq!(alone.as_ref(), overlong.first(), "the same pod by its uid");
        overlong
            .into_iter()
            .map(|of| (of.facts.left.as_secs(), of.facts.allowed.as_secs()))
            .collect::<Vec<_>>()
    };
    // deleted at 40, before its ceiling, for a thousand seconds
    index.apply_pod(&pod("a", &terminating(1_040, 1_000)));
    assert_eq!(of(&mut index, 100, 60), [], "not before its ceiling");
    assert_eq!(of(&mut index, 110, 60), [(930, 50)]);
    assert_eq!(of(&mut index, 500, 60), [(540, 1)], "never by force");
    assert_eq!(of(&mut index, 110, 2_000), []);
    // deleted at 120, after its ceiling
    index.apply_pod(&pod("a", &terminating(1_120, 1_000)));
    assert_eq!(of(&mut index, 130, 60), [(990, 50)]);
    index.apply_pod(&pod("a", &terminating(180, 50)));
    assert_eq!(of(&mut index, 131, 60), [], "it was shortened");
    // more seconds than 64 bits of nanoseconds hold, and more than a time can be: its deletion shows a time long ago
    for grace in [18_446_744_078, 36_028_797_018_960_368] {
        index.apply_pod(&pod("a", &terminating(125, grace)));
        let overlong = of(&mut index, 110, 60);
        assert!(matches!(overlong[..], [(1_000_000.., 50)]), "{overlong:?}");
        assert_eq!(index.counts(at(130), at(130)).past_end, 0);
    }
    index.apply_pod(&pod("a", &terminating(180, 50)));
    assert_eq!((index.counts(at(180), at(180)).past_end, index.counts(at(181), at(181)).past_end), (0, 1));
    let mut exempt = terminating(1_120, 1_000);
    exempt["spec"] = json!({"priority": THRESHOLD});
    index.apply_pod(&pod("b", &exempt));
    let mut unqueued = terminating(1_120, 1_000);
    unqueued["metadata"]["labels"] = json!(null);
    index.apply_pod(&pod("c", &unqueued));
    assert_eq!(of(&mut index, 200, 60), []);
    index.delete_pod(Uid::of("a"));
    assert_eq!(index.counts(at(200), at(200)).past_end, 0);
}

#[test]
fn what_a_pod_says_of_its_owner_is_judged_when_it_is_due_and_again_when_it_says_another() {
    let owned_by = |kind: &str, uid: &str| {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": uid, "controller": true}]);
        json!({"metadata": {"ownerReferences": owner}})
    };
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &owned_by("DaemonSet", "d")));
    let group = index.next_batch(at(20)).unwrap();
    index.record_outcome(&group, BatchCoverage::First, ActionOutcome::Final, at(20));
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
    index.apply_pod(&pod("a", &owned_by("DaemonSet", "d")));
    assert_eq!(index.next_due_after(Timestamp::MIN), None, "the same owner");
    for (kind, uid) in [("Thing", "d"), ("ReplicaSet", "r")] {
        index.apply_pod(&pod("a", &owned_by(kind, uid)));
        let group = index.next_batch(at(21)).expect("it has another owner");
        index.record_outcome(&group, BatchCoverage::First, ActionOutcome::Final, at(21));
    }
}

/// The garbage collector can't look all owners of such a pod up, and keeps the pod without its `DaemonSet`.
#[test]
fn a_pod_that_loses_its_claim_to_an_exemption_is_judged_again() {
    let owner = |version: &str, name: &str| json!({"apiVersion": version, "kind": "DaemonSet", "name": name, "uid": "d", "controller": true});
    let owned_by = |owners: &Value| pod("a", &json!({"metadata": {"ownerReferences": owners}}));
    let other = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "t"});
    let real = || owner("apps/v1", "d");
    for owners in
        [json!([owner("apps/v9", "d")]), json!([owner("apps/v1", "no/name")]), json!([real(), other])]
    {
        let mut index = index();
        tensorstack(&mut index, "10s");
        index.apply_pod(&owned_by(&json!([real()])));
        let group = index.next_batch(at(20)).unwrap();
        index.record_outcome(&group, BatchCoverage::First, ActionOutcome::Final, at(20));
        index.apply_pod(&owned_by(&owners));
        assert!(index.next_batch(at(21)).is_some(), "{owners}");
    }
}

#[test]
fn a_pod_that_ends_is_no_longer_due() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    index.apply_pod(&pod("a", &json!({"metadata": {"deletionTimestamp": at(5)}})));
    assert_eq!((index.next_due_after(Timestamp::MIN), index.counts(at(0), at(0)).pods), (None, 0));
}

#[test]
fn a_pod_that_leaves_its_queue_is_no_longer_due() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    index.apply_pod(&pod("a", &json!({"metadata": {"labels": null}})));
    assert_eq!((index.next_due_after(Timestamp::MIN), index.counts(at(0), at(0)).pods), (None, 0));
}

#[test]
fn runai_pods_run_by_their_start_and_the_least_ceiling_of_the_tree() {
    let mut index = index();
    runai(&mut index, "root", "", "30s");
    runai(&mut index, "leaf", "root", "1h");
    let labels = json!({"scheduler.tensorstack.dev/queue": "", "kai.scheduler/queue": "leaf"});
    index.apply_pod(&pod("a", &json!({"metadata": {"labels": labels}})));
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
    let scheduled = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(100)}]);
    let started = json!({"metadata": {"labels": labels}, "status": {"conditions": scheduled}});
    index.apply_pod(&pod("a", &started));
    assert_eq!(index.next_batch(at(130)), None);
    assert_eq!(index.next_batch(at(131)).unwrap().first.queue, "leaf");
}

#[test]
fn pods_of_one_controller_are_due_together_the_most_overdue_first() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    let other =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": true}]);
    index.apply_pod(&pod("late", &json!({"metadata": {"creationTimestamp": at(1)}})));
    index.apply_pod(&pod("first", &json!({"metadata": {"creationTimestamp": at(-5)}})));
    index.apply_pod(&pod("other", &json!({"metadata": {"ownerReferences": other}})));
    index.apply_pod(&pod("young", &json!({"metadata": {"creationTimestamp": at(60)}})));
    let expected = [vec![Uid::of("first"), Uid::of("late")], vec![Uid::of("other")]];
    assert_eq!(batches(&mut index, at(20)), expected);
}

#[test]
fn bare_pods_are_due_one_by_one() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    for uid in ["a", "b"] {
        index.apply_pod(&pod(uid, &json!({"metadata": {"ownerReferences": null}})));
    }
    assert_eq!(batches(&mut index, at(20)).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn what_did_not_help_is_due_again_ever_later() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    let mut now = 11;
    for wait in [5, 10, 20, 40, 40] {
        let group = index.next_batch(at(now)).unwrap();
        index.apply_pod(&pod("a", &json!({})));
        assert_eq!(index.next_batch(at(now)).as_ref(), Some(&group), "until the result is known");
        assert_eq!(group.first.deadline, at(10), "a retry doesn't hide how late it is");
        index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(now));
        assert_eq!(index.next_batch(at(now + wait)), None);
        now += wait + 1;
    }
}

#[test]
fn what_a_list_no_longer_has_is_forgotten() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    index.apply_pod(&pod("b", &json!({})));
    index.retain_pods(&HashSet::from([Uid::of("b")]));
    assert_eq!((index.counts(at(0), at(0)).pods, index.counts(at(0), at(0)).under_ceiling), (1, 1));
    index.delete_pod(Uid::of("b"));
    assert_eq!((index.counts(at(0), at(0)).pods, index.counts(at(0), at(0)).under_ceiling), (0, 0));
}

#[test]
fn live_pods_that_are_exempt_by_priority_are_known_by_namespace_those_of_an_owner_first() {
    let mut index = index();
    let important = json!({"spec": {"priority": THRESHOLD}, "metadata": {"labels": null}});
    index.apply_pod(&pod("a", &important));
    let mut other = important.clone();
    other["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job-uid", "controller": true}]);
    index.apply_pod(&pod("b", &other));
    assert_eq!(index.exempt_pods("ns", Uid::of("job-uid")), ["pod-b", "pod-a"]);
    assert_eq!(index.exempt_pods("ns", Uid::of("rs")), ["pod-a", "pod-b"]);
    assert!(index.exempt_pods("other", Uid::of("rs-uid")).is_empty());
    index.delete_pod(Uid::of("a"));
    index.delete_pod(Uid::of("b"));
    assert!(index.exempt_pods("ns", Uid::of("rs-uid")).is_empty());
}

#[test]
fn pods_of_one_controller_are_due_again_at_once_and_by_themselves_if_only_the_first_was_served() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("first", &json!({"metadata": {"creationTimestamp": at(-5)}})));
    index.apply_pod(&pod("second", &json!({"metadata": {"creationTimestamp": at(-4)}})));
    index.apply_pod(&pod("third", &json!({"metadata": {"creationTimestamp": at(-3)}})));
    let group = index.next_batch(at(20)).unwrap();
    assert_eq!(group.pods().count(), 3);
    index.record_outcome(&group, BatchCoverage::First, ActionOutcome::Acted, at(20));
    assert_eq!(batches(&mut index, at(20)), [[Uid::of("second")], [Uid::of("third")]]);
}

#[test]
fn the_same_controller_in_another_namespace_is_another() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    index.apply_pod(&pod("b", &json!({"metadata": {"namespace": "other"}})));
    assert_eq!(batches(&mut index, at(20)).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

fn with_notice(ceiling: &str, notice: &str) -> CeilingIndex {
    let mut index = index();
    set_notice(&mut index, ceiling, notice);
    index
}

fn set_notice(index: &mut CeilingIndex, ceiling: &str, notice: &str) {
    let (max_duration, expiry_notice) = (Some(ceiling.into()), Some(notice.into()));
    index.apply_queue("demo", &v1beta1::QueueSpec { max_duration, expiry_notice, ..Default::default() });
}

#[test]
fn a_workload_has_one_notice_before_its_end() {
    let mut index = with_notice("60s", "20s");
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(index.next_batch(at(40)), None);
    let group = index.next_batch(at(41)).unwrap();
    assert_eq!((group.task, group.first.deadline, group.first.since), (Task::Announce, at(60), at(40)));
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(41));
    assert_eq!(index.next_batch(at(60)), None);
    assert_eq!(index.next_batch(at(61)).unwrap().task, Task::Expire);
}

#[test]
fn a_notice_that_failed_is_given_after_a_while_and_the_run_expires_on_time() {
    let mut index = with_notice("60s", "20s");
    index.apply_pod(&pod("a", &json!({})));
    let group = index.next_batch(at(41)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Failed, at(55));
    assert_eq!(index.next_batch(at(60)), None);
    assert_eq!(index.next_batch(at(61)).unwrap().task, Task::Expire);
}

#[test]
fn a_changed_or_withdrawn_end_is_announced_at_once() {
    let mut index = with_notice("60s", "20s");
    index.apply_pod(&pod("a", &json!({})));
    let group = index.next_batch(at(41)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(41));
    set_notice(&mut index, "5m", "20s");
    let group = index.next_batch(at(42)).unwrap();
    assert_eq!(
        (group.task, group.first.deadline, group.first.announced_end),
        (Task::Announce, at(300), Some(at(60)))
    );
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(42));
    assert_eq!(index.next_batch(at(280)), None);
    let group = index.next_batch(at(281)).unwrap();
    assert_eq!((group.task, group.first.since), (Task::Announce, at(280)), "the point lies ahead again");
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(281));
    assert_eq!(index.next_batch(at(299)), None);
    index.delete_queue(Family::Tensorstack, "demo");
    let group = index.next_batch(at(299)).unwrap();
    assert_eq!((group.task, group.first.announced_end), (Task::Withdraw, Some(at(300))));
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(299));
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
}

#[test]
fn each_point_is_announced_once_and_those_that_have_passed_together_as_one() {
    let mut index = with_notice("60s", "20s,50s,5s,10s");
    index.apply_pod(&pod("a", &json!({})));
    for (since, announced_at) in [(10, 11), (40, 52)] {
        assert_eq!(index.next_batch(at(since)), None);
        let group = index.next_batch(at(announced_at)).unwrap();
        assert_eq!((group.task, group.first.since), (Task::Announce, at(since)));
        // points whose time comes before its outcome is recorded are still to be announced
        index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(announced_at + 4));
    }
    let group = index.next_batch(at(56)).unwrap();
    assert_eq!((group.task, group.first.since), (Task::Announce, at(55)));
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(56));
    assert_eq!(index.next_batch(at(60)), None);
}

#[test]
fn a_point_that_could_not_be_announced_is_announced_with_the_next() {
    let mut index = with_notice("60s", "20s,5s");
    index.apply_pod(&pod("a", &json!({})));
    let group = index.next_batch(at(41)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Failed, at(47));
    assert_eq!(index.next_batch(at(57)), None);
    let group = index.next_batch(at(58)).unwrap();
    assert_eq!(group.first.since, at(57));
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(58));
    assert_eq!(index.next_batch(at(60)), None);
}

#[test]
fn the_configured_notice_is_for_queues_that_do_not_say() {
    let mut index =
        CeilingIndex::new(CeilingOptions { notice: "30s".parse().unwrap(), ..CeilingOptions::default() });
    tensorstack(&mut index, "60s");
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(index.next_batch(at(31)).unwrap().task, Task::Announce);
    index.forget_notices();
    set_notice(&mut index, "60s", "0s");
    assert_eq!(index.next_batch(at(60)), None);
}

#[test]
fn another_configured_notice_holds_from_now_on_and_loses_nothing() {
    let mut index = index();
    tensorstack(&mut index, "60s");
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(
        index.next_due_after(Timestamp::MIN),
        index.next_expiry().map(|at| at + SignedDuration::from_millis(1))
    );
    index.configure(CeilingOptions {
        table: OwnerTable::default(),
        notice: "30s".parse().unwrap(),
        ..CeilingOptions::default()
    });
    let group = index.next_batch(at(31)).unwrap();
    assert_eq!((group.task, group.first.since), (Task::Announce, at(30)));
    index.configure(CeilingOptions {
        table: OwnerTable::default(),
        notice: "40s".parse().unwrap(),
        ..CeilingOptions::default()
    });
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(31));
    index.configure(CeilingOptions {
        table: OwnerTable::default(),
        notice: NoticePoints::default(),
        ..CeilingOptions::default()
    });
    assert_eq!(index.next_batch(at(60)), None, "who was told isn't told again");
    assert_eq!(index.next_batch(at(61)).unwrap().task, Task::Expire);
}

#[test]
fn another_table_changes_whose_own_ceilings_count() {
    let mut index = index();
    tensorstack(&mut index, "60s");
    let above = json!([{"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "r", "uid": "r", "controller": true}]);
    let set = json!({"uid": "rs", "namespace": "ns", "ownerReferences": above});
    let rollout = json!({"uid": "r", "namespace": "ns", "annotations": {"tenure.dev/max-duration": "40s"}});
    for owner in [set, rollout] {
        index.apply_owner(0, &serde_json::from_value(owner).unwrap());
    }
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(index.next_expiry(), Some(at(60)));
    let rule = PauseRule {
        group: "argoproj.io".into(),
        kind: "Rollout".into(),
        field: "spec.replicas".into(),
        value: json!(0),
        command: None,
        decides_activation: false,
        on_reversal: None,
        on_expiry: OnExpiry::Pause,
    };
    index.configure(CeilingOptions {
        table: OwnerTable::default().with(vec![rule]),
        notice: NoticePoints::default(),
        ..CeilingOptions::default()
    });
    assert_eq!(index.next_expiry(), Some(at(40)));
    index.configure(CeilingOptions {
        table: OwnerTable::default(),
        notice: NoticePoints::default(),
        ..CeilingOptions::default()
    });
    assert_eq!(index.next_expiry(), Some(at(60)));
}

#[test]
fn a_pod_groups_queue_counts_and_not_the_label() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    let grouped = json!({"metadata": {"labels": {"scheduler.tensorstack.dev/group-name": "g"}}});
    index.apply_pod(&pod("a", &grouped));
    assert!(
        index.next_due_after(Timestamp::MIN).is_some(),
        "as long as there is no such group the label counts"
    );
    let group = |queue: Value| {
        let group = json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": queue}});
        serde_json::from_value::<PodGroup>(group).unwrap()
    };
    index.apply_group(PodGroupKind::Tensorstack, &group(json!("other")));
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
    index.apply_group(PodGroupKind::Tensorstack, &group(json!("demo")));
    assert!(index.next_due_after(Timestamp::MIN).is_some());
    index.apply_group(PodGroupKind::Tensorstack, &group(Value::Null));
    assert_eq!(index.next_due_after(Timestamp::MIN), None, "a group that names none is in queue default");
    index.apply_group(PodGroupKind::Runai, &group(json!("demo")));
    index.delete_group(PodGroupKind::Tensorstack, "ns", "g");
    assert!(index.next_due_after(Timestamp::MIN).is_some());
}

#[test]
fn the_least_of_all_own_ceilings_and_the_queues_counts() {
    let mut index = index();
    tensorstack(&mut index, "60s");
    let own = |text: &str| json!({"metadata": {"annotations": {"tenure.dev/max-duration": text}}});
    let expires = |index: &mut CeilingIndex| index.next_expiry().unwrap();
    index.apply_pod(&pod("a", &own("2m")));
    assert_eq!(expires(&mut index), at(60), "it never lengthens");
    index.apply_pod(&pod("a", &own("soon")));
    assert_eq!(expires(&mut index), at(60), "what can't be read has no effect");
    index.apply_pod(&pod("a", &own("50s")));
    assert_eq!(expires(&mut index), at(50));
    let set = json!({"uid": "rs", "annotations": {"tenure.dev/max-duration": "40s"}});
    index.apply_owner(0, &serde_json::from_value(set).unwrap());
    assert_eq!(expires(&mut index), at(40));
    index.delete_owner(Uid::of("rs"));
    assert_eq!(expires(&mut index), at(50));
    index.apply_pod(&pod(
        "free",
        &json!({"metadata": {"labels": null, "annotations": {"tenure.dev/max-duration": "1s"}}}),
    ));
    assert_eq!(index.counts(at(0), at(0)).pods, 1, "a pod in no queue isn't managed");
}

#[test]
fn nothing_more_is_done_about_what_is_decided_for_good() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    let group = index.next_batch(at(11)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Final, at(11));
    index.apply_pod(&pod("a", &json!({})));
    assert_eq!(index.next_batch(at(1_000_000)), None);
}

/// A pod with an act in flight that leaves its queue, and comes back to a queue with a longer ceiling.
fn relabelled(index: &mut CeilingIndex) -> DueBatch {
    tensorstack(index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    let group = index.next_batch(at(11)).unwrap();
    index.apply_pod(&pod("a", &json!({"metadata": {"labels": null}})));
    let hour = v1beta1::QueueSpec { max_duration: Some("1h".into()), ..Default::default() };
    index.apply_queue("longer", &hour);
    let labels = json!({"scheduler.tensorstack.dev/queue": "longer"});
    index.apply_pod(&pod("a", &json!({"metadata": {"labels": labels}})));
    group
}

#[test]
fn nothing_is_left_of_a_relabelled_pod_that_is_gone_and_others_are_due() {
    let mut index = index();
    let group = relabelled(&mut index);
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(12));
    index.delete_pod(Uid::of("a"));
    assert_eq!((index.next_due_after(Timestamp::MIN), index.next_batch(Timestamp::MAX)), (None, None));
    index.apply_pod(&pod("b", &json!({})));
    assert_eq!(batches(&mut index, at(20)), [[Uid::of("b")]]);
}

#[test]
fn failed_tries_are_repeated_ever_later_and_do_not_count_as_tries_in_vain() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("a", &json!({})));
    let mut now = at(11);
    for wait in [5, 10, 20] {
        let group = index.next_batch(now).unwrap();
        assert_eq!(group.first.attempts, 0);
        index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Failed, now);
        let next = index.next_due_after(Timestamp::MIN).unwrap();
        assert_eq!(next.duration_since(now).as_secs(), wait);
        now = next;
    }
    let group = index.next_batch(now).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, now);
    assert_eq!(index.next_batch(at(200)).unwrap().first.attempts, 1);
}

/// A pod with a ceiling of ten seconds, which runs on after some tries to end it. The next try is at 16.
fn tried_in_vain() -> CeilingIndex {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.know_queues();
    index.apply_pod(&pod("a", &json!({})));
    try_in_vain(&mut index, 11, ActionOutcome::Acted);
    index
}

/// Tries to end the run, and returns the number of tries before.
fn try_in_vain(index: &mut CeilingIndex, now: i64, outcome: ActionOutcome) -> u8 {
    let group = index.next_batch(at(now)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, outcome, at(now));
    group.first.attempts
}

#[test]
fn a_run_that_is_given_more_time_gets_all_tries_again_at_its_new_end() {
    for (ceiling, expected) in [("10s", 1), ("9s", 1), ("16s", 1), ("17s", 0), ("10m", 0)] {
        let mut index = tried_in_vain();
        tensorstack(&mut index, ceiling);
        assert_eq!(try_in_vain(&mut index, 700, ActionOutcome::Acted), expected, "{ceiling}");
    }
}

#[test]
fn a_try_that_ends_after_the_end_has_moved_does_not_count_at_the_new_end() {
    let mut index = tried_in_vain();
    let group = index.next_batch(at(17)).unwrap();
    tensorstack(&mut index, "10m");
    assert_eq!(index.next_batch(at(17)), None);
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(18));
    assert_eq!(try_in_vain(&mut index, 601, ActionOutcome::Acted), 0);
}

#[test]
fn a_run_whose_end_moves_to_and_fro_has_all_tries_behind_it_soon_after_its_last_end() {
    let mut index = tried_in_vain();
    let mut tries = 0;
    for now in 12..600 {
        tensorstack(&mut index, if now % 2 == 0 { "10s" } else { "5m" });
        if index.next_batch(at(now)).is_some() {
            tries = try_in_vain(&mut index, now, ActionOutcome::Acted);
        }
    }
    assert_eq!(tries, 9, "within five minutes of the last end");
}

#[test]
fn a_queue_that_is_missing_for_a_moment_forgets_no_try() {
    let mut index = tried_in_vain();
    index.change_queues(at(12), |index| index.delete_queue(Family::Tensorstack, "demo"));
    assert_eq!(index.next_batch(at(20)), None);
    index.change_queues(at(21), |index| tensorstack(index, "10s"));
    assert_eq!(try_in_vain(&mut index, 22, ActionOutcome::Acted), 1);
}

#[test]
fn a_pod_that_changes_its_controller_after_a_final_outcome_keeps_its_tries() {
    let mut index = tried_in_vain();
    assert_eq!(try_in_vain(&mut index, 17, ActionOutcome::Final), 1);
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    index.apply_pod(&pod("a", &json!({"metadata": {"ownerReferences": owner}})));
    assert_eq!(try_in_vain(&mut index, 18, ActionOutcome::Acted), 1);
}

#[test]
fn an_owner_that_goes_takes_its_ceiling_from_its_own_pods_only() {
    let mut index = index();
    tensorstack(&mut index, "1h");
    for owner in ["rs", "other"] {
        let metadata = json!({
            "uid": owner, "name": owner, "namespace": "ns", "annotations": {"tenure.dev/max-duration": "10s"},
        });
        index.apply_owner(1, &serde_json::from_value(metadata).unwrap());
    }
    let below = |owner: &str| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true}]);
    for (uid, owner) in [("a", "rs"), ("b", "other")] {
        index.apply_pod(&pod(uid, &json!({"metadata": {"ownerReferences": below(owner)}})));
    }
    assert_eq!(index.next_expiry(), Some(at(10)));
    index.delete_owner(Uid::of("rs"));
    assert_eq!(index.first_end("ns", Uid::of("rs")), Some(at(3_600)));
    assert_eq!(index.first_end("ns", Uid::of("other")), Some(at(10)));
    index.retain_owners(1, &HashSet::new());
    assert_eq!(index.next_expiry(), Some(at(3_600)));
}

#[test]
fn a_pod_that_is_not_kept_stands_as_it_would_if_it_were() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    let exempt = pod("a", &json!({"spec": {"priority": THRESHOLD}}));
    let standing = index.standing(&exempt).unwrap();
    assert_eq!(standing.queues[Family::Tensorstack].as_deref(), Some("demo"));
    assert_eq!(standing.queue(Family::Runai), None);
    assert_eq!(standing.expires, Some((at(10), Family::Tensorstack)));
    assert!(index.standing(&pod("b", &json!({"metadata": {"labels": null}}))).is_none());
    assert_eq!(index.counts(at(0), at(0)).pods, 0);
}

#[test]
fn pods_of_one_controller_stay_together_if_the_first_is_gone() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    for (uid, created) in [("first", -5), ("second", -4), ("third", -3)] {
        index.apply_pod(&pod(uid, &json!({"metadata": {"creationTimestamp": at(created)}})));
    }
    let group = index.next_batch(at(20)).unwrap();
    index.record_outcome(&group, BatchCoverage::Gone, ActionOutcome::Acted, at(20));
    assert_eq!(batches(&mut index, at(20)), [[Uid::of("second"), Uid::of("third")]]);
}

#[test]
fn only_what_was_announced_counts_as_announced() {
    let mut index = with_notice("60s", "20s");
    index.apply_pod(&pod("first", &json!({"metadata": {"creationTimestamp": at(-1)}})));
    index.apply_pod(&pod("second", &json!({})));
    let group = index.next_batch(at(50)).unwrap();
    assert_eq!(group.pods().count(), 2);
    index.record_outcome(&group, BatchCoverage::First, ActionOutcome::Acted, at(50));
    assert_eq!(batches(&mut index, at(50)), [[Uid::of("second")]]);
}

#[test]
fn siblings_are_due_once_each_when_the_run_of_the_first_has_ended_before_its_notice() {
    let mut index = with_notice("60s", "20s,5s");
    index.apply_pod(&pod("first", &json!({"metadata": {"creationTimestamp": at(-10)}})));
    index.apply_pod(&pod("second", &json!({})));
    let mut told = Vec::new();
    while told.len() < 9
        && let Some(work) = index.due(TaskSet::Notices, at(51)).pop()
    {
        let group = index.batch(TaskSet::Notices, &work.key, at(51)).unwrap();
        let due = group.due();
        told.push((group.first.name.clone(), due.first_deadline, due.last_deadline));
        index.record_outcome(&group, BatchCoverage::First, ActionOutcome::Acted, at(51));
    }
    assert_eq!(told, [("pod-first".into(), at(50), at(60)), ("pod-second".into(), at(60), at(60))]);
}

#[test]
fn what_did_not_help_comes_after_what_was_not_tried() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    index.apply_pod(&pod("old", &json!({"metadata": {"ownerReferences": null}})));
    let group = index.next_batch(at(11)).unwrap();
    index.record_outcome(&group, BatchCoverage::All, ActionOutcome::Acted, at(11));
    index
        .apply_pod(&pod("new", &json!({"metadata": {"ownerReferences": null, "creationTimestamp": at(90)}})));
    assert_eq!(batches(&mut index, at(200)), [[Uid::of("new")], [Uid::of("old")]]);
}

#[test]
fn an_own_ceiling_has_no_effect_in_a_queue_that_does_not_exist() {
    let mut index = index();
    index.apply_pod(&pod("a", &json!({"metadata": {"annotations": {"tenure.dev/max-duration": "5s"}}})));
    assert_eq!(index.next_due_after(Timestamp::MIN), None);
    tensorstack(&mut index, "10s");
    assert_eq!(index.next_expiry(), Some(at(5)));
}

#[test]
fn the_first_end_of_a_root_owner_is_that_of_its_oldest_pod() {
    let mut index = index();
    tensorstack(&mut index, "10s");
    let of = |name: &str| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true}]);
    for (uid, set, created) in [("a", "old", 3), ("b", "new", 5), ("c", "other", 1)] {
        let change = json!({"metadata": {"ownerReferences": of(set), "creationTimestamp": at(created)}});
        index.apply_pod(&pod(uid, &change));
    }
    for set in ["old", "new"] {
        let above = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}]);
        let metadata = json!({"uid": set, "namespace": "ns", "ownerReferences": above});
        index.apply_owner(0, &serde_json::from_value(metadata).unwrap());
    }
    assert_eq!(index.first_end("ns", Uid::of("d")), Some(at(13)));
    assert_eq!(index.first_end("ns", Uid::of("other")), Some(at(11)));
    assert_eq!(index.first_end("elsewhere", Uid::of("d")), None);
}

#[test]
fn a_pod_in_a_queue_of_kueues_has_the_ceiling_of_the_queue_that_it_stands_for() {
    let rows = vec![(KueueQueue::Cluster("gpu".into()), "leaf".to_owned())];
    let mut index = CeilingIndex::new(CeilingOptions::default());
    index.set_kueue_queues(KueueQueues(rows));
    runai(&mut index, "leaf", "", "1m");
    let labels = json!({"scheduler.tensorstack.dev/queue": "", "kueue.x-k8s.io/cluster-queue-name": "gpu"});
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(5)});
    let of_kueue = json!({"metadata": {"labels": labels}, "status": {"conditions": [scheduled]}});
    let of_kueue = pod("a", &of_kueue);
    index.apply_pod(&of_kueue);
    assert_eq!(index.next_expiry(), Some(at(65)));
    assert_eq!(index.standing(&of_kueue).unwrap().queues[Family::Runai].as_deref(), Some("leaf"));
    let workload = index.workload(&of_kueue).whole;
    assert_eq!(workload.place.name, Some("leaf"));
}
