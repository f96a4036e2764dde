//! Requests that are denied, and the messages.

use axum::http::StatusCode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tenure_webhook::{LargeBodies, Metrics, guard_router};

use crate::{
    oneshot,
    world::{NOW, SCHEDULER, UID, World, ago, deletion, eviction, merge, pod, post},
};

/// Replaces the rest of twenty minutes by an ellipsis, since the tests' clock goes on.
fn until_left(text: &str) -> String {
    let (before, after) = text.split_once("for another ").unwrap();
    let (left, after) = after.split_once(": ").unwrap();
    assert!(left.starts_with("19m") || left.starts_with("18m"), "{left}");
    format!("{before}for another …: {after}")
}

#[tokio::test]
async fn a_deletion_by_a_scheduler_within_the_floor_is_denied() {
    let victim = pod("victim", &json!({}));
    let mut response = World::new(std::slice::from_ref(&victim)).answer(&deletion(SCHEDULER, &victim)).await;
    let message = until_left(response["status"]["message"].as_str().unwrap());
    response["status"]["message"] = json!(message);
    let expected = json!({
        "uid": UID,
        "allowed": false,
        "status": {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "code": 429,
            "reason": "TooManyRequests",
            "message": "tenure: pod ns/victim is protected from being preempted until 2026-01-01T01:19:00Z, for another …: reclaimMinRuntime of its queue \"q\" is 20m, from queue \"q\"; wait, or set annotation tenure.dev/unguarded: \"true\" on the pod",
            "details": {"kind": "pods", "name": "victim", "retryAfterSeconds": 1},
        },
        "auditAnnotations": {
            "verdict": "denied", "reason": "protected", "rule": "reclaimMinRuntime",
            "protected-until": "2026-01-01T01:19:00Z",
        },
    });
    assert_eq!(response, expected);
}

#[tokio::test]
async fn an_eviction_by_anybody_within_the_floor_is_denied() {
    let world = World::new(&[pod("victim", &json!({}))]);
    for user in ["admin", SCHEDULER, "system:serviceaccount:kube-system:cluster-autoscaler", ""] {
        let mut response = world.answer(&eviction(user, "ns", "victim")).await;
        let message = until_left(response["status"]["message"].as_str().unwrap());
        response["status"]["message"] = json!(message);
        let status = json!({
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "code": 429,
            "reason": "TooManyRequests",
            "message": "tenure: pod ns/victim is protected from being evicted until 2026-01-01T01:19:00Z, for another …: reclaimMinRuntime of its queue \"q\" is 20m, from queue \"q\"; wait, or set annotation tenure.dev/unguarded: \"true\" on the pod",
            "details": {"kind": "pods", "name": "victim", "retryAfterSeconds": 1},
        });
        assert_eq!(response["status"], status, "{user}");
        assert_eq!(response["auditAnnotations"]["reason"], "protected");
    }
}

#[tokio::test]
async fn after_the_floor_a_pod_may_go() {
    let at = ago(1200);
    let old = json!({
        "metadata": {"creationTimestamp": at},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]},
    });
    let old = pod("old", &old);
    let world = World::new(std::slice::from_ref(&old));
    for review in [deletion(SCHEDULER, &old), eviction("admin", "ns", "old")] {
        let response = world.answer(&review).await;
        let annotations = json!({"verdict": "allowed", "reason": "unprotected"});
        assert_eq!(response, json!({"uid": UID, "allowed": true, "auditAnnotations": annotations}));
    }
}

#[tokio::test]
async fn what_only_would_be_is_answered_as_what_is() {
    let victim = pod("victim", &json!({}));
    let world = World::new(std::slice::from_ref(&victim));
    for mut review in [deletion(SCHEDULER, &victim), eviction("admin", "ns", "victim")] {
        merge(&mut review["request"], &json!({"dryRun": true}));
        assert_eq!(world.denied(&review).await, "protected");
    }
}

#[tokio::test]
async fn a_pod_of_a_collection_that_is_deleted_is_named_by_itself_alone() {
    let victim = pod("victim", &json!({}));
    let world = World::new(std::slice::from_ref(&victim));
    let mut review = deletion(SCHEDULER, &victim);
    review["request"]["name"] = json!("");
    let response = world.answer(&review).await;
    assert_eq!(response["status"]["details"]["name"], "victim");
    merge(&mut review["request"], &json!({"name": null}));
    assert_eq!(world.denied(&review).await, "protected");
}

