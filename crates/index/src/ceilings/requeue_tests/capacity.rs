//! `onCapacity: true`.

use super::*;

/// The first delay is a minute.
fn on_capacity(timestamp: &str) -> CeilingIndex {
    let strategy = json!({"timestamp": timestamp, "backoffBaseSeconds": 60, "onCapacity": true});
    let mut index = index(json!({"waitForPodsReady": {"timeout": "5m", "requeuingStrategy": strategy}}));
    queue(&mut index, "other", json!({}));
    index
}

/// Jobs that wait for a long time, and were paused at these.
fn waiting_since<const N: usize>(index: &mut CeilingIndex, jobs: [(&str, i64); N]) {
    for (name, paused_at) in jobs {
        paused(index, name, at(paused_at), Some(at(9_000)), &json!({"group": "scheduling.run.ai"}));
    }
}

/// A pod as it ends.
fn ended(uid: &str, job: &str, phase: &str) -> projection::Pod {
    let mut pod = pod(uid, job, Is::Ready);
    pod.status.phase = Some(phase.into());
    pod
}

fn runs_and_ends(index: &mut CeilingIndex, job: &str) {
    index.apply_pod(&pod(&format!("{job}-pod"), job, Is::Ready));
    index.apply_pod(&ended(&format!("{job}-pod"), job, "Succeeded"));
}

#[test]
fn as_many_come_back_early_in_order_as_workloads_of_their_queue_have_left() {
    for (timestamp, expected) in [("Eviction", ["b", "c", "a"]), ("Creation", ["a", "b", "c"])] {
        let mut index = on_capacity(timestamp);
        for (name, paused_at, created) in [("a", 30, 1), ("b", 10, 2), ("c", 20, 3)] {
            paused(&mut index, name, at(paused_at), Some(at(9_000)), &json!({"created": created}));
        }
        assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
        runs_and_ends(&mut index, "one");
        assert_eq!(returned(&mut index, at(1_000)), expected[..1], "{timestamp}");
        resumed(&mut index, expected[0]);
        runs_and_ends(&mut index, "two");
        runs_and_ends(&mut index, "three");
        assert_eq!(returned(&mut index, at(1_000)), expected[1..], "{timestamp}");
    }
}

#[test]
fn none_comes_back_earlier_than_after_the_first_delay_and_with_none_that_left() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 100)]);
    assert_eq!(returned(&mut index, at(5_000)), [""; 0]);
    runs_and_ends(&mut index, "one");
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(160)));
    assert_eq!(returned(&mut index, at(159)), [""; 0]);
    assert_eq!(returned(&mut index, at(160)), ["a"]);
    let mut late = on_capacity("Eviction");
    paused(&mut late, "a", at(100), Some(at(130)), &json!({}));
    runs_and_ends(&mut late, "one");
    assert_eq!(late.next_return(Timestamp::MIN), Some(at(130)), "its own time comes first");
}

#[test]
fn the_last_return_before_the_limit_keeps_its_time() {
    for (limit, expected) in [(1, 9_000), (2, 60)] {
        let strategy = json!({"backoffBaseSeconds": 60, "onCapacity": true, "backoffLimitCount": limit});
        let mut index = index(json!({"waitForPodsReady": {"requeuingStrategy": strategy}}));
        waiting_since(&mut index, [("a", 0)]);
        runs_and_ends(&mut index, "one");
        assert_eq!(index.next_return(Timestamp::MIN), Some(at(expected)), "{limit}");
    }
}

#[test]
fn a_workload_is_called_when_the_last_pod_of_another_goes_and_not_before() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0)]);
    gang_of_two(&mut index);
    index.apply_pod(&pod("one", "job", Is::Ready));
    index.apply_pod(&pod("two", "job", Is::Ready));
    index.apply_pod(&ended("one", "job", "Succeeded"));
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
    let mut going = pod("two", "job", Is::Ready);
    going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
    index.apply_pod(&going);
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(60)));
}

/// A ready pod of a Job, in a group.
fn in_group(uid: &str, job: &str, group: &str) -> projection::Pod {
    let mut pod = pod(uid, job, Is::Ready);
    pod.metadata.annotations.get_or_insert_default().insert("pod-group-name".into(), group.into());
    pod
}

/// The same pod as it ends.
fn leaves(index: &mut CeilingIndex, mut pod: projection::Pod) {
    pod.status.phase = Some("Succeeded".into());
    index.apply_pod(&pod);
}

#[test]
fn a_workload_whose_pods_have_a_group_each_leaves_once_and_with_its_last_pod() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0), ("b", 1)]);
    let [one, two] = ["one", "two"].map(|uid| in_group(uid, "job", uid));
    for pod in [&one, &two] {
        group(&mut index, &pod.metadata.name.clone().unwrap(), 1);
        index.apply_pod(pod);
    }
    leaves(&mut index, one);
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)), "its other pod runs on");
    leaves(&mut index, two);
    assert_eq!(returned(&mut index, at(1_000)), ["a"]);
}

