//! Refusals by others: of a return, of its events, of the end of pods.

use jiff::Timestamp;
use serde_json::json;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    policies::{Refusal, keeper_user},
};

use super::{
    scene::{
        PAUSED, STATE, annotation, await_eviction, await_running, job, job_of, place, queue, return_at,
        unready, waiting_long,
    },
    world,
};

fn unless_the_keeper_writes(resource: &str) -> String {
    format!("request.resource.resource != '{resource}' || request.userInfo.username != '{}'", keeper_user())
}

#[tokio::test]
async fn a_return_that_is_refused_is_recorded_with_what_helps_and_comes_when_it_is_allowed() {
    let world = world().await;
    let namespace = place(world, &waiting_long()).await;
    let job = job(&namespace, "train").await;
    await_eviction(&namespace, &job, 1).await;
    let refusal = Refusal::start(world, &namespace, &unless_the_keeper_writes("jobs")).await;
    return_at(&namespace, &[&job], Timestamp::now()).await;
    let recorded = namespace.await_events_of("ReturnRefused", 1).await;
    let help = format!("kubectl tenure resume job.batch/train -n {}", namespace.name());
    assert!(recorded[0].starts_with("Job/train: Could not set spec.suspend back to false"), "{recorded:?}");
    assert!(recorded[0].contains(&help) && recorded[0].contains("denied request: refused"), "{recorded:?}");
    refusal.lift(world).await;
    await_running(&namespace, &job).await;
    assert_eq!(namespace.await_events_of("Requeued", 1).await.len(), 1);
    assert_eq!(namespace.events_of("ReturnRefused").await.len(), 1);
}

#[tokio::test]
async fn events_that_can_not_be_written_hold_up_no_return() {
    let world = world().await;
    let namespace = place(world, &waiting_long()).await;
    let [one, two, three] = ["one", "two", "three"].map(|name| job(&namespace, name));
    let jobs: [_; 3] = tokio::join!(one, two, three).into();
    for job in &jobs {
        await_eviction(&namespace, job, 1).await;
    }
    namespace.await_events_of("EvictedDueToPodsReadyTimeout", 3).await;
    // the keeper tries for a minute to write each
    let _refused = Refusal::forbidding(world, &namespace, &unless_the_keeper_writes("events")).await;
    return_at(&namespace, &jobs.each_ref(), Timestamp::now()).await;
    let all = async || {
        for job in &jobs {
            if namespace.field(job, "spec.suspend").await == json!(true) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    };
    eventually("all three to come back", DEADLINE, all).await.unwrap();
    assert_eq!(namespace.events_of("Requeued").await, [""; 0]);
}

#[tokio::test]
async fn pods_that_outlive_a_pause_are_not_counted_once_more_when_it_is_ended() {
    let world = world().await;
    let namespace = place(world, &waiting_long()).await;
    let controller = "system:serviceaccount:kube-system:job-controller";
    let deletes = format!("request.operation == 'DELETE' && request.userInfo.username == '{controller}'");
    let _kept = Refusal::start(world, &namespace, &format!("!({deletes})")).await;
    let job = job(&namespace, "train").await;
    await_eviction(&namespace, &job, 1).await;
    let pods = namespace.pod_names().await;
    assert_eq!(pods.len(), 2, "{pods:?}");
    // as `kubectl tenure requeue` does
    let requeue = json!({PAUSED: null, STATE: json!({"count": 1}).to_string()});
    namespace.patch(&job, &json!({"metadata": {"annotations": requeue}, "spec": {"suspend": false}})).await;

    // it is due after the pods of the other would be once more
    let mut later = waiting_long();
    later["waitForPodsReady"]["timeout"] = json!("8s");
    let slow = format!("{}-slow", namespace.name());
    queue(&namespace, &slow, &later).await;
    let other = namespace.create(&job_of(&namespace, "other", &unready(&slow))).await;
    await_eviction(&namespace, &other, 1).await;
    assert_eq!(namespace.field(&job, "spec.suspend").await, json!(false));
    assert_eq!(annotation(&namespace, &job, PAUSED).await, None);
    assert_eq!(annotation(&namespace, &job, STATE).await, Some(json!({"count": 1})));
    let still = namespace.pod_names().await;
    assert!(pods.iter().all(|pod| still.contains(pod)), "{pods:?} {still:?}");
}
