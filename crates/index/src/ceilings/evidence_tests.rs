//! The end of a bound pod only moves earlier by what a tenant does, and the keeper notes on the pod what else would be
//! forgotten.

use serde_json::{Value, json};
use tenure_policy::expiry::Family;
use tenure_types::{evidence::Evidence, podgroup::PodGroupKind, projection, runai::v3alpha1::QueueSpec};

use crate::{
    Uid,
    ceilings::{CeilingIndex, CeilingOptions, tests::at},
    times::milliseconds,
};

fn pod(metadata: &Value) -> projection::Pod {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)});
    let mut pod = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "creationTimestamp": at(0),
            "annotations": {"pod-group-name": "gang"}},
        "spec": {}, "status": {"conditions": [condition]},
    });
    for (key, value) in metadata.as_object().unwrap() {
        pod["metadata"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

/// A group of queue `short`, with a ceiling of 100 s, and a pod of it.
fn world() -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    add_queue(&mut index, "short", "100s");
    add_group(&mut index);
    index.apply_pod(&pod(&json!({})));
    index
}

fn add_group(index: &mut CeilingIndex) {
    let group = json!({
        "metadata": {"name": "gang", "namespace": "ns", "uid": "g", "creationTimestamp": at(-1)},
        "spec": {"queue": "short", "minMember": 1},
    });
    index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
}

/// The evidence that is missing on the pod of the world.
fn missing(index: &mut CeilingIndex) -> Option<Evidence> {
    let mut missing = index.missing_evidence();
    assert!(missing.len() <= 1, "{missing:?}");
    missing.pop().map(|of| of.facts.evidence)
}

/// Evidence of a queue.
fn named(queue: &str) -> Evidence {
    Evidence { queues: [("scheduling.run.ai".into(), queue.into())].into(), ..Evidence::default() }
}

/// Annotations of the pod with this evidence.
fn noted(evidence: &Evidence) -> Value {
    json!({"pod-group-name": "gang", "tenure.dev/evidence": serde_json::to_string(evidence).unwrap()})
}

fn add_queue(index: &mut CeilingIndex, name: &str, ceiling: &str) {
    let spec: QueueSpec = serde_json::from_value(json!({"maxDuration": ceiling})).unwrap();
    index.apply_queue(name, &spec);
}

#[test]
fn the_queue_of_a_bound_pod_is_noted_on_it_if_its_group_names_it_and_its_label_says_another_or_none() {
    for labels in [json!({}), json!({"kai.scheduler/queue": "long"})] {
        let mut index = world();
        add_queue(&mut index, "long", "1000s");
        index.apply_pod(&pod(&json!({"labels": labels})));
        let evidence = missing(&mut index).expect("its group names the queue");
        assert_eq!(evidence, named("short"));
        let noted = pod(&json!({"labels": labels, "annotations": noted(&evidence)}));
        index.apply_pod(&noted);
        assert_eq!(missing(&mut index), None, "it is noted");
        index.delete_group(PodGroupKind::Runai, "ns", "gang");
        assert_eq!((missing(&mut index), index.next_expiry()), (None, Some(at(100))));
        let mut next = CeilingIndex::new(CeilingOptions::default());
        add_queue(&mut next, "short", "100s");
        add_queue(&mut next, "long", "1000s");
        next.apply_pod(&noted);
        assert_eq!(next.next_expiry(), Some(at(100)), "the next keeper knows it by the evidence");
    }
    let mut index = world();
    index.apply_pod(&pod(&json!({"labels": {"kai.scheduler/queue": "short"}})));
    assert_eq!(missing(&mut index), None, "its label says the same");
}

#[test]
fn evidence_that_a_tenant_writes_ends_a_run_earlier_and_never_later() {
    for (queue, end) in [("short", 100), ("shorter", 10), ("long", 100), ("none", 100)] {
        let mut index = world();
        add_queue(&mut index, "shorter", "10s");
        add_queue(&mut index, "long", "1000s");
        let evidence = named(queue);
        index.apply_pod(&pod(&json!({"annotations": noted(&evidence)})));
        assert_eq!(index.next_expiry(), Some(at(end)), "{queue}");
    }
    let mut index = world();
    index.apply_pod(&pod(&json!({"annotations": {"pod-group-name": "gang", "tenure.dev/evidence": "{"}})));
    assert_eq!(index.next_expiry(), Some(at(100)));
}

#[test]
fn an_own_ceiling_that_goes_while_a_pod_runs_still_ends_it_and_is_noted() {
    let mut index = world();
    let with =
        |own: &str| pod(&json!({"annotations": {"pod-group-name": "gang", "tenure.dev/max-duration": own}}));
    index.apply_pod(&with("10s"));
    assert_eq!(index.next_expiry(), Some(at(10)));
    index.apply_pod(&with("50s"));
    let evidence = missing(&mut index).expect("nothing else says it");
    assert_eq!((index.next_expiry(), evidence.max_duration.as_deref()), (Some(at(10)), Some("10s")));
    let noted = pod(&json!({"annotations": noted(&evidence)}));
    index.apply_pod(&noted);
    assert_eq!((missing(&mut index), index.next_expiry()), (None, Some(at(10))));
    let mut next = world();
    next.apply_pod(&noted);
    assert_eq!(next.next_expiry(), Some(at(10)), "the next keeper knows it by the evidence");
}

/// Another pod of the group and of its queue, which joined 60 s later.
fn late(annotations: &Value) -> projection::Pod {
    let labels = json!({"kai.scheduler/queue": "short"});
    let mut pod = pod(&json!({"name": "late", "uid": "late", "labels": labels, "annotations": annotations}));
    let condition = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(60)}]);
    pod.status.conditions = serde_json::from_value(condition).unwrap();
    pod
}

