use serde_json::{Value, json};
use tenure_policy::{extension::RequestedRun, judge::RunState};
use tenure_types::{
    extension::{Extension, slim},
    podgroup::PodGroupKind,
    projection,
    runai::v3alpha1::QueueSpec,
    tensorstack::v1beta1,
};

use super::*;
use crate::{CeilingIndex, CeilingOptions};

const ASKED: &str = "2026-01-01T00:30:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// An index with a queue of one hour that allows this.
fn index(extensions: &Value) -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    let queue = json!({"maxDuration": "1h", "extensions": extensions});
    index.apply_queue("q", &serde_json::from_value::<QueueSpec>(queue).unwrap());
    index
}

/// A pod that was scheduled at this time, of a Job or without an owner.
fn pod(name: &str, job: Option<&str>, scheduled: &str) -> projection::Pod {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled});
    let owners: Vec<Value> = job
        .map(|uid| json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": true}))
        .into_iter()
        .collect();
    let metadata = json!({
        "name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"kai.scheduler/queue": "q"}, "ownerReferences": owners,
    });
    serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": [condition]}})).unwrap()
}

fn extension(name: &str, namespace: &str, workload: &str, state: &str) -> Extension {
    let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": workload});
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": ASKED},
        "spec": {"target": target, "duration": "30m"}, "status": {"state": state, "granted": "30m"},
    });
    serde_json::from_value(object).unwrap()
}

fn end(index: &mut CeilingIndex, pod: &projection::Pod) -> Timestamp {
    index.standing(pod).unwrap().expires.unwrap().0
}

fn going(run: RequestedRun) -> GoingRun {
    match run {
        RequestedRun::Going(run) => run,
        other => panic!("{other:?}"),
    }
}

fn state(index: &mut CeilingIndex, pod: &projection::Pod, granted: &[Extension]) -> RunState {
    index.run_state(pod, (Family::Runai, "q"), None, Some(granted), at(ASKED))
}

#[test]
fn a_grant_moves_the_end_of_each_run_that_had_begun_when_it_was_asked_for() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let early = pod("early", Some("job"), "2026-01-01T00:00:00Z");
    let late = pod("late", Some("job"), "2026-01-01T00:30:01Z");
    for pod in [&early, &late] {
        index.apply_pod(pod);
    }
    index.apply_extension(&extension("e", "ns", "job", "Granted"));
    assert_eq!(end(&mut index, &early), at("2026-01-01T01:30:00Z"));
    assert_eq!(end(&mut index, &late), at("2026-01-01T01:30:01Z"), "a run of its own");
    assert_eq!(index.next_expiry(), Some(at("2026-01-01T01:30:00Z")));
    index.apply_extension(&extension("e", "ns", "job", "Used"));
    assert_eq!(index.next_expiry(), Some(at("2026-01-01T01:00:00Z")));
}

#[test]
fn a_grant_is_of_one_workload_of_its_namespace() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let (owned, alone) = (pod("a", Some("job"), ASKED), pod("b", None, ASKED));
    index.apply_extension(&extension("elsewhere", "other", "job", "Granted"));
    index.apply_extension(&extension("another", "ns", "another", "Granted"));
    index.apply_extension(&extension("of-the-pod", "ns", "a", "Granted"));
    let ceiling = at("2026-01-01T01:30:00Z");
    assert_eq!(end(&mut index, &owned), ceiling, "its owner is the workload");
    index.apply_extension(&extension("alone", "ns", "b", "Granted"));
    assert_eq!(end(&mut index, &alone), ceiling + SignedDuration::from_mins(30));
}

/// A tenant's finalizer holds an extension in deletion for as long as the tenant likes.
#[test]
fn an_extension_that_is_being_deleted_gives_no_time() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let pod = pod("a", Some("job"), "2026-01-01T00:00:00Z");
    index.apply_pod(&pod);
    let mut granted = extension("e", "ns", "job", "Granted");
    index.apply_extension(&granted);
    assert_eq!(end(&mut index, &pod), at("2026-01-01T01:30:00Z"));
    granted.metadata.deletion_timestamp = granted.metadata.creation_timestamp.clone();
    let granted = slim(granted);
    index.apply_extension(&granted);
    assert_eq!(end(&mut index, &pod), at("2026-01-01T01:00:00Z"));
    let listed = state(&mut index, &pod, &[granted]);
    assert_eq!(listed.granted_end, Some(at("2026-01-01T01:00:00Z")));
}

