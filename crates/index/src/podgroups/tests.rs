use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection,
    runai::v3alpha1::QueueSpec,
};

use super::Gangs;
use crate::{CeilingIndex, CeilingOptions, PendingStamp, StampForm, Uid};

const RUNAI: PodGroupKind = PodGroupKind::Runai;

/// Seconds after some time.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn second(at: Timestamp) -> i64 {
    at.as_second() - 1_800_000_000
}

/// A pod of group `g` of the run.ai family, in queue `demo`: when it was created, and when it was scheduled.
fn pod(uid: &str, created: i64, scheduled: Option<i64>) -> projection::Pod {
    pod_with(uid, created, scheduled, |_| {})
}

fn pod_with(
    uid: &str,
    created: i64,
    scheduled: Option<i64>,
    change: impl FnOnce(&mut Value),
) -> projection::Pod {
    let condition =
        |second| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(second)});
    let mut pod = json!({
        "metadata": {
            "name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": at(created),
            "labels": {"kai.scheduler/queue": "demo"}, "annotations": {"pod-group-name": "g"},
        },
        "status": {"conditions": scheduled.map(condition).into_iter().collect::<Vec<_>>()},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

/// Group `g` of some uid and version, with a stamp.
fn group(uid: &str, version: u32, stamp: Option<i64>, spec: &Value) -> PodGroup {
    let stamp = stamp.map(|second| json!({"kai.scheduler/last-start-timestamp": at(second)}));
    let metadata = json!({
        "name": "g", "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(), "annotations": stamp,
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn index(ceiling: &str) -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    index.apply_queue("demo", &serde_json::from_value::<QueueSpec>(json!({"maxDuration": ceiling})).unwrap());
    index
}

/// An index with group `g`, which takes `min_member` pods and has no stamp.
fn with_group(min_member: u32) -> CeilingIndex {
    let mut index = index("100s");
    index.apply_group(RUNAI, &group("u", 1, None, &json!({"minMember": min_member})));
    index
}

fn start(index: &mut CeilingIndex) -> Option<i64> {
    index.gangs().next().and_then(|gang| gang.start).map(second)
}

fn new_stamping(index: &mut CeilingIndex) -> Option<PendingStamp> {
    new_stamping_at(index, 10_000)
}

fn new_stamping_at(index: &mut CeilingIndex, now: i64) -> Option<PendingStamp> {
    index.new_stampings(at(now)).pop()
}

/// Has the new stamp written.
fn stamp(index: &mut CeilingIndex, version: u32) -> Option<i64> {
    let stamping = new_stamping(index)?;
    write(index, &stamping, version);
    Some(second(stamping.start))
}

fn write(index: &mut CeilingIndex, stamping: &PendingStamp, version: u32) {
    index.note_stamp(stamping, StampForm::Written(version.to_string()));
}

fn end(index: &mut CeilingIndex) -> Option<i64> {
    index.next_expiry().map(second)
}

#[test]
fn a_group_starts_with_the_last_pod_that_it_takes_and_growth_keeps_that() {
    let mut index = with_group(2);
    index.apply_pod(&pod("a", 0, Some(5)));
    index.apply_pod(&pod("b", 0, None));
    assert_eq!((start(&mut index), new_stamping(&mut index)), (None, None));
    index.apply_pod(&pod("b", 0, Some(9)));
    assert_eq!(stamp(&mut index, 2), Some(9));
    index.apply_pod(&pod("c", 50, Some(60)));
    assert_eq!((start(&mut index), new_stamping(&mut index)), (Some(9), None));
}

#[test]
fn members_are_read_for_a_start_only_if_enough_run_and_one_was_scheduled_before_the_known_start() {
    let mut index = with_group(3);
    for (uid, scheduled, expected) in [
        ("a", Some(5), 0),
        ("b", Some(9), 0),
        ("waits", None, 0),
        ("c", Some(7), 1),
        ("later", Some(20), 0),
        ("at the start", Some(9), 0),
        ("waits, too", None, 0),
        ("before the start", Some(6), 1),
    ] {
        index.apply_pod(&pod(uid, 0, scheduled));
        let unshown = index.objects.gangs.by_key.values().filter(|gang| gang.unshown().is_some());
        assert_eq!(unshown.count(), expected, "{uid}");
        start(&mut index);
    }
    assert_eq!(start(&mut index), Some(7));
    // a pod that leaves takes no start with it
    for uid in ["a", "before the start", "c"] {
        index.delete_pod(Uid::of(uid));
        assert_eq!(start(&mut index), Some(7));
    }
}

#[test]
fn a_shape_that_changes_again_and_again_keeps_the_start_of_the_last_look_and_shows_no_other() {
    let mut index = with_group(2);
    assert_eq!(start(&mut index), None);
    for (uid, scheduled) in [("a", 5), ("b", 9)] {
        index.apply_pod(&pod(uid, 0, Some(scheduled)));
    }
    // the members are read under the first shape and the last, and not under those in between
    for (version, min_member) in [(2, 7), (3, 1), (4, 7)] {
        index.apply_group(RUNAI, &group("u", version, None, &json!({"minMember": min_member})));
    }
    assert_eq!(start(&mut index), Some(9));
    index.apply_group(RUNAI, &group("u", 5, None, &json!({"minMember": 1})));
    assert_eq!(start(&mut index), Some(5));
}

#[test]
fn pods_may_come_before_their_group() {
    let mut index = index("100s");
    index.apply_pod(&pod("a", 0, Some(5)));
    assert_eq!(new_stamping(&mut index), None);
    index.apply_group(RUNAI, &group("u", 1, None, &json!({})));
    assert_eq!(stamp(&mut index, 2), Some(5));
}

#[test]
fn a_run_that_ends_leaves_its_stamp_behind_and_the_next_has_its_own() {
    let mut index = with_group(1);
    // the next run's pod waits already when this one is stamped
    index.apply_pod(&pod("a", 0, Some(5)));
    index.apply_pod(&pod("b", 0, None));
    assert_eq!(stamp(&mut index, 2), Some(5));
    index.delete_pod(Uid::of("a"));
    assert_eq!((start(&mut index), new_stamping(&mut index)), (None, None));
    index.apply_pod(&pod("b", 0, Some(300)));
    assert_eq!(stamp(&mut index, 3), Some(300));
}

#[test]
fn a_run_goes_on_while_all_its_pods_are_replaced_one_by_one() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    assert_eq!(stamp(&mut index, 2), Some(5));
    for (uid, before, created) in [("b", "a", 500), ("c", "b", 900)] {
        index.apply_pod(&pod(uid, created, Some(created + 1)));
        index.delete_pod(Uid::of(before));
        assert_eq!((start(&mut index), new_stamping(&mut index)), (Some(5), None));
    }
    // not even a later stamp is believed
    index.apply_group(RUNAI, &group("u", 3, Some(900), &json!({"minMember": 1})));
    assert_eq!(stamp(&mut index, 4), Some(5));
}

#[test]
fn a_run_whose_pods_were_all_replaced_between_two_lists_counts_as_another() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    assert_eq!(stamp(&mut index, 2), Some(5));
    index.begin_pods();
    index.apply_pod(&pod("b", 500, Some(501)));
    index.retain_pods(&HashSet::from([Uid::of("b")]));
    assert_eq!(stamp(&mut index, 3), Some(501));
}

#[test]
fn a_run_goes_on_over_a_list_that_shows_a_member_that_was_active_before() {
    let mut index = with_group(2);
    for uid in ["a", "b"] {
        index.apply_pod(&pod(uid, 0, Some(5)));
    }
    // a member is gone, another one has come
    index.begin_pods();
    index.apply_pod(&pod("a", 0, Some(5)));
    index.apply_pod(&pod("c", 500, Some(501)));
    index.retain_pods(&HashSet::from(["a", "c"].map(Uid::of)));
    assert_eq!(start(&mut index), Some(5));
    // in the next list, no member is left of those before
    index.begin_pods();
    for uid in ["d", "e"] {
        index.apply_pod(&pod(uid, 900, Some(901)));
    }
    index.retain_pods(&HashSet::from(["d", "e"].map(Uid::of)));
    assert_eq!(start(&mut index), Some(901));
}

#[test]
fn a_pod_that_came_in_a_list_that_broke_off_proves_no_run_before_it() {
    let [b, c] = [pod("b", 500, Some(501)), pod("c", 800, Some(900))];
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    for _ in 0..2 {
        index.begin_pods();
        index.apply_pod(&b);
    }
    index.retain_pods(&HashSet::from([Uid::of("b")]));
    assert_eq!(stamp(&mut index, 3), Some(501));
    // the first of these lists breaks off, and has shown that the run goes on with another member
    index.begin_pods();
    index.apply_pod(&b);
    index.apply_pod(&c);
    index.begin_pods();
    index.apply_pod(&c);
    index.retain_pods(&HashSet::from([Uid::of("c")]));
    assert_eq!(start(&mut index), Some(501));
}

#[test]
fn a_pod_that_ends_or_leaves_is_no_member_any_more() {
    for change in [
        json!({"status": {"phase": "Succeeded"}}),
        json!({"metadata": {"deletionTimestamp": at(7)}}),
        json!({"metadata": {"annotations": null}}),
    ] {
        let mut index = with_group(1);
        index.apply_pod(&pod("a", 0, Some(5)));
        assert_eq!(start(&mut index), Some(5));
        let merge = |pod: &mut Value| {
            for (part, fields) in change.as_object().unwrap() {
                let fields = fields.as_object().unwrap().clone();
                pod[part].as_object_mut().unwrap().extend(fields);
            }
        };
        index.apply_pod(&pod_with("a", 0, Some(5), merge));
        assert_eq!(start(&mut index), None, "{change}");
        assert_eq!(index.gangs().next().unwrap().members, []);
    }
}

#[test]
fn pods_that_terminate_one_after_the_other_have_no_group_computed_until_it_is_asked_about() {
    let mut index = with_group(2);
    for uid in ["a", "b", "c"] {
        index.apply_pod(&pod(uid, 0, Some(5)));
    }
    assert_eq!(start(&mut index), Some(5));
    let other = |pod: &mut Value| pod["metadata"]["annotations"]["pod-group-name"] = json!("other");
    index.apply_pod(&pod_with("d", 0, Some(5), other));
    for uid in ["a", "b", "c"] {
        let deleted = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!(at(7));
        index.apply_pod(&pod_with(uid, 0, Some(5), deleted));
        assert_eq!(index.objects.gangs.changed.len(), 2, "{uid}");
    }
    assert_eq!((start(&mut index), index.objects.gangs.changed.len()), (None, 0));
}

#[test]
fn pods_count_for_a_start_though_no_ceiling_applies_to_them() {
    let mut index = with_group(2);
    index.apply_pod(&pod_with("a", 0, Some(5), |pod| pod["spec"] = json!({"priority": 2_000_000_000})));
    index.apply_pod(&pod_with("b", 0, Some(6), |pod| pod["metadata"]["labels"] = Value::Null));
    assert_eq!(start(&mut index), Some(6));
}

#[test]
fn every_subgroup_has_to_start_and_may_be_renamed() {
    let mut index = index("100s");
    let spec = |name: &str| json!({"subGroups": [{"name": "lead"}, {"name": name, "minMember": 2}]});
    index.apply_group(RUNAI, &group("u", 1, None, &spec("worker")));
    for (uid, subgroup, scheduled) in [("a", "lead", 5), ("b", "other", 6), ("c", "other", 7)] {
        let label =
            |pod: &mut Value| pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!(subgroup);
        index.apply_pod(&pod_with(uid, 0, Some(scheduled), label));
    }
    assert_eq!(start(&mut index), None);
    index.apply_group(RUNAI, &group("u", 2, None, &spec("other")));
    assert_eq!(start(&mut index), Some(7));
}

#[test]
fn another_group_of_the_same_name_has_a_start_of_its_own() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    index.apply_pod(&pod("b", 0, Some(9)));
    assert_eq!(stamp(&mut index, 2), Some(5));
    index.apply_group(RUNAI, &group("v", 3, None, &json!({"minMember": 2})));
    let stamping = new_stamping(&mut index).unwrap();
    assert_eq!((&*stamping.uid, second(stamping.start)), ("v", 9));
    index.delete_group(RUNAI, "ns", "g");
    assert_eq!((index.gangs().count(), index.stamping(&stamping, at(10_000))), (0, None));
}

#[test]
fn the_stamp_of_the_scheduler_stands_and_one_from_the_future_does_not() {
    let mut index = index("100s");
    index.apply_group(RUNAI, &group("u", 1, Some(3), &json!({})));
    index.apply_pod(&pod("a", 0, Some(5)));
    assert_eq!((start(&mut index), new_stamping(&mut index)), (Some(3), None));
    index.apply_group(RUNAI, &group("u", 2, Some(9_000), &json!({})));
    assert_eq!(stamp(&mut index, 3), Some(5));
    // fewer pods than it takes say nothing, but no start is later than the longest formation
    index.apply_group(RUNAI, &group("v", 4, Some(20_000), &json!({"minMember": 7})));
    assert_eq!(stamp(&mut index, 5), Some(5 + 30 * 60));
    assert_eq!(new_stamping(&mut index), None);
}

#[test]
fn a_stamp_from_the_future_delays_no_end_even_if_it_can_not_be_repaired() {
    let mut index = index("100s");
    index.apply_group(RUNAI, &group("u", 1, Some(900_000), &json!({"minMember": 7})));
    index.apply_pod(&pod("a", 0, Some(5)));
    let stamping = new_stamping_at(&mut index, 50).unwrap();
    assert_eq!((second(stamping.start), end(&mut index)), (50, Some(105)));
    assert_eq!(index.stamping(&stamping, at(60)), Some(stamping));
}

#[test]
fn a_clock_that_is_behind_ends_no_member_of_a_gang_early() {
    for behind in
        [SignedDuration::from_millis(50), SignedDuration::from_secs(8), SignedDuration::from_hours(1)]
    {
        let mut index = with_group(2);
        let last = pod("b", 4, Some(5));
        index.apply_pod(&pod("a", 4, Some(4)));
        index.apply_pod(&last);
        let ends =
            |index: &mut CeilingIndex| index.standing(&last).unwrap().expires.map(|(at, _)| second(at));
        assert_eq!(
            (index.new_stampings(at(5) - behind), index.next_stamp()),
            (vec![], Some(at(5))),
            "{behind}"
        );
        assert_eq!(ends(&mut index), Some(105), "{behind}");
        let stamping = new_stamping_at(&mut index, 5).unwrap();
        assert_eq!(index.stamping(&stamping, at(5) - behind), None, "the clock is set back");
        assert_eq!(new_stamping_at(&mut index, 5), Some(stamping.clone()));
        write(&mut index, &stamping, 2);
        assert_eq!((second(stamping.start), ends(&mut index)), (5, Some(105)), "{behind}");
        assert_eq!(index.next_stamp(), Some(Timestamp::UNIX_EPOCH), "it is checked once more");
        assert_eq!((new_stamping_at(&mut index, 6), index.next_stamp()), (None, None), "{behind}");
    }
}

#[test]
fn a_schedulers_stamp_a_little_ahead_of_the_clock_stands() {
    let mut index = index("100s");
    index.apply_group(RUNAI, &group("u", 1, Some(6), &json!({"minMember": 7})));
    index.apply_pod(&pod("a", 0, Some(5)));
    assert_eq!((new_stamping_at(&mut index, 5), index.next_stamp()), (None, Some(at(6))));
    assert_eq!((new_stamping_at(&mut index, 6), start(&mut index)), (None, Some(6)));
}

#[test]
fn a_stamp_is_new_with_each_change_until_it_is_written() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    let stamping = new_stamping(&mut index).unwrap();
    assert_eq!(new_stamping(&mut index), None, "nothing has changed");
    index.apply_group(RUNAI, &group("u", 2, None, &json!({"minMember": 1, "queue": "demo"})));
    let again = index.stamping(&stamping, at(10_000)).unwrap();
    assert_eq!((&*again.resource_version, again.start), ("2", stamping.start));
    assert_eq!(new_stamping(&mut index), Some(again.clone()));
    write(&mut index, &again, 3);
    assert_eq!((index.stamping(&stamping, at(10_000)), new_stamping(&mut index)), (None, None));
}