/// The world with that pod. The label of the first one names its queue, too: it lacks no evidence.
fn world_with_late(annotations: &Value) -> CeilingIndex {
    let mut index = world();
    index.apply_pod(&pod(&json!({"labels": {"kai.scheduler/queue": "short"}})));
    index.apply_pod(&late(annotations));
    index
}

/// Asserts that the pod ends with its group all the same, now and in the next keeper.
fn keeps_start(mut index: CeilingIndex, mut next: CeilingIndex) {
    assert_eq!(index.next_expiry(), Some(at(100)), "its end only moves earlier");
    let evidence = missing(&mut index).expect("no other object shows the start to a later keeper");
    assert_eq!(evidence, Evidence { group_start: Some(at(0)), ..Evidence::default() });
    let noted = late(&noted(&evidence));
    index.apply_pod(&noted);
    assert_eq!((missing(&mut index), index.next_expiry()), (None, Some(at(100))), "it is noted");
    next.apply_pod(&noted);
    assert_eq!(next.next_expiry(), Some(at(100)), "the next keeper knows it by the evidence");
}

#[test]
fn a_pod_that_joined_its_group_late_ends_with_it_also_once_the_group_is_gone() {
    let bare = json!({"pod-group-name": "gang"});
    for is_made_again in [false, true] {
        let mut index = world_with_late(&bare);
        assert_eq!((missing(&mut index), index.next_expiry()), (None, Some(at(100))), "the group shows it");
        index.delete_pod(Uid::of("a"));
        index.delete_group(PodGroupKind::Runai, "ns", "gang");
        if is_made_again {
            add_group(&mut index);
        }
        let mut next = CeilingIndex::new(CeilingOptions::default());
        add_queue(&mut next, "short", "100s");
        keeps_start(index, next);
    }
}

