use serde_json::{Value, json};
use tenure_policy::config::Config;
use tenure_types::podgroup::PodGroupKind;

use super::*;
use crate::{cluster::ResourceKinds, input::Document, list::row::WorkloadState};

/// `seconds` after the time at which all pods of these tests are created.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn kinds() -> ResourceKinds {
    let resource = |plural: &str, kind: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced"});
    let group = |name: &str, resources: Value| {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]}),
        )
        .unwrap()
    };
    let apps = json!([resource("deployments", "Deployment"), resource("replicasets", "ReplicaSet")]);
    let kueue = group("kueue.x-k8s.io", json!([resource("workloads", "Workload")]));
    let batch = group("batch", json!([resource("jobs", "Job")]));
    ResourceKinds::read([group("apps", apps), batch, kueue].into_iter())
}

fn with_config(config: &Config) -> ListView {
    ListView::new(Snapshot::new(config, Some("t9k-system"), at(0)))
}

fn view() -> ListView {
    with_config(&Config::default())
}

fn take(view: &mut ListView, api_version: &str, kind: &str, value: Value) {
    let (api_version, kind) = (api_version.into(), kind.into());
    view.snapshot.take([&Document { source: "test".into(), api_version, kind, value }]);
}

fn runai(view: &mut ListView, name: &str, spec: &Value) {
    let queue = json!({"metadata": {"name": name}, "spec": spec});
    take(view, "scheduling.run.ai/v3alpha1", "Queue", queue);
}

fn tensorstack(view: &mut ListView, name: &str, ceiling: &str) {
    let metadata = json!({"name": name, "namespace": "t9k-system"});
    let queue = json!({"metadata": metadata, "spec": {"maxDuration": ceiling}});
    take(view, "scheduler.tensorstack.dev/v1beta1", "Queue", queue);
}

fn group(view: &mut ListView, kind: PodGroupKind) {
    let group = json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": {"minMember": 2}});
    take(view, &format!("{}/v1", kind.group()), "PodGroup", group);
}

fn controller(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}])
}

fn owner(view: &mut ListView, kind: &str, name: &str, owners: &Value, annotations: &Value) {
    let kinds = kinds();
    let kind = kinds.find("apps", kind).or_else(|| kinds.find("batch", kind)).unwrap();
    let metadata = json!({
        "name": name, "namespace": "ns", "uid": name, "ownerReferences": owners, "annotations": annotations,
    });
    view.snapshot.take_metadata(kind, vec![serde_json::from_value(metadata).unwrap()]);
}

fn deployment(view: &mut ListView) {
    owner(view, "Deployment", "d", &json!([]), &json!({}));
    owner(view, "ReplicaSet", "rs", &controller("Deployment", "d"), &json!({}));
}

/// A pod of a queue that was scheduled five seconds after its creation, or not at all.
fn pod(view: &mut ListView, name: &str, label: &str, scheduled: bool, owners: &Value) {
    let status = if scheduled { "True" } else { "False" };
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(0),
            "labels": {label: "q"}, "ownerReferences": owners,
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": status, "lastTransitionTime": at(5)}]},
    });
    view.pod(&serde_json::from_value(pod).unwrap(), None);
    view.complete();
}

const RUNAI: &str = "kai.scheduler/queue";
const TENSORSTACK: &str = "scheduler.tensorstack.dev/queue";