#[test]
fn the_stamps_of_a_run_are_counted() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    let first = new_stamping(&mut index).unwrap();
    for written in 0..3 {
        let stamping = index.stamping(&first, at(10_000)).unwrap();
        assert_eq!((stamping.written, stamping.run), (written, first.run));
        write(&mut index, &stamping, 7);
        // a user removes it
        index.apply_group(RUNAI, &group("u", u32::from(written) + 8, None, &json!({"minMember": 1})));
    }
    index.delete_pod(Uid::of("a"));
    index.apply_pod(&pod("b", 0, Some(50)));
    let another = index.stamping(&first, at(10_000)).unwrap();
    assert_eq!((another.written, second(another.start)), (0, 50));
    assert_ne!(another.run, first.run);
}

#[test]
fn what_is_only_said_is_said_once_for_each_start() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    let stamping = new_stamping(&mut index).unwrap();
    index.note_stamp(&stamping, StampForm::Said);
    index.apply_pod(&pod("b", 0, Some(7)));
    assert_eq!(new_stamping(&mut index), None);
    for uid in ["a", "b"] {
        index.delete_pod(Uid::of(uid));
    }
    index.apply_pod(&pod("c", 20, Some(30)));
    assert_eq!(new_stamping(&mut index).map(|stamping| second(stamping.start)), Some(30));
}

