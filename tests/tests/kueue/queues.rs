//! Queues of Kueue's that stand for queues of Tenure's: users label their jobs once.

use serde_json::{Value, json};
use tenure_tests::{
    World, fixtures,
    workloads::{Namespace, bare_pod},
};

use super::{Kueue, await_starts, job, queue, tenure, workload_of};

/// Rows of the chart's values.
const ROWS: &[&str] = &[
    "kueue.queues[0].localQueue=main",
    "kueue.queues[0].queue=of-main",
    "kueue.queues[1].clusterQueue=gpu",
    "kueue.queues[1].queue=of-gpu",
    "tenancy.requireQueue.matchLabels.team=strict",
];

#[tokio::test]
async fn a_job_of_a_local_queue_has_the_ceiling_of_the_queue_that_it_stands_for() {
    let world = Box::pin(World::installed("kueue-queues", ROWS)).await.unwrap();
    fixtures::install(&world, fixtures::definitions(fixtures::KUEUE)).await;
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    let namespace = Namespace::new(&world).await;
    queue(&namespace, "of-main", &json!({"maxDuration": "3s"})).await;
    let kueue = Kueue::start(&world, &namespace, "v1beta2");
    // as Kueue labels the pods of a Job that it sets going
    let labels =
        json!({"kueue.x-k8s.io/local-queue-name": "main", "kueue.x-k8s.io/cluster-queue-name": "gpu"});
    job(&namespace, "train", &labels).await;
    await_starts(&kueue, &["train"]).await;
    let config = world.tenure.config_file().to_str().unwrap().to_owned();
    let listed = async || {
        let (list, _) = tenure(&world, &namespace, &["list", "-o", "json", "--config", &config]).await;
        serde_json::from_str::<Value>(&list).unwrap()
    };
    let workload = workload_of(&namespace, "train", "v1beta2").await;
    let record = namespace.await_pause_of(&workload, "spec.active", &json!(false)).await;
    assert_eq!((&record["queue"], &record["queueGroup"]), (&json!("of-main"), &json!("scheduling.run.ai")));
    namespace.await_pods(&[]).await;
    assert_eq!(listed().await[0]["queue"], "of-main");
    queue(&namespace, "of-main", &json!({"maxDuration": "1h"})).await;
    tenure(&world, &namespace, &["resume", "job/train"]).await;
    await_starts(&kueue, &["train", "train"]).await;
    namespace.await_running(1).await;
    let running = listed().await;
    assert_eq!(
        (&running[0]["queue"], &running[0]["ceilingFrom"]),
        (&json!("of-main"), &json!("of-main")),
        "{running:#}"
    );

    // where pods must name a queue, a queue that stands for one will do
    let strict = Namespace::new(&world).await;
    world
        .cluster
        .kubectl(&["label", "namespace", strict.name(), "team=strict"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let create = async |name: &str, labels: Value| {
        strict.try_create(&bare_pod(strict.name(), name, &labels, &Value::Null)).await
    };
    let refused = create("in-none", json!({})).await.unwrap_err();
    assert!(refused.message.contains("must name a queue"), "{refused:?}");
    create("in-another", json!({"kueue.x-k8s.io/queue-name": "another"})).await.unwrap_err();
    create("in-main", json!({"kueue.x-k8s.io/queue-name": "main"})).await.unwrap();
    create("in-gpu", json!({"kueue.x-k8s.io/cluster-queue-name": "gpu"})).await.unwrap();
}