#[test]
fn a_list_counts_in_place_of_what_the_watch_has_shown() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let pod = pod("a", Some("job"), "2026-01-01T00:00:00Z");
    index.apply_pod(&pod);
    let (first, second) =
        (extension("first", "ns", "job", "Granted"), extension("second", "ns", "job", "Granted"));
    index.apply_extension(&first);
    assert_eq!(state(&mut index, &pod, &[]).granted_end, Some(at("2026-01-01T01:00:00Z")));
    assert_eq!(state(&mut index, &pod, &[first, second]).granted_end, Some(at("2026-01-01T02:00:00Z")));
    assert_eq!(end(&mut index, &pod), at("2026-01-01T01:30:00Z"), "nothing stays of it");
}

#[test]
fn a_request_is_for_the_run_that_goes_on_when_it_is_made() {
    let mut index = index(&json!({"autoApprove": "1h", "maxTotal": "2h", "maxCount": 5}));
    let job = Uid::of("job");
    assert_eq!(index.requested_run("ns", job, at(ASKED)), RequestedRun::Unknown);
    index.apply_pod(&pod("a", Some("job"), "2026-01-01T00:00:00Z"));
    index.apply_extension(&extension("e", "ns", "job", "Granted"));
    let run = going(index.requested_run("ns", job, at(ASKED)));
    assert_eq!((run.queue.as_str(), run.limited_by.as_deref(), run.has_ceiling), ("q", Some("q"), true));
    assert_eq!((run.count, run.total), (1, SignedDuration::from_mins(30)));
    assert_eq!(run.allowance.max_count, Some(5));
    assert_eq!(index.requested_run("other", job, at(ASKED)), RequestedRun::Unknown);
    assert_eq!(index.requested_run("ns", job, at("2025-12-31T23:59:59Z")), RequestedRun::Over);
    assert!(state(&mut index, &pod("a", Some("job"), ASKED), &[]).may_be_extended);
}

#[test]
fn a_denial_by_a_person_holds_for_the_run_and_for_no_later_one() {
    let mut index = index(&json!({"autoApprove": "1h", "maxTotal": "2h"}));
    let job = Uid::of("job");
    index.apply_pod(&pod("a", Some("job"), "2026-01-01T00:00:00Z"));
    let denied = |by: &str| {
        let mut denied = extension("e", "ns", "job", "Denied");
        denied.status.as_mut().unwrap().by = Some(by.to_owned());
        denied
    };
    for (decided, expected) in [
        (extension("e", "ns", "job", "Granted"), (false, 1)),
        (denied("tenure-keeper"), (false, 0)),
        (denied("ada"), (true, 0)),
    ] {
        index.apply_extension(&decided);
        let run = going(index.requested_run("ns", job, at(ASKED)));
        assert_eq!((run.is_denied, run.count), expected);
    }
    index.delete_pod(Uid::of("a"));
    index.apply_pod(&pod("b", Some("job"), "2026-01-01T00:30:01Z"));
    assert!(!going(index.requested_run("ns", job, at("2026-01-01T01:00:00Z"))).is_denied);
}

#[test]
fn a_run_in_a_queue_that_does_not_exist_has_not_ended() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let mut lost = pod("a", Some("job"), "2026-01-01T00:00:00Z");
    lost.metadata.labels = Some([("kai.scheduler/queue".to_owned(), "reserch".to_owned())].into());
    index.apply_pod(&lost);
    let run = index.requested_run("ns", Uid::of("job"), at(ASKED));
    assert_eq!(run, RequestedRun::WithoutQueue("reserch".into()));
}

#[test]
fn a_run_in_no_queue_has_not_ended() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let mut lost = pod("a", Some("job"), "2026-01-01T00:00:00Z");
    lost.metadata.labels = None;
    lost.metadata.annotations = Some([("pod-group-name".to_owned(), "missing".to_owned())].into());
    index.apply_pod(&lost);
    assert_eq!(index.requested_run("ns", Uid::of("job"), at(ASKED)), RequestedRun::Unknown);
}