#[test]
fn a_stamp_that_is_written_when_its_run_has_ended_is_one_that_was_left_behind() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    index.apply_pod(&pod("b", 0, None));
    let stamping = new_stamping(&mut index).unwrap();
    index.delete_pod(Uid::of("a"));
    write(&mut index, &stamping, 2);
    index.apply_pod(&pod("b", 0, Some(50)));
    assert_eq!(stamp(&mut index, 3), Some(50));
}

#[test]
fn what_the_watch_says_of_a_later_version_is_not_undone_by_the_answer_to_a_write() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    let stamping = new_stamping(&mut index).unwrap();
    index.apply_group(RUNAI, &group("u", 3, None, &json!({"minMember": 1})));
    write(&mut index, &stamping, 2);
    assert_eq!(new_stamping(&mut index).map(|stamping| stamping.resource_version), Some("3".into()));
}

#[test]
fn who_deletes_a_group_moves_no_pod_that_runs_to_another_queue() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    assert_eq!(end(&mut index), Some(105));
    index.delete_group(RUNAI, "ns", "g");
    assert_eq!(end(&mut index), Some(105), "there is no group any more");
    index.apply_group(RUNAI, &group("other", 2, None, &json!({"minMember": 1, "queue": "unlimited"})));
    assert_eq!(end(&mut index), Some(105), "there is another one");
    index.delete_pod(Uid::of("a"));
    index.apply_pod(&pod("b", 0, Some(50)));
    assert_eq!(end(&mut index), None, "the next run is in the queue of the other one");
}

