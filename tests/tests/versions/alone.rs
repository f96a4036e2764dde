//! The default: v3alpha1 alone is served, and kubectl finds each field where it looks.

use serde_json::{Value, json};
use tenure_testbed::{Cluster, eventually};
use tenure_tests::{
    DEADLINE, World,
    pages::{commands, run, workspace},
};

use crate::{V2, V3, clients::example_of_the_readme, create, own_annotations, queue, read, seen};

const CRD: &str = "queues.scheduling.run.ai";

/// What kubectl prints, which must succeed.
async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    cluster.kubectl(arguments).await.unwrap().success().unwrap()
}

async fn conversion(cluster: &Cluster) -> Value {
    read(cluster, "crd", CRD).await["spec"]["conversion"].take()
}

/// The versions that are served.
async fn served(cluster: &Cluster) -> Vec<String> {
    let definition = read(cluster, "crd", CRD).await;
    let versions = definition["spec"]["versions"].as_array().unwrap().iter();
    versions
        .filter(|version| version["served"] == true)
        .map(|version| version["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn kubectl_shows_and_changes_each_field_by_the_kind_alone_and_no_queue_is_converted() {
    // with this policy, a queue passes without a webhook
    let values = ["crds.tensorstack=false", "webhook.failurePolicy=Ignore"];
    let world = &Box::pin(World::installed_alone("versions-alone", &values)).await.unwrap();
    let cluster = &world.cluster;
    world.tenure.start_webhook(cluster).await.unwrap();
    let explained = kubectl(cluster, &["explain", "queue.spec.maxDuration"]).await;
    assert!(explained.contains("FIELD: maxDuration <string>"), "{explained}");
    let example = example_of_the_readme();
    cluster.kubectl_with_input(&["apply", "-f", "-"], example).await.unwrap().success().unwrap();
    let whole = kubectl(cluster, &["get", "queue", "research", "-o", "yaml"]).await;
    assert!(whole.contains("\n  maxDuration: 2d\n"), "{whole}");
    let ceiling = async || seen(cluster, V3, "research").await.0["maxDuration"].take();
    let patch = ["patch", "queue", "research", "--type=merge", "-p", r#"{"spec": {"maxDuration": "77h"}}"#];
    kubectl(cluster, &patch).await;
    assert_eq!(ceiling().await, "77h");
    run(cluster, "KUBE_EDITOR='sed -i s/77h/78h/' kubectl edit queue research").await;
    assert_eq!(ceiling().await, "78h");
    for kind in ["queue", "queues", "rq"] {
        let table = kubectl(cluster, &["get", kind]).await;
        let head: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
        for column in ["MAX-DURATION", "PREEMPT-MIN", "RECLAIM-MIN", "RUNNING", "PAUSED"] {
            assert!(head.contains(&column), "{kind}: {table}");
        }
    }

    assert_eq!(
        (served(cluster).await, conversion(cluster).await),
        (vec!["v3alpha1".into()], json!({"strategy": "None"}))
    );
    let in_v2 = example.replace("v3alpha1", "v2");
    let refused = cluster.kubectl_with_input(&["apply", "-f", "-"], &in_v2).await.unwrap();
    let expected = "no matches for kind \"Queue\" in version \"scheduling.run.ai/v2\"";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    let metrics = format!("--server={}", world.tenure.admin_urls()[0]);
    let metrics = kubectl(cluster, &[&metrics, "get", "--raw=/metrics"]).await;
    let conversions = metrics.lines().filter(|line| line.starts_with("tenure_webhook_conversions_total{"));
    let conversions: Vec<_> = conversions.collect();
    assert!(conversions.len() == 4 && conversions.iter().all(|line| line.ends_with(" 0")), "{conversions:?}");

    v2_is_served_by_the_command_of_the_page(world).await;
    the_queue_of_helm_test_passes_only_by_the_webhook(world).await;
}

async fn v2_is_served_by_the_command_of_the_page(world: &World) {
    let cluster = &world.cluster;
    let spec = json!({"maxDuration": "30d"});
    create(cluster, &queue(V3, "both", &json!({}), &spec)).await;
    run(cluster, &commands("queue-versions.md", "Serve v2 as well").concat()).await;
    let both = eventually("v2 to be served", DEADLINE, async || {
        Ok(cluster.kubectl(&["get", V2, "both", "-o", "yaml"]).await?.success().ok())
    });
    let both = both.await.unwrap();
    assert!(both.contains("tenure.dev/max-duration: 30d"), "{both}");
    create(cluster, &queue(V2, "from-v2", &own_annotations(), &json!({}))).await;
    assert_eq!(seen(cluster, V3, "from-v2").await.0["maxDuration"], "30d");

    run(cluster, &commands("queue-versions.md", "Stop serving v2").concat()).await;
    assert_eq!(
        (served(cluster).await, conversion(cluster).await),
        (vec!["v3alpha1".into()], json!({"strategy": "None"}))
    );
    assert_eq!(seen(cluster, V3, "both").await.0, spec);
}

/// Also with `failurePolicy: Ignore`, with which other queues need no webhook.
async fn the_queue_of_helm_test_passes_only_by_the_webhook(world: &World) {
    let cluster = &world.cluster;
    let chart = workspace().join("charts/tenure").display().to_string();
    let template = ["template", "tenure", &chart, "-n", "tenure-system", "--set", "test.enabled=true"];
    let only = ["--show-only", "templates/tests/queue.yaml"];
    let rendered = cluster.helm(&[&template[..], &only].concat()).await.unwrap().success().unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let map = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    let queue = map["data"]["queue.yaml"].as_str().unwrap();
    assert!(queue.contains("scheduling.run.ai/v3alpha1"), "{queue}");
    let dry_run = async || {
        let create = ["create", "--dry-run=server", "-f", "-"];
        cluster.kubectl_with_input(&create, queue).await.unwrap()
    };
    dry_run().await.success().unwrap();
    world.tenure.stop_webhook().await.unwrap();
    let refused = dry_run().await;
    assert!(refused.stderr.contains("Tenure's webhook writes it while it is up"), "{}", refused.stderr);
}