#[tokio::test]
async fn an_eviction_need_not_repeat_what_its_path_says() {
    let world = World::new(&[pod("victim", &json!({}))]);
    let mut review = eviction("admin", "ns", "victim");
    review["request"]["object"]["metadata"] = json!({});
    assert_eq!(world.denied(&review).await, "protected");
}

#[tokio::test]
async fn a_pod_that_replaced_another_of_its_name_is_another() {
    let victim = pod("victim", &json!({}));
    let world = World::new(std::slice::from_ref(&victim));
    let replaced = pod("victim", &json!({"metadata": {"uid": "another"}}));
    assert_eq!(world.allowed(&deletion(SCHEDULER, &replaced)).await, "unknown");
}

#[tokio::test]
async fn a_toleration_without_an_end_keeps_a_pod_from_schedulers_and_not_from_drains() {
    let tolerant =
        pod("tolerant", &json!({"metadata": {"labels": null}, "spec": {"priorityClassName": "c"}}));
    let world = World::new(std::slice::from_ref(&tolerant));
    let response = world.answer(&deletion(SCHEDULER, &tolerant)).await;
    assert_eq!(
        response["status"]["message"],
        "tenure: pod ns/tolerant is protected from being preempted with no end that is known: its PriorityClass \"c\" doesn't exist, and what it tolerates isn't known; if it must go, set annotation tenure.dev/unguarded: \"true\" on the pod"
    );
    let annotations = json!({"verdict": "denied", "reason": "protected", "rule": "preemptionToleration"});
    assert_eq!(response["auditAnnotations"], annotations);
    assert_eq!(world.allowed(&eviction("admin", "ns", "tolerant")).await, "endless");
}

#[tokio::test]
async fn until_all_is_known_every_pod_may_go() {
    let victim = pod("victim", &json!({}));
    let world = World::new(std::slice::from_ref(&victim));
    let awaited = world.readiness.awaiting("pods");
    for review in [deletion(SCHEDULER, &victim), eviction("admin", "ns", "victim")] {
        assert_eq!(world.allowed(&review).await, "syncing");
    }
    awaited.done();
    assert_eq!(world.denied(&deletion(SCHEDULER, &victim)).await, "protected");
    // a webhook that shuts down still knows all
    world.readiness.drain();
    assert_eq!(world.denied(&deletion(SCHEDULER, &victim)).await, "protected");
}

#[tokio::test]
async fn verdicts_are_counted_by_operation_and_reason() {
    let victim = pod("victim", &json!({}));
    let world = World::new(std::slice::from_ref(&victim));
    for review in [
        deletion(SCHEDULER, &victim),
        deletion(SCHEDULER, &victim),
        deletion("admin", &victim),
        eviction("admin", "ns", "victim"),
        eviction("admin", "ns", "missing"),
    ] {
        world.answer(&review).await;
    }
    let metrics = world.metrics();
    for (operation, reason, count) in [
        ("delete", "protected", 2),
        ("delete", "other-user", 1),
        ("evict", "protected", 1),
        ("evict", "unknown", 1),
    ] {
        let line = format!("guard_verdicts_total{{operation=\"{operation}\",reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} {metrics}");
    }
}

#[tokio::test]
async fn where_the_guard_is_off_everything_is_admitted_and_that_is_said() {
    let victim = pod("victim", &json!({}));
    for review in [
        deletion(SCHEDULER, &victim),
        eviction("admin", "ns", "victim"),
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": UID},
        }),
    ] {
        let router = guard_router(None, Metrics::register(&mut Registry::default()), &LargeBodies::default());
        let (status, _, body) = oneshot::answer(router, post(review.to_string())).await;
        assert_eq!(status, StatusCode::OK);
        let response = serde_json::from_slice::<Value>(&body).unwrap()["response"].clone();
        let expected = json!({
            "uid": UID,
            "allowed": true,
            "warnings": ["tenure: the guard is off, and keeps nothing: start tenure-webhook with --guard, or set guard.enabled of its chart"],
            "auditAnnotations": {"verdict": "allowed", "reason": "off"},
        });
        assert_eq!(response, expected);
    }
}

#[test]
fn the_clock_of_the_tests_shows_the_time_of_their_pods() {
    assert_eq!(ago(0).to_string(), NOW);
}