#[test]
fn a_run_that_a_list_shows_no_member_of_keeps_no_later_run_in_its_queue() {
    let mut index = index("100s");
    let short: QueueSpec = serde_json::from_value(json!({"maxDuration": "50s"})).unwrap();
    index.apply_queue("short", &short);
    index.apply_group(RUNAI, &group("u", 1, None, &json!({"minMember": 1, "queue": "demo"})));
    index.apply_pod(&pod("a", 0, Some(5)));
    index.apply_group(RUNAI, &group("other", 2, None, &json!({"minMember": 1, "queue": "short"})));
    assert_eq!(end(&mut index), Some(105), "the run is in the queue of the group that it began with");
    index.begin_pods();
    index.apply_pod(&pod("b", 0, Some(60)));
    index.retain_pods(&HashSet::from([Uid::of("b")]));
    assert_eq!(end(&mut index), Some(110));
}

#[test]
fn the_ceiling_of_a_group_counts_from_its_start_for_those_that_join_late_too() {
    let mut index = with_group(2);
    index.apply_pod(&pod("a", 0, Some(5)));
    assert_eq!(end(&mut index), Some(105), "pods that never come don't put it off");
    index.apply_pod(&pod("b", 0, Some(50)));
    assert_eq!(end(&mut index), Some(105), "nor by a group that takes more of them");
    index.apply_pod(&pod("late", 120, Some(130)));
    let ends = index.batches(at(151)).into_iter();
    assert_eq!(ends.map(|due| second(due.first.deadline)).collect::<Vec<_>>(), [105, 150, 150]);
}