fn one(view: ListView, now: i64) -> WorkloadRow {
    let mut rows = view.rows(at(now));
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

#[test]
fn pods_are_put_together_to_their_topmost_owner() {
    let mut view = view();
    tensorstack(&mut view, "q", "1m");
    deployment(&mut view);
    pod(&mut view, "a", TENSORSTACK, true, &controller("ReplicaSet", "rs"));
    pod(&mut view, "b", TENSORSTACK, false, &controller("ReplicaSet", "rs"));
    let row = one(view, 30);
    assert_eq!((row.workload.as_str(), row.api_version.as_str(), row.pods), ("deployment/d", "apps/v1", 2));
    assert_eq!((row.state, row.queue.as_deref()), (WorkloadState::Running, Some("q")));
    assert_eq!((row.family, row.ceiling_from.as_deref()), (Some("t9k"), Some("q")));
    assert_eq!((row.started_at, row.expires_at, row.floor_until), (Some(at(0)), Some(at(60)), None));
}

#[test]
fn a_pod_whose_owners_cannot_be_paused_stands_by_itself() {
    let mut view = view();
    tensorstack(&mut view, "q", "1m");
    for name in ["b", "a"] {
        pod(&mut view, name, TENSORSTACK, true, &controller("Unknown", "u"));
    }
    assert!(view.asks().is_empty(), "no owner above it would count");
    let rows = view.rows(at(61));
    let names: Vec<_> = rows.iter().map(|row| (row.workload.as_str(), row.state)).collect();
    assert_eq!(names, [("pod/a", WorkloadState::Expired), ("pod/b", WorkloadState::Expired)]);
}

#[test]
fn an_owner_is_asked_for_beside_a_name_that_another_pod_has_for_its_uid() {
    let mut view = ListView::of_files(Snapshot::new(&Config::default(), Some("t9k-system"), at(0)));
    tensorstack(&mut view, "q", "1m");
    for name in ["a", "b"] {
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": true});
        pod(&mut view, name, TENSORSTACK, true, &json!([job]));
    }
    let mut names: Vec<_> = view.asks().into_iter().map(|(_, owner)| owner.name).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_pending_workload_of_the_runai_family_has_no_clock_yet() {
    let mut view = view();
    runai(&mut view, "q", &json!({"maxDuration": "1m", "preemptMinRuntime": "10s"}));
    pod(&mut view, "a", RUNAI, false, &json!([]));
    let row = one(view, 30);
    assert_eq!(
        (row.state, row.started_at, row.expires_at, row.floor_until),
        (WorkloadState::Pending, None, None, None)
    );
    assert_eq!((row.family, row.ceiling_from.as_deref()), (Some("run.ai"), Some("q")));
}

#[test]
fn floor_and_ceiling_count_from_the_scheduling_and_come_from_the_tree() {
    let mut view = view();
    runai(
        &mut view,
        "root",
        &json!({"maxDuration": "1m", "preemptMinRuntime": "50s", "reclaimMinRuntime": "20s"}),
    );
    runai(&mut view, "q", &json!({"parentQueue": "root", "preemptMinRuntime": "10s", "maxDuration": "1h"}));
    pod(&mut view, "a", RUNAI, true, &json!([]));
    let row = one(view, 24);
    assert_eq!((row.started_at, row.expires_at), (Some(at(5)), Some(at(65))));
    assert_eq!(row.floor_until, Some(at(25)), "the nearest of each, the later of both");
    assert_eq!(row.ceiling_from.as_deref(), Some("root"));
}

#[test]
fn the_floor_lasts_until_the_workload_is_safe_from_nobody() {
    let mut view = view();
    runai(&mut view, "root", &json!({"reclaimMinRuntime": "1m"}));
    runai(
        &mut view,
        "q",
        &json!({"parentQueue": "root", "preemptMinRuntime": "10s", "reclaimMinRuntime": "0s"}),
    );
    pod(&mut view, "a", RUNAI, true, &json!([]));
    assert_eq!(one(view, 24).floor_until, Some(at(65)), "against queues of other trees");
}

#[test]
fn configured_floors_count_where_no_queue_says_and_lengthen_time_slices() {
    for (config, own, expected) in [
        ("", json!({}), (None, Some(at(65)))),
        ("defaultPreemptMinRuntime: 2m", json!({}), (Some(at(125)), Some(at(125)))),
        ("defaultPreemptMinRuntime: 2m", json!({"preemptMinRuntime": "0s"}), (None, Some(at(65)))),
    ] {
        let mut view = with_config(&Config::parse(config).unwrap());
        let mut spec = json!({"maxDuration": "1m", "maxDurationAction": "Requeue"});
        spec.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        runai(&mut view, "q", &spec);
        pod(&mut view, "a", RUNAI, true, &json!([]));
        let row = one(view, 10);
        assert_eq!((row.floor_until, row.expires_at), expected, "{config} {own}");
    }
}

#[test]
fn queues_that_can_not_be_meant_are_warned_of() {
    let mut view = view();
    runai(&mut view, "a", &json!({"parentQueue": "b", "preemptMinRuntime": "-5s"}));
    runai(&mut view, "b", &json!({"parentQueue": "a"}));
    runai(&mut view, "c", &json!({"parentQueue": "gone"}));
    let warnings: Vec<String> = view.snapshot.warnings().collect();
    let count = |what: &str| warnings.iter().filter(|warning| warning.contains(what)).count();
    let counts = ["\"-5s\"", "a -> b -> a", "\"gone\" doesn't exist"].map(count);
    assert_eq!((counts, warnings.len()), ([1, 1, 1], 3), "{warnings:?}");
}

#[test]
fn a_floor_that_is_over_is_none() {
    let mut view = view();
    runai(&mut view, "q", &json!({"preemptMinRuntime": "10s"}));
    pod(&mut view, "a", RUNAI, true, &json!([]));
    let row = one(view, 15);
    assert_eq!((row.floor_until, row.expires_at, row.ceiling_from), (None, None, None));
}

#[test]
fn a_ceiling_of_its_own_is_named_by_its_annotation() {
    let mut view = view();
    tensorstack(&mut view, "q", "1m");
    owner(&mut view, "Job", "j", &json!([]), &json!({"tenure.dev/max-duration": "30s"}));
    let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    pod(&mut view, "a", TENSORSTACK, true, &job);
    let row = one(view, 10);
    assert_eq!(
        (row.expires_at, row.ceiling_from.as_deref()),
        (Some(at(30)), Some("tenure.dev/max-duration"))
    );
}

#[test]
fn a_pod_that_is_never_touched_is_exempt() {
    let mut view = view();
    tensorstack(&mut view, "q", "1m");
    pod(&mut view, "a", TENSORSTACK, true, &controller("DaemonSet", "ds"));
    let row = one(view, 100);
    assert_eq!((row.state, row.reason.as_deref()), (WorkloadState::Exempt, Some("DaemonSet")));
    assert_eq!((row.expires_at, row.ceiling_from), (None, None));
}

fn record(at: Timestamp) -> Value {
    let record = json!({"reason": "MaxDurationExceeded", "at": at, "queue": "q", "field": "spec.replicas", "previousValue": 2});
    json!({"tenure.dev/paused": record.to_string()})
}

#[test]
fn what_comes_back_by_itself_and_what_does_not_is_told_apart() {
    let state = json!({"count": 2, "requeueAt": at(90), "priority": 7}).to_string();
    let paused = |reason: &str, more: Value| {
        let record = json!({"reason": reason, "at": at(60), "queue": "q", "field": "spec.suspend", "previousValue": false});
        let mut annotations = json!({"tenure.dev/paused": record.to_string()});
        annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut view = view();
        owner(&mut view, "Job", "j", &json!([]), &annotations);
        one(view, 70)
    };
    let waiting = json!({"tenure.dev/requeue-state": state});
    let row = paused("PodsReadyTimeout", waiting.clone());
    assert_eq!(
        (row.state, row.requeue_at, row.requeue_count),
        (WorkloadState::Requeueing, Some(at(90)), Some(2))
    );
    let (family, place) = row.waiting.unwrap();
    assert_eq!((family, row.family), (Family::Runai, None), "the record names no family");
    assert_eq!((place.priority, place.paused, place.name.as_str()), (7, at(60), "ns/j"));
    let mut inactive = waiting;
    inactive["tenure.dev/active"] = json!("false");
    for reason in ["PodsReadyTimeout", "WorkloadInactive", "Deactivated"] {
        let row = paused(reason, inactive.clone());
        assert_eq!(
            (row.state, row.requeue_at, row.waiting),
            (WorkloadState::Inactive, None, None),
            "{reason}"
        );
    }
    let activated = paused("Deactivated", json!({"tenure.dev/active": "true"}));
    assert_eq!((activated.state, activated.requeue_at), (WorkloadState::Requeueing, None));
    assert_eq!(paused("MaxDurationExceeded", json!({})).state, WorkloadState::Paused);
}

#[test]
fn a_group_needs_its_minimum_and_a_pod_by_itself_is_needed() {
    let pod = |name: &str, annotations: Value, ready: &str| {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(0), "labels": {RUNAI: "q"},
                "annotations": annotations, "ownerReferences": controller("ReplicaSet", "rs"),
            },
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at(9)}]},
        });
        serde_json::from_value(pod).unwrap()
    };
    let mut view = view();
    runai(&mut view, "q", &json!({}));
    deployment(&mut view);
    group(&mut view, PodGroupKind::Runai);
    for (name, ready) in [("a", "True"), ("b", "False"), ("c", "False")] {
        view.pod(&pod(name, json!({"pod-group-name": "g"}), ready), None);
    }
    view.pod(&pod("d", json!({}), "True"), None);
    view.complete();
    let row = one(view, 10);
    assert_eq!((row.pods, row.ready_pods, row.needed_pods), (4, Some(2), Some(3)));
}