#[test]
fn a_pod_that_joined_its_group_late_ends_with_it_also_once_the_pods_before_it_are_gone() {
    let bare = json!({"pod-group-name": "gang"});
    let mut index = world_with_late(&bare);
    assert_eq!(missing(&mut index), None, "a pod that was there at the start shows it");
    index.delete_pod(Uid::of("a"));
    let mut next = CeilingIndex::new(CeilingOptions::default());
    add_queue(&mut next, "short", "100s");
    add_group(&mut next);
    keeps_start(index, next);
}

#[test]
fn a_pod_ends_by_the_longest_formation_of_its_group_also_once_the_first_pod_is_gone() {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    add_queue(&mut index, "short", "100000s");
    let group = json!({
        "metadata": {"name": "gang", "namespace": "ns", "uid": "g", "creationTimestamp": at(-1)},
        "spec": {"queue": "short", "minMember": 3},
    });
    index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
    let member = |name: &str, second: i64| {
        let labels = json!({"kai.scheduler/queue": "short"});
        let mut pod =
            pod(&json!({"name": name, "uid": name, "labels": labels, "creationTimestamp": at(second)}));
        let condition = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(second)}]);
        pod.status.conditions = serde_json::from_value(condition).unwrap();
        pod
    };
    index.apply_pod(&member("first", 0));
    index.apply_pod(&member("second", 2_000));
    assert_eq!(index.missing_evidence().len(), 0);
    // the group starts after that, but counts from half an hour after the first pod
    index.delete_pod(Uid::of("first"));
    index.apply_pod(&member("third", 10_000));
    index.apply_pod(&member("fourth", 10_000));
    let missing: Vec<Evidence> = index.missing_evidence().into_iter().map(|of| of.facts.evidence).collect();
    let expected = Evidence { group_start: Some(at(1_800)), ..Evidence::default() };
    assert_eq!(missing, [expected.clone(), expected.clone(), expected]);
}

/// A pod of queue `short` that was created with its node. Its kubelet shows that at this second.
fn placed(shown: Option<i64>, annotations: &Value) -> projection::Pod {
    let labels = json!({"kai.scheduler/queue": "short"});
    let mut pod = pod(&json!({"labels": labels, "annotations": annotations}));
    pod.spec.node_name = Some("n".into());
    let condition = shown
        .map(|second| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(second)}));
    pod.status.conditions = serde_json::from_value(condition.into_iter().collect()).unwrap();
    pod
}

#[test]
fn a_pod_that_is_created_with_its_node_ends_by_its_creation_however_late_it_shows_its_binding() {
    let keeper = || {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        add_queue(&mut index, "short", "100s");
        index
    };
    let mut index = keeper();
    index.apply_pod(&placed(None, &json!({})));
    assert_eq!((missing(&mut index), index.next_expiry()), (None, Some(at(100))), "the pod shows it");
    index.apply_pod(&placed(Some(60), &json!({})));
    assert_eq!(index.next_expiry(), Some(at(100)), "its end only moves earlier");
    let evidence = missing(&mut index).expect("the pod shows a later start");
    assert_eq!(evidence, Evidence { since: Some(at(0)), ..named("short") });
    let evidence = serde_json::to_string(&evidence).unwrap();
    let noted = placed(Some(60), &json!({"tenure.dev/evidence": evidence}));
    index.apply_pod(&noted);
    assert_eq!((missing(&mut index), index.next_expiry()), (None, Some(at(100))), "it is noted");
    let mut next = keeper();
    next.apply_pod(&noted);
    assert_eq!(next.next_expiry(), Some(at(100)), "the next keeper knows it by the evidence");
}