#[test]
fn only_the_first_group_that_there_is_counts_for_a_ceiling() {
    let mut index = index("100s");
    let label = |pod: &mut Value| pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!("g");
    index.apply_pod(&pod_with("a", 0, Some(5), label));
    index.apply_group(RUNAI, &group("u", 1, None, &json!({})));
    index.apply_group(PodGroupKind::Coscheduling, &group("c", 1, Some(2), &json!({"minMember": 1})));
    assert_eq!(end(&mut index), Some(105));
    index.retain_groups(RUNAI, &HashSet::new());
    assert_eq!(end(&mut index), Some(102));
    index.apply_group(RUNAI, &group("u", 1, None, &json!({})));
    assert_eq!(end(&mut index), Some(102), "the end of a bound pod only moves earlier");
}

#[test]
fn a_ceiling_of_any_group_counts() {
    let mut index = with_group(1);
    let label = |pod: &mut Value| pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!("g");
    index.apply_pod(&pod_with("a", 0, Some(5), label));
    let mut other = group("c", 1, None, &json!({"minMember": 1}));
    let own = ("tenure.dev/max-duration".to_owned(), "10s".to_owned());
    other.metadata.annotations = Some([own].into_iter().collect());
    index.apply_group(PodGroupKind::Coscheduling, &other);
    assert_eq!(end(&mut index), Some(15));
}