#[test]
fn what_was_paused_is_listed_without_pods_and_its_copies_are_not() {
    let mut view = view();
    owner(&mut view, "Deployment", "d", &json!([]), &record(at(60)));
    owner(&mut view, "ReplicaSet", "rs", &controller("Deployment", "d"), &record(at(60)));
    let row = one(view, 70);
    assert_eq!((row.workload.as_str(), row.state, row.pods), ("deployment/d", WorkloadState::Paused, 0));
    assert_eq!((row.queue.as_deref(), row.paused_at), (Some("q"), Some(at(60))));
    assert_eq!(row.reason.as_deref(), Some("MaxDurationExceeded"));
}

#[test]
fn what_was_paused_below_its_owner_is_listed_beside_it() {
    let of = |uid: &str| {
        let mut annotations = record(at(60));
        let text = annotations["tenure.dev/paused"].as_str().unwrap();
        let mut record: Value = serde_json::from_str(text).unwrap();
        record["uid"] = json!(uid);
        annotations["tenure.dev/paused"] = json!(record.to_string());
        annotations
    };
    for (uid, expected) in [("rs", vec!["deployment/d", "replicaset/rs"]), ("d", vec!["deployment/d"])] {
        let mut view = view();
        owner(&mut view, "Deployment", "d", &json!([]), &of("d"));
        owner(&mut view, "ReplicaSet", "rs", &controller("Deployment", "d"), &of(uid));
        let rows = view.rows(at(70));
        assert_eq!(rows.iter().map(|row| row.workload.as_str()).collect::<Vec<_>>(), expected);
    }
}