#[test]
fn a_group_that_is_made_before_a_pod_shows_its_binding_late_ends_its_run_no_later() {
    let keeper = || {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        add_queue(&mut index, "short", "100s");
        add_queue(&mut index, "long", "1000s");
        let group = json!({
            "metadata": {"name": "gang", "namespace": "ns", "uid": "g", "creationTimestamp": at(30)},
            "spec": {"queue": "long", "minMember": 1},
        });
        (index, serde_json::from_value(group).unwrap())
    };
    let of_group = json!({"pod-group-name": "gang"});
    let (mut index, group) = keeper();
    index.apply_pod(&placed(None, &of_group));
    index.apply_group(PodGroupKind::Runai, &group);
    assert_eq!(index.next_expiry(), Some(at(100)), "the group is late");
    index.apply_pod(&placed(Some(60), &of_group));
    assert_eq!(index.next_expiry(), Some(at(100)));
    let evidence = missing(&mut index).expect("the next keeper won't know that the group is late");
    assert_eq!(evidence.queues, named("short").queues);
    let (mut next, group) = keeper();
    next.apply_group(PodGroupKind::Runai, &group);
    next.apply_pod(&placed(Some(60), &noted(&evidence)));
    assert_eq!(next.next_expiry(), Some(at(100)), "the next keeper knows it by the evidence");
}

#[test]
fn no_start_of_a_run_that_may_have_ended_counts_for_a_pod_once_a_list_has_shown_that() {
    let bare = json!({"pod-group-name": "gang"});
    for (goes_on, end) in [(true, 100), (false, 160)] {
        let mut index = world();
        index.reschedule();
        index.begin_pods();
        index.apply_pod(&late(&bare));
        index.reschedule();
        if goes_on {
            index.apply_pod(&pod(&json!({})));
        }
        let seen: &[&str] = if goes_on { &["a", "late"] } else { &["late"] };
        index.retain_pods(&seen.iter().copied().map(Uid::of).collect());
        index.reschedule();
        index.delete_pod(Uid::of("a"));
        index.delete_group(PodGroupKind::Runai, "ns", "gang");
        assert_eq!(index.next_expiry(), Some(at(end)), "the run goes on: {goes_on}");
    }
}

#[test]
fn a_group_that_is_made_again_gives_a_pod_that_terminates_no_more_time() {
    let mut index = world();
    add_queue(&mut index, "long", "90000s");
    let going = json!({"deletionTimestamp": at(100_000), "deletionGracePeriodSeconds": 99_850});
    index.apply_pod(&pod(&going));
    index.delete_group(PodGroupKind::Runai, "ns", "gang");
    let group = json!({
        "metadata": {"name": "gang", "namespace": "ns", "uid": "h", "creationTimestamp": at(-1)},
        "spec": {"queue": "long", "minMember": 1},
    });
    index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
    let hour = jiff::SignedDuration::from_hours(1);
    assert_eq!(index.overlong(at(3_800), hour).len(), 1);
}

#[test]
fn a_pod_that_terminates_ends_within_the_bound_whether_its_group_goes_before_or_after() {
    let going = json!({"deletionTimestamp": at(100_000), "deletionGracePeriodSeconds": 99_850});
    for group_first in [true, false] {
        let mut index = world();
        if group_first {
            index.delete_group(PodGroupKind::Runai, "ns", "gang");
        }
        index.apply_pod(&pod(&going));
        index.delete_group(PodGroupKind::Runai, "ns", "gang");
        let hour = jiff::SignedDuration::from_hours(1);
        let overlong = index.overlong(at(3_800), hour);
        assert_eq!(overlong.len(), 1, "{group_first}");
        index.apply_pod(&pod(&going));
        assert_eq!(index.overlong(at(3_800), hour), overlong, "{group_first}: it is seen again");
        assert_eq!(index.overlong(at(99), hour), [], "{group_first}: not before its ceiling");
    }
}

