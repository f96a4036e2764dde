//! A grant counts for one run of one workload.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    workloads::{Namespace, bare_pod, controller, distinct, in_runai_queue, owned, workload},
};

use super::{await_state, extension, job, queue, seconds};
use crate::world;

/// The time of the pause in its record.
fn paused_at(record: &Value) -> Timestamp {
    record["at"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_grant_lengthens_the_run_that_it_was_asked_for_and_no_other() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&queue("runs", "8s", json!({"autoApprove": "6s", "maxTotal": "6s"}))).await;
    let web = workload("Deployment", namespace.name(), "web", &in_runai_queue("runs"), &Value::Null);
    let web = namespace.create(&web).await;
    namespace.await_running(2).await;
    let first = namespace.create(&extension(&web, "first", "6s")).await;
    await_state(&namespace, &first, "Granted").await;
    let started = *namespace.created().await.iter().min().unwrap();
    let record = namespace.await_paused("Deployment", "web").await;
    assert!(paused_at(&record) > started + seconds(14), "{record} {started}");
    assert_eq!(record["ceiling"], json!({"maxDuration": "8s", "queue": "runs", "extended": "6s"}));
    await_state(&namespace, &first, "Used").await;
    let used = namespace.await_events_of("ExtensionUsed", 1).await;
    assert_eq!(used, ["Deployment/web: Extension first: the run that got the time has ended"]);
    let ended = namespace.await_events_of("RunEnded", 1).await;
    let expected = "Deployment/web: Its run in Queue runs has reached the ceiling of 8s, set by that queue, and the end of the 6s granted beyond it. It stays paused until you resume it";
    assert!(ended[0].starts_with(expected), "{ended:?}");

    // after the pause it is too late
    let late = namespace.create(&extension(&web, "late", "6s")).await;
    let status = await_state(&namespace, &late, "Expired").await;
    assert!(
        status["message"].as_str().unwrap().contains("kubectl tenure resume deployment.apps/web"),
        "{status}"
    );

    namespace.await_pods(&[]).await;
    namespace.patch(&web, &json!({"spec": {"replicas": 1}})).await;
    namespace.await_running(1).await;
    let started = namespace.created().await[0];
    let again = async || {
        let record = namespace.pause("Deployment", "web").await;
        Ok(record.filter(|record| paused_at(record) > started))
    };
    let record = eventually("the second pause", DEADLINE, again).await.unwrap();
    assert_eq!(
        record["ceiling"],
        json!({"maxDuration": "8s", "queue": "runs"}),
        "a used grant counts no more"
    );
}

#[tokio::test]
async fn a_grant_of_a_deployment_counts_for_no_pod_that_merely_names_it() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&queue("named", "10s", json!({"autoApprove": "1h", "maxTotal": "1h"}))).await;
    let labels = in_runai_queue("named");
    let web = namespace.create(&workload("Deployment", namespace.name(), "web", &labels, &Value::Null)).await;
    let forged = distinct(bare_pod(namespace.name(), "forged", &labels, &Value::Null), "forged");
    let forged = namespace.create(&owned(forged, &[controller(&web)])).await;
    namespace.await_running(3).await;
    let granted = namespace.create(&extension(&web, "granted", "1h")).await;
    await_state(&namespace, &granted, "Granted").await;
    eventually("the pod to be deleted", DEADLINE, async || {
        let pod = namespace.get(&forged).await;
        Ok(pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(namespace.pause("Deployment", "web").await, None);
}

#[tokio::test]
async fn a_grant_of_a_workload_counts_for_no_other_of_its_name() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&queue("recreated", "10s", json!({"autoApprove": "1h", "maxTotal": "1h"}))).await;
    let train = job(&namespace, "train", "recreated");
    let old = namespace.create(&train).await;
    namespace.await_running(1).await;
    let granted = namespace.create(&extension(&old, "granted", "1h")).await;
    await_state(&namespace, &granted, "Granted").await;
    namespace.delete(&old).await;
    namespace.await_pods(&[]).await;
    let new = namespace.create(&train).await;
    assert_ne!(new.uid(), old.uid());
    await_state(&namespace, &granted, "Used").await;
    let reused = namespace.create(&extension(&old, "reused", "1h")).await;
    let status = await_state(&namespace, &reused, "Expired").await;
    assert_eq!(status["message"], format!("There is no Job train with uid {}", old.uid().unwrap()));
    namespace.await_paused("Job", "train").await;
}