/// A Job `j` with a pod, and its Workload of Kueue with a record of this object's pause by this field.
fn workload_of_kueue(uid: &str, field: &str) -> ListView {
    let mut view = view();
    tensorstack(&mut view, "q", "1m");
    let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    pod(&mut view, "a", TENSORSTACK, true, &job);
    owner(&mut view, "Job", "j", &json!([]), &json!({}));
    let metadata = json!({
        "name": "job-j-1f", "namespace": "ns", "uid": "w", "labels": {"kueue.x-k8s.io/job-uid": "j"},
        "ownerReferences": job, "annotations": record_of(uid, field),
    });
    let kinds = kinds();
    let kind = kinds.find("kueue.x-k8s.io", "Workload").unwrap();
    view.snapshot.take_metadata(kind, vec![serde_json::from_value(metadata).unwrap()]);
    view
}

/// The record of the pause of an object by a field.
fn record_of(uid: &str, field: &str) -> Value {
    let record = json!({
        "reason": "MaxDurationExceeded", "at": at(60), "queue": "q", "uid": uid, "field": field, "previousValue": 2,
    });
    json!({"tenure.dev/paused": record.to_string()})
}

#[test]
fn what_was_paused_by_its_workload_of_kueues_is_listed_as_the_job_that_it_is() {
    let view = workload_of_kueue("w", "spec.active");
    assert_eq!(view.asks(), []);
    let row = one(view, 70);
    assert_eq!((row.workload.as_str(), row.state, row.pods), ("job/j", WorkloadState::Paused, 1));
    assert_eq!(row.kueue_workload.as_deref(), Some("job-j-1f"));
}