#[test]
fn workloads_that_share_a_group_leave_one_by_one() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0), ("b", 1)]);
    group(&mut index, "shared", 1);
    let [one, two] = [("one", "job"), ("two", "other")].map(|(uid, job)| in_group(uid, job, "shared"));
    index.apply_pod(&one);
    index.apply_pod(&two);
    leaves(&mut index, one);
    assert_eq!(returned(&mut index, at(1_000)), ["a"]);
    leaves(&mut index, two);
    assert_eq!(returned(&mut index, at(1_000)), ["a", "b"]);
}

#[test]
fn pods_of_a_group_that_have_no_owner_leave_as_one() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0), ("b", 1)]);
    group(&mut index, "g", 1);
    let [one, two] = ["one", "two"].map(|uid| {
        let mut pod = in_group(uid, "", "g");
        pod.metadata.owner_references = None;
        pod
    });
    index.apply_pod(&one);
    index.apply_pod(&two);
    leaves(&mut index, one);
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
    leaves(&mut index, two);
    assert_eq!(returned(&mut index, at(1_000)), ["a"]);
}

#[test]
fn a_pod_that_runs_on_under_another_owner_or_none_leaves_no_room() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0), ("b", 1)]);
    let mut orphan = pod("one", "job", Is::Ready);
    orphan.metadata.owner_references = None;
    for changed in [pod("one", "job", Is::Ready), pod("one", "other", Is::Ready), orphan.clone()] {
        index.apply_pod(&changed);
    }
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
    leaves(&mut index, orphan);
    assert_eq!(returned(&mut index, at(1_000)), ["a"]);
}

#[test]
fn a_pod_of_a_daemon_set_is_no_workload_that_leaves_room() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0)]);
    let mut pod = pod("one", "daemons", Is::Ready);
    for owner in pod.metadata.owner_references.iter_mut().flatten() {
        (owner.api_version, owner.kind) = ("apps/v1".into(), "DaemonSet".into());
    }
    index.apply_pod(&pod);
    leaves(&mut index, pod);
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
}

#[test]
fn who_was_evicted_for_its_pods_leaves_no_room_that_another_is_called_for() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0), ("evicted", 50)]);
    runs_and_ends(&mut index, "evicted");
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)), "neither itself nor another");
    // nor does it before its pause is seen
    index.apply_pod(&pod("unready", "job", Is::Scheduled(0)));
    index.next_due_after(Timestamp::MIN);
    index.apply_pod(&ended("unready", "job", "Succeeded"));
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
    // the end of a time slice does
    paused(&mut index, "slice", at(50), None, &json!({"reason": "MaxDurationExceeded"}));
    runs_and_ends(&mut index, "slice");
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(60)));
}

#[test]
fn room_that_is_taken_again_or_in_another_queue_brings_no_workload_back() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("a", 0)]);
    let mut elsewhere = |phase: Option<&str>| {
        let mut pod = pod("elsewhere", "job", Is::Ready);
        pod.metadata.labels.get_or_insert_default().insert("kai.scheduler/queue".into(), "other".into());
        pod.status.phase = phase.map(str::to_owned);
        index.apply_pod(&pod);
    };
    elsewhere(None);
    elsewhere(Some("Succeeded"));
    index.apply_pod(&pod("failed", "job", Is::Ready));
    index.apply_pod(&ended("failed", "job", "Failed"));
    index.apply_pod(&pod("waits", "job", Is::Waiting));
    index.apply_pod(&ended("waits", "job", "Succeeded"));
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)), "elsewhere, replaced, or never taken");
    // another pod comes in place of the one that was deleted
    runs_and_ends(&mut index, "rollout");
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(60)));
    index.apply_pod(&younger(30, "its next", "rollout", Is::Waiting));
    assert_eq!(returned(&mut index, at(60)), [""; 0]);
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
}

#[test]
fn who_is_due_by_its_own_time_is_called_for_no_room() {
    let mut index = on_capacity("Eviction");
    waiting_since(&mut index, [("later", 100)]);
    paused(&mut index, "due", at(0), Some(at(200)), &json!({}));
    assert_eq!(returned(&mut index, at(200)), ["due"]);
    runs_and_ends(&mut index, "one");
    assert_eq!(returned(&mut index, at(200)), ["due", "later"]);
}

#[test]
fn slices_deactivated_workloads_and_queues_that_do_not_ask_for_it_keep_their_time() {
    let mut index = on_capacity("Eviction");
    paused(&mut index, "slice", at(0), Some(at(9_000)), &json!({"reason": "MaxDurationExceeded"}));
    paused(&mut index, "given-up", at(0), None, &json!({"reason": "WorkloadInactive"}));
    runs_and_ends(&mut index, "one");
    assert_eq!(returned(&mut index, at(8_999)), ["given-up"], "which is activated");
    let mut index = super::index(waiting("5m"));
    waiting_since(&mut index, [("a", 0)]);
    runs_and_ends(&mut index, "one");
    assert_eq!(index.next_return(Timestamp::MIN), Some(at(9_000)));
}