#[test]
fn a_request_is_for_the_workload_whose_grants_count() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let mut pod = pod("a", None, "2026-01-01T00:00:00Z");
    let above = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true}]);
    pod.metadata.owner_references = serde_json::from_value(above).unwrap();
    index.apply_pod(&pod);
    index.apply_extension(&extension("e", "ns", "a", "Granted"));
    assert_eq!(end(&mut index, &pod), at("2026-01-01T01:30:00Z"), "no Deployment makes pods");
    assert_eq!(going(index.requested_run("ns", Uid::of("a"), at(ASKED))).count, 1);
    assert_eq!(index.requested_run("ns", Uid::of("web"), at(ASKED)), RequestedRun::Unknown);
}

#[test]
fn of_several_pods_the_least_that_is_allowed_counts() {
    let mut index = index(&json!({"autoApprove": "1h", "maxTotal": "2h"}));
    index.apply_queue("none", &serde_json::from_value::<QueueSpec>(json!({"maxDuration": "1h"})).unwrap());
    index.apply_pod(&pod("a", Some("job"), "2026-01-01T00:00:00Z"));
    let mut other = pod("b", Some("job"), "2026-01-01T00:00:00Z");
    other.metadata.labels = Some([("kai.scheduler/queue".to_owned(), "none".to_owned())].into());
    index.apply_pod(&other);
    let run = going(index.requested_run("ns", Uid::of("job"), at(ASKED)));
    assert!(run.allowance.is_none());
    assert_eq!(run.limited_by.as_deref(), Some("none"));
    assert!(!state(&mut index, &other, &[]).may_be_extended);
}

/// A pod of queue `q` that a tenant has given this evidence before it was bound.
fn forged(scheduled: &str, evidence: &Value) -> projection::Pod {
    let mut forged = pod("a", Some("job"), scheduled);
    forged.metadata.annotations = Some([("tenure.dev/evidence".to_owned(), evidence.to_string())].into());
    forged
}

#[test]
fn evidence_of_an_earlier_start_makes_no_earlier_grant_count() {
    let mut index = index(&json!({"maxTotal": "2h"}));
    let late = forged("2026-01-01T00:30:01Z", &json!({"since": "2026-01-01T00:10:00Z"}));
    index.apply_pod(&late);
    index.apply_extension(&extension("e", "ns", "job", "Granted"));
    assert_eq!(end(&mut index, &late), at("2026-01-01T01:10:00Z"), "its end only moves earlier");
    assert_eq!(index.requested_run("ns", Uid::of("job"), at(ASKED)), RequestedRun::Over);
}

#[test]
fn a_denial_by_a_person_holds_for_a_run_whose_start_evidence_alone_shows() {
    for evidence in ["since", "groupStart"] {
        let mut index = index(&json!({"autoApprove": "1h", "maxTotal": "2h"}));
        index.apply_pod(&forged("2026-01-01T00:30:01Z", &json!({evidence: "2026-01-01T00:10:00Z"})));
        let mut denied = extension("e", "ns", "job", "Denied");
        denied.status.as_mut().unwrap().by = Some("ada".to_owned());
        index.apply_extension(&denied);
        let asked = at("2026-01-01T00:40:00Z");
        assert!(going(index.requested_run("ns", Uid::of("job"), asked)).is_denied, "{evidence}");
    }
}

#[test]
fn a_queue_that_ends_a_run_earlier_gives_it_no_more_time_than_its_others() {
    let spec = |spec: Value| serde_json::from_value::<QueueSpec>(spec).unwrap();
    let generous = spec(json!({"maxDuration": "30m", "extensions": {"autoApprove": "2d", "maxTotal": "2d"}}));
    let mut index = index(&json!({}));
    index.apply_queue("generous", &generous);
    let evidence = json!({"queues": {"scheduling.run.ai": "generous"}});
    let pod = forged("2026-01-01T00:00:00Z", &evidence);
    index.apply_pod(&pod);
    index.apply_extension(&extension("e", "ns", "job", "Granted"));
    assert_eq!(end(&mut index, &pod), at("2026-01-01T00:30:00Z"));
    let run = going(index.requested_run("ns", Uid::of("job"), at(ASKED)));
    assert!((run.queue.as_str(), run.allowance.is_none()) == ("generous", true), "{run:?}");
    assert_eq!(run.limited_by.as_deref(), Some("q"));
    assert!(!state(&mut index, &pod, &[]).may_be_extended);
}