#[test]
fn nothing_is_left_of_groups_and_pods_that_are_gone() {
    let mut index = with_group(1);
    index.apply_pod(&pod("a", 0, Some(5)));
    index.apply_pod(&pod_with("b", 0, None, |pod| {
        pod["metadata"]["annotations"] = json!({"pod-group-name": "other"});
    }));
    index.delete_group(RUNAI, "ns", "g");
    let known = |index: &CeilingIndex| (index.objects.gangs.by_key.len(), index.objects.gangs.members.len());
    assert_eq!(known(&index), (2, 2));
    index.retain_pods(&HashSet::new());
    assert_eq!(known(&index), (0, 0));
}

#[test]
fn nothing_piles_up_for_those_that_never_ask_what_is_to_be_stamped() {
    for asks_for_ends in [true, false] {
        let mut index = with_group(1);
        for number in 0..1_000 {
            let uid = number.to_string();
            // one name is used again and again, the other isn't
            for name in ["g", &uid] {
                let mut group = group(&uid, 1, None, &json!({"queue": "demo"}));
                group.metadata.name = Some(name.into());
                index.apply_group(RUNAI, &group);
                index.apply_pod(&pod_with(&uid, 0, Some(5), |pod| {
                    pod["metadata"]["annotations"] = json!({"pod-group-name": name});
                }));
                if asks_for_ends {
                    assert_eq!(end(&mut index), Some(105));
                }
                index.delete_group(RUNAI, "ns", name);
                index.delete_pod(Uid::of(&uid));
            }
        }
        let Gangs { changed, moved, stamps, .. } = &index.objects.gangs;
        assert_eq!((changed.len(), moved.len(), stamps.0.len()), (0, 0, 0));
        index.apply_group(RUNAI, &group("u", 1, None, &json!({})));
        index.apply_pod(&pod("a", 0, Some(5)));
        assert_eq!(stamp(&mut index, 2), Some(5), "and nothing is lost");
    }
}
