//! Deletions whose preemptor is known by a permit or by its nomination.

use serde_json::json;

use crate::world::{SCHEDULER, World, ago, deletion, eviction, pod, waiting};

/// A victim that is protected from other queues, and no longer from its own.
fn victim() -> serde_json::Value {
    let at = ago(700);
    let conditions = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]);
    pod("victim", &json!({"metadata": {"creationTimestamp": at}, "status": {"conditions": conditions}}))
}

#[tokio::test]
async fn a_permit_of_the_extender_covers_its_victims_and_no_others() {
    let (young, other) = (pod("young", &json!({})), pod("other", &json!({})));
    let world = World::new(&[young.clone(), other.clone()]);
    world.permit(&["young"]);
    let response = world.answer(&deletion(SCHEDULER, &young)).await;
    let annotations = json!({"verdict": "allowed", "reason": "permit", "preemptor": "ns/granted"});
    assert_eq!(response["auditAnnotations"], annotations);
    assert_eq!(world.denied(&deletion(SCHEDULER, &other)).await, "protected");
    assert_eq!(world.denied(&eviction("admin", "ns", "young")).await, "protected", "not for evictions");
}

#[tokio::test]
async fn a_replica_without_the_permit_sees_the_nomination() {
    let (victim, preemptor) = (victim(), waiting("preemptor", "q"));
    let granting = World::new(&[victim.clone(), preemptor]);
    granting.permit(&["victim"]);
    let other = World::seeing(granting.placement.clone());
    let review = deletion(SCHEDULER, &victim);
    assert_eq!(granting.allowed(&review).await, "permit");
    let response = other.answer(&review).await;
    let annotations = json!({"verdict": "allowed", "reason": "nominated", "preemptor": "ns/preemptor"});
    assert_eq!(response["auditAnnotations"], annotations);
}

#[tokio::test]
async fn before_the_nomination_is_seen_the_scheduler_is_to_come_back_soon() {
    let victim = victim();
    let world = World::new(std::slice::from_ref(&victim));
    let response = world.answer(&deletion(SCHEDULER, &victim)).await;
    assert_eq!(response["status"]["details"]["retryAfterSeconds"], 1, "{response}");
    world.apply(&waiting("preemptor", "q"));
    assert_eq!(world.allowed(&deletion(SCHEDULER, &victim)).await, "nominated");
}

#[tokio::test]
async fn a_nominated_pod_that_may_not_have_it_waits_and_the_scheduler_with_it() {
    let victim = victim();
    let world = World::new(&[victim.clone(), waiting("preemptor", "other")]);
    let response = world.answer(&deletion(SCHEDULER, &victim)).await;
    assert_eq!(response["allowed"], false);
    let annotations = json!({
        "verdict": "denied", "reason": "nominated-waits", "preemptor": "ns/preemptor",
        "rule": "reclaimMinRuntime", "protected-until": "2026-01-01T01:08:20Z",
    });
    assert_eq!(response["auditAnnotations"], annotations);
    let status = &response["status"];
    assert_eq!(status["details"]["retryAfterSeconds"], 10);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("from being preempted for pod ns/preemptor until 2026-01-01T01:08:20Z"),
        "{message}"
    );
}

#[tokio::test]
async fn a_nominated_pod_gives_no_user_a_right_to_evict() {
    let victim = victim();
    let world = World::new(&[victim, waiting("preemptor", "q")]);
    assert_eq!(world.denied(&eviction("admin", "ns", "victim")).await, "protected");
}