#[test]
fn a_run_that_a_ceiling_of_t9k_ends_gets_no_time() {
    let mut index = index(&json!({"autoApprove": "2h", "maxTotal": "2h"}));
    let short = json!({"maxDuration": "30m"});
    index.apply_queue("t9k", &serde_json::from_value::<v1beta1::QueueSpec>(short).unwrap());
    let mut pod = pod("a", Some("job"), "2026-01-01T00:00:00Z");
    let labels = pod.metadata.labels.as_mut().unwrap();
    labels.insert("scheduler.tensorstack.dev/queue".into(), "t9k".into());
    index.apply_pod(&pod);
    assert_eq!(end(&mut index, &pod), at("2026-01-01T00:30:00Z"));
    assert!(going(index.requested_run("ns", Uid::of("job"), at(ASKED))).allowance.is_none());
}

#[test]
fn each_value_of_an_allowance_is_remembered_by_a_queue_that_has_the_least() {
    let spec = |spec: Value| serde_json::from_value::<QueueSpec>(spec).unwrap();
    let mut index = index(&json!({"maxTotal": "2h", "maxCount": 9}));
    let short = json!({"maxDuration": "30m", "extensions": {"autoApprove": "1h", "maxTotal": "1h"}});
    index.apply_queue("short", &spec(short));
    index.apply_queue(
        "once",
        &spec(json!({"extensions": {"autoApprove": "3h", "maxTotal": "3h", "maxCount": 1}})),
    );
    let evidence = json!({"queues": {"scheduling.run.ai": "short"}, "extensions": ["once", "q"]});
    let mut pod = forged("2026-01-01T00:00:00Z", &evidence);
    pod.metadata.labels = None;
    index.apply_pod(&pod);
    assert!(index.missing_evidence().is_empty(), "it is all there");
    let run = going(index.requested_run("ns", Uid::of("job"), at(ASKED)));
    let expected = Allowance { max_total: "1h".parse().unwrap(), max_count: Some(1), ..Allowance::default() };
    assert_eq!(run.allowance, expected);
}

/// The next keeper doesn't know the group that was there before.
#[test]
fn a_group_that_is_made_again_with_another_queue_gives_its_pods_no_more_time() {
    let spec = |spec: Value| serde_json::from_value::<QueueSpec>(spec).unwrap();
    let group = |queue: &str| {
        let metadata = json!({"name": "gang", "namespace": "ns", "uid": queue, "creationTimestamp": ASKED});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"queue": queue, "minMember": 1}}))
            .unwrap()
    };
    let mut evidence = json!({"queues": {"scheduling.run.ai": "q"}});
    for _ in 0..3 {
        let mut next = index(&json!({}));
        next.apply_queue("generous", &spec(json!({"maxDuration": "30m", "extensions": {"maxTotal": "2d"}})));
        next.apply_group(PodGroupKind::Runai, &group("generous"));
        let mut pod = forged("2026-01-01T00:00:00Z", &evidence);
        pod.metadata.labels = None;
        pod.metadata.annotations.as_mut().unwrap().insert("pod-group-name".into(), "gang".into());
        next.apply_pod(&pod);
        next.apply_extension(&extension("e", "ns", "job", "Granted"));
        assert_eq!(end(&mut next, &pod), at("2026-01-01T00:30:00Z"), "{evidence}");
        if let Some(missing) = next.missing_evidence().pop() {
            evidence = serde_json::to_value(missing.facts.evidence).unwrap();
        }
    }
    let expected = json!({"queues": {"scheduling.run.ai": "generous"}, "extensions": ["q"]});
    assert_eq!(evidence, expected);
}