#[test]
fn a_record_that_tenure_does_not_follow_makes_no_workload_of_kueue_a_pause() {
    for (uid, field) in [("another", "spec.active"), ("w", "spec.podSets")] {
        let row = one(workload_of_kueue(uid, field), 50);
        assert_eq!((row.workload.as_str(), row.state), ("job/j", WorkloadState::Running), "{uid} {field}");
    }
}

#[test]
fn a_record_that_names_a_field_of_no_pause_promises_no_return() {
    for (field, state, reason) in [
        ("spec.replicas", WorkloadState::Requeueing, "MaxDurationExceeded"),
        ("spec.paused", WorkloadState::Paused, "UnknownField"),
    ] {
        let mut view = view();
        let mut annotations = record_of("d", field);
        let returns = json!({"count": 1, "requeueAt": at(90)});
        annotations["tenure.dev/requeue-state"] = json!(returns.to_string());
        owner(&mut view, "Deployment", "d", &json!([]), &annotations);
        let row = one(view, 70);
        assert_eq!(
            (row.state, row.reason.as_deref(), row.queue.as_deref()),
            (state, Some(reason), Some("q"))
        );
        let comes_back = state == WorkloadState::Requeueing;
        assert_eq!((row.requeue_at.is_some(), row.waiting.is_some()), (comes_back, comes_back), "{field}");
    }
}

#[test]
fn pods_that_are_younger_than_a_pause_show_that_it_was_reversed() {
    for (paused_at, expected) in [(-10, WorkloadState::Running), (1, WorkloadState::Paused)] {
        let mut view = view();
        tensorstack(&mut view, "q", "1m");
        owner(&mut view, "Deployment", "d", &json!([]), &record(at(paused_at)));
        owner(&mut view, "ReplicaSet", "rs", &controller("Deployment", "d"), &json!({}));
        pod(&mut view, "a", TENSORSTACK, true, &controller("ReplicaSet", "rs"));
        assert_eq!(one(view, 10).state, expected, "{paused_at}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_a_pause_all_the_same() {
    let mut view = view();
    owner(&mut view, "Deployment", "d", &json!([]), &json!({"tenure.dev/paused": "{"}));
    let row = one(view, 0);
    assert_eq!((row.state, row.reason.as_deref()), (WorkloadState::Paused, Some("UnreadableRecord")));
}

#[test]
fn a_workload_is_found_by_the_queues_of_both_families() {
    let mut view = view();
    tensorstack(&mut view, "t", "1m");
    runai(&mut view, "r", &json!({"maxDuration": "1h"}));
    let pod = json!({"metadata": {
        "name": "a", "namespace": "ns", "uid": "a", "creationTimestamp": at(0), "labels": {RUNAI: "r", TENSORSTACK: "t"},
    }});
    view.pod(&serde_json::from_value(pod).unwrap(), None);
    view.complete();
    let row = one(view, 0);
    assert_eq!(row.queue.as_deref(), Some("t"));
    assert!(row.is_in(&["r".into()]) && row.is_in(&["t".into()]) && !row.is_in(&["q".into()]));
}

#[test]
fn a_workload_started_when_its_group_did_whatever_its_kind() {
    for (kind, labels, annotations) in [
        (PodGroupKind::Runai, json!({RUNAI: "q"}), json!({"pod-group-name": "g"})),
        (PodGroupKind::Coscheduling, json!({RUNAI: "q", "scheduling.x-k8s.io/pod-group": "g"}), json!({})),
    ] {
        let mut view = view();
        runai(&mut view, "q", &json!({"maxDuration": "1m", "preemptMinRuntime": "20s"}));
        deployment(&mut view);
        group(&mut view, kind);
        for (name, scheduled) in [("a", 5), ("b", 7), ("c", 30)] {
            let pod = json!({
                "metadata": {
                    "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(0),
                    "labels": labels, "annotations": annotations, "ownerReferences": controller("ReplicaSet", "rs"),
                },
                "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(scheduled)}]},
            });
            view.pod(&serde_json::from_value(pod).unwrap(), None);
        }
        view.complete();
        let row = one(view, 20);
        let times = (row.started_at, row.expires_at, row.floor_until);
        assert_eq!(times, (Some(at(5)), Some(at(65)), Some(at(27))), "{kind:?}");
    }
}
