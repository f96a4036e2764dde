//! The two silent mistakes: the name of a queue that doesn't exist, and the label of a queue on the workload alone.

use serde_json::{Value, json};
use tenure_tests::workloads::{Namespace, bare_pod, in_runai_queue, runai_queue, workload};

use crate::world;

#[tokio::test]
async fn a_workload_whose_queue_does_not_exist_and_one_that_alone_has_the_label_have_one_event_about_it() {
    let namespace = Namespace::new(world().await).await;
    let name = namespace.name();
    namespace.apply(&runai_queue("mistaken", "", "1h")).await;
    namespace.create(&workload("Deployment", name, "typo", &in_runai_queue("mistakn"), &Value::Null)).await;
    namespace.create(&bare_pod(name, "alone", &in_runai_queue("mistakn"), &Value::Null)).await;
    let mut unlabelled = workload("Job", name, "labelled", &json!({}), &Value::Null);
    unlabelled["metadata"]["labels"] = in_runai_queue("mistaken");
    namespace.create(&unlabelled).await;
    let mut right = workload("Job", name, "right", &in_runai_queue("mistaken"), &Value::Null);
    right["metadata"]["labels"] = in_runai_queue("mistaken");
    namespace.create(&right).await;
    // named later
    namespace.create(&workload("Job", name, "early", &in_runai_queue("mistaken-later"), &Value::Null)).await;
    namespace.apply(&runai_queue("mistaken-later", "", "1h")).await;

    let mut events = namespace.await_events_of("QueueNotFound", 2).await;
    events.sort();
    let expected = |of: &str| {
        format!(
            "{of}: Queue \"mistakn\", which its pods name, doesn't exist: no ceiling ends its run. Correct label kai.scheduler/queue of its pod template, or spec.queue of its PodGroup, or have the queue created"
        )
    };
    assert_eq!(events, [expected("Deployment/typo"), expected("Pod/alone")]);
    let events = namespace.await_events_of("QueueLabelUnused", 1).await;
    let expected = "Job/labelled: metadata.labels[kai.scheduler/queue]: its pods have no queue, so no ceiling ends its run: write the label to the metadata of its pod template";
    assert_eq!(events, [expected]);
    assert_eq!(namespace.events_of("QueueNotFound").await.len(), 2);
}
