//! Queues of Kueue's that stand for queues of Tenure's: users label their jobs once.

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, fixtures,
    workloads::{Namespace, bare_pod},
};
use tokio::sync::OnceCell;

use super::{Kueue, await_starts, job, queue, tenure, workload_of};

/// Rows of the chart's values.
const ROWS: &[&str] = &[
    "kueue.queues[0].localQueue=main",
    "kueue.queues[0].queue=of-main",
    "kueue.queues[1].clusterQueue=gpu",
    "kueue.queues[1].queue=of-gpu",
    "kueue.queues[2].localQueue=training",
    "kueue.queues[2].queue=training",
    "tenancy.requireQueue.matchLabels.team=strict",
];

/// A cluster with these rows. Its keeper makes all its tries within a minute.
pub async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world = Box::pin(World::installed_with("kueue-queues", ROWS, &["--retry-after=1s"])).await?;
        fixtures::install(&world, fixtures::definitions(fixtures::KUEUE)).await;
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        anyhow::Ok(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

#[tokio::test]
async fn a_job_of_a_local_queue_has_the_ceiling_of_the_queue_that_it_stands_for() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    queue(&namespace, "of-main", &json!({"maxDuration": "3s"})).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    // as Kueue labels the pods of a Job that it sets going
    let labels =
        json!({"kueue.x-k8s.io/local-queue-name": "main", "kueue.x-k8s.io/cluster-queue-name": "gpu"});
    job(&namespace, "train", &labels).await;
    await_starts(&kueue, &["train"]).await;
    let config = world.tenure.config_file().to_str().unwrap().to_owned();
    let listed = async || {
        let list = tenure(world, &namespace, &["list", "-o", "json", "--config", &config]).await;
        serde_json::from_str::<Value>(&list).unwrap()
    };
    let workload = workload_of(&namespace, "train", "v1beta2").await;
    let record = namespace.await_pause_of(&workload, "spec.active", &json!(false)).await;
    assert_eq!((&record["queue"], &record["queueGroup"]), (&json!("of-main"), &json!("scheduling.run.ai")));
    namespace.await_pods(&[]).await;
    assert_eq!(listed().await[0]["queue"], "of-main");
    queue(&namespace, "of-main", &json!({"maxDuration": "1h"})).await;
    tenure(world, &namespace, &["resume", "job/train"]).await;
    await_starts(&kueue, &["train", "train"]).await;
    namespace.await_running(1).await;
    let running = listed().await;
    assert_eq!(
        (&running[0]["queue"], &running[0]["ceilingFrom"]),
        (&json!("of-main"), &json!("of-main")),
        "{running:#}"
    );

    // where pods must name a queue, a queue that stands for one will do
    let strict = Namespace::new(world).await;
    world.label_namespace(strict.name(), "team", "strict").await;
    let in_none = bare_pod(strict.name(), "in-none", &json!({}), &Value::Null);
    let refused = async || Ok(strict.try_dry_run(&in_none).await.err());
    let refused = eventually("the label to be seen", DEADLINE, refused).await.unwrap();
    assert!(refused.contains("must name a queue"), "{refused}");
    let create = async |name: &str, labels: Value| {
        strict.try_create(&bare_pod(strict.name(), name, &labels, &Value::Null)).await
    };
    create("in-another", json!({"kueue.x-k8s.io/queue-name": "another"})).await.unwrap_err();
    create("in-main", json!({"kueue.x-k8s.io/queue-name": "main"})).await.unwrap();
    let empty = json!({"kueue.x-k8s.io/local-queue-name": "", "kueue.x-k8s.io/queue-name": "main"});
    create("in-main-too", empty).await.unwrap();
    create("in-gpu", json!({"kueue.x-k8s.io/cluster-queue-name": "gpu"})).await.unwrap();
}

/// With a shorter ceiling, and with the label that Kueue gives to the pods of a Job that it sets going.
#[tokio::test]
async fn job_of_the_example_has_the_ceiling_of_the_queue_that_its_local_queue_stands_for() {
    const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/kueue.yaml");
    let world = world().await;
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let apply = async |namespace: &Namespace, text: &str| {
        let apply = ["apply", "--namespace", namespace.name(), "-f", "-"];
        let output = world.cluster.kubectl_with_input(&apply, text).await.unwrap();
        let warned = output.stderr.clone();
        output.success().unwrap();
        warned
    };
    assert_eq!(apply(&Namespace::new(world).await, &text).await, "", "it is accepted without a warning");

    let namespace = Namespace::new(world).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    let labelled = "  template:\n    metadata: {labels: {kueue.x-k8s.io/local-queue-name: training}}\n";
    let shorter = [("8h", "4s"), ("30m", "2s"), ("  template:\n", labelled)];
    let shorter = shorter.into_iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    assert!(apply(&namespace, &shorter).await.contains("4s is less than 10s"));
    await_starts(&kueue, &["finetune"]).await;
    let workload = workload_of(&namespace, "finetune", "v1beta2").await;
    let record = namespace.await_pause_of(&workload, "spec.active", &json!(false)).await;
    assert_eq!(record["queue"], "training");
    namespace.await_pods(&[]).await;
    assert_eq!(kueue.starts(), ["finetune"]);
}