#[test]
fn a_pod_that_was_deleted_before_its_evidence_was_written_gets_it_while_it_terminates() {
    let hour = jiff::SignedDuration::from_hours(1);
    let going = |grace: i64, annotations: &Value| {
        let mut deleted = json!({"deletionTimestamp": at(50 + grace), "deletionGracePeriodSeconds": grace});
        deleted["annotations"] = annotations.clone();
        pod(&deleted)
    };
    let bare = json!({"pod-group-name": "gang"});
    let mut index = world();
    index.apply_pod(&going(100_000, &bare));
    let unnoted = index.unnoted_terminations(hour).pop().expect("its group names the queue").facts;
    assert_eq!((&unnoted.evidence, unnoted.bounds_run, missing(&mut index)), (&named("short"), true, None));
    let noted = going(100_000, &noted(&unnoted.evidence));
    index.apply_pod(&noted);
    assert_eq!(index.unnoted_terminations(hour), [], "it is noted");
    for (going, ends) in [(noted, 1), (going(100_000, &bare), 0)] {
        let mut next = CeilingIndex::new(CeilingOptions::default());
        add_queue(&mut next, "short", "100s");
        next.apply_pod(&going);
        assert_eq!(next.overlong(at(3_800), hour).len(), ends, "the next keeper, without the group");
    }
    let mut index = world();
    index.apply_pod(&going(3_600, &bare));
    assert_eq!(index.unnoted_terminations(hour), [], "its grace period is no longer than it may be");
}

#[test]
fn a_pod_that_no_keeper_saw_run_keeps_the_queue_of_its_group_while_it_terminates() {
    let hour = jiff::SignedDuration::from_hours(1);
    let going = pod(&json!({"deletionTimestamp": at(100_050), "deletionGracePeriodSeconds": 100_000}));
    for group_first in [true, false] {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        add_queue(&mut index, "short", "100s");
        if group_first {
            add_group(&mut index);
        }
        index.apply_pod(&going);
        if !group_first {
            assert_eq!(index.unnoted_terminations(hour), [], "no queue is known");
            add_group(&mut index);
        }
        let unnoted = index.unnoted_terminations(hour).pop().expect("its group names the queue").facts;
        assert_eq!((unnoted.evidence, unnoted.bounds_run), (named("short"), true), "{group_first}");
        index.delete_group(PodGroupKind::Runai, "ns", "gang");
        assert_eq!(index.overlong(at(3_800), hour).len(), 1, "{group_first}");
    }
}

#[test]
fn an_own_ceiling_that_goes_while_a_pod_terminates_is_noted() {
    let hour = jiff::SignedDuration::from_hours(1);
    let going = |annotations: Value| {
        pod(&json!({
            "labels": {"kai.scheduler/queue": "short"}, "annotations": annotations,
            "deletionTimestamp": at(100_050), "deletionGracePeriodSeconds": 100_000,
        }))
    };
    let mut index = CeilingIndex::new(CeilingOptions::default());
    add_queue(&mut index, "short", "100s");
    index.apply_pod(&going(json!({"tenure.dev/max-duration": "10s"})));
    assert_eq!(index.unnoted_terminations(hour), [], "the pod shows it");
    index.apply_pod(&going(json!({})));
    let unnoted = index.unnoted_terminations(hour).pop().expect("nothing else says it").facts;
    assert_eq!(unnoted.evidence.max_duration.as_deref(), Some("10s"));
}

#[test]
fn a_name_that_no_queue_has_is_not_written_on_pods() {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    let group = json!({
        "metadata": {"name": "gang", "namespace": "ns", "uid": "g", "creationTimestamp": at(-1)},
        "spec": {"queue": "x".repeat(100_000), "minMember": 1},
    });
    index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
    index.apply_pod(&pod(&json!({})));
    assert_eq!(missing(&mut index), None);
}

/// A pod of a queue in which pods must be ready within 30 s, and may be unready at any time afterwards, with these times of
/// conditions `Ready` (and whether it is) and `Initialized`.
fn unready(ready: (bool, i64), initialized: i64, annotations: &Value) -> projection::Pod {
    let condition = |type_: &str, status: bool, at_: i64| {
        let status = if status { "True" } else { "False" };
        json!({"type": type_, "status": status, "lastTransitionTime": at(at_)})
    };
    let mut pod = pod(&json!({"labels": {"kai.scheduler/queue": "waits"}, "annotations": annotations}));
    let conditions = json!([
        condition("PodScheduled", true, 0),
        condition("Initialized", true, initialized),
        condition("Ready", ready.0, ready.1),
    ]);
    pod.status.conditions = serde_json::from_value(conditions).unwrap();
    pod
}

fn with_timeout() -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    let spec = json!({"waitForPodsReady": {"timeout": "30s"}});
    index.apply_queue("waits", &serde_json::from_value::<QueueSpec>(spec).unwrap());
    index
}

#[test]
fn a_pod_that_was_ready_before_its_node_was_restarted_is_so_for_the_next_keeper_too() {
    let mut index = with_timeout();
    let is_unready = |index: &mut CeilingIndex| index.counts(at(1_000), at(1_000)).unready > 0;
    index.apply_pod(&unready((true, 5), 2, &json!({})));
    index.apply_pod(&unready((false, 100), 2, &json!({})));
    assert_eq!((missing(&mut index), is_unready(&mut index)), (None, false), "its conditions show it");
    // its init containers have ended another time
    let restarted = |annotations: &Value| unready((false, 100), 103, annotations);
    index.apply_pod(&restarted(&json!({})));
    let evidence = missing(&mut index).expect("its conditions don't show it any more");
    assert_eq!(
        (evidence.clone(), is_unready(&mut index)),
        (Evidence { was_ready: true, ..Evidence::default() }, false)
    );
    let annotation = json!({"tenure.dev/evidence": serde_json::to_string(&evidence).unwrap()});
    index.apply_pod(&restarted(&annotation));
    assert_eq!(missing(&mut index), None, "it is noted");
    for (annotations, expected) in [(annotation, false), (json!({}), true)] {
        let mut next = with_timeout();
        next.apply_pod(&restarted(&annotations));
        assert_eq!((is_unready(&mut next), missing(&mut next)), (expected, None), "{annotations}");
    }
}

#[test]
fn evidence_that_a_pod_was_ready_gives_it_no_time_beyond_that_of_a_recovery() {
    let mut index = with_timeout();
    let spec = json!({"waitForPodsReady": {"timeout": "300s", "recoveryTimeout": "20s"}});
    index.apply_queue("waits", &serde_json::from_value::<QueueSpec>(spec).unwrap());
    let forged = json!({"tenure.dev/evidence": r#"{"wasReady": true}"#});
    index.apply_pod(&unready((false, 1), 2, &forged));
    let unready = |index: &mut CeilingIndex, second| index.counts(at(second), at(second)).unready;
    assert_eq!((unready(&mut index, 20), unready(&mut index, 22)), (0, 1), "it ends earlier");
}

#[test]
fn a_queue_that_only_shortens_a_run_is_not_charged_for_it() {
    let mut index = world();
    add_queue(&mut index, "long", "1000s");
    let metadata = |annotations: Value| {
        pod(&json!({"labels": {"kai.scheduler/queue": "long"}, "annotations": annotations}))
    };
    let evidence = serde_json::to_string(&named("short")).unwrap();
    let forged = metadata(json!({"tenure.dev/evidence": evidence}));
    index.apply_pod(&forged);
    assert_eq!(index.next_expiry(), Some(at(100)));
    let charged = |index: &mut CeilingIndex, pod| index.run_place(pod).unwrap().queues[Family::Runai].clone();
    assert_eq!(charged(&mut index, &forged).as_deref(), Some("long"));
    assert_eq!(charged(&mut index, &metadata(json!({"pod-group-name": "gang"}))).as_deref(), Some("short"));
}

#[test]
fn an_own_ceiling_alone_makes_no_deletion_a_cut() {
    let mut index = world();
    let shorter = pod(&json!({"annotations": {"pod-group-name": "gang", "tenure.dev/max-duration": "1s"}}));
    index.apply_pod(&shorter);
    assert_eq!(index.next_expiry(), Some(at(1)));
    assert_eq!(index.run_place(&shorter).unwrap().deadline, milliseconds(at(100)));
}
