//! The webhook is down, or not there any more.

use std::fs;

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    pages::run,
    workloads::{Namespace, workload},
};

use crate::{V2, V3, create, queue, switch::commands, write};

const UNCONVERTED: &str = "conversion webhook for scheduling.run.ai/v3alpha1, Kind=Queue failed";

#[tokio::test]
async fn v3alpha1_goes_on_without_a_webhook_and_v2_fails_until_nothing_is_converted() {
    let values = ["webhook.failurePolicy=Ignore", "crds.serveV2=true"];
    let world = &Box::pin(World::installed("versions-down", &values)).await.unwrap();
    let cluster = &world.cluster;
    create(cluster, &queue(V3, "stored", &json!({}), &json!({"maxDuration": "1h"}))).await;
    // clients that name no version ask for v2
    for resource in [V2, "queues.scheduling.run.ai"] {
        let output = cluster.kubectl(&["get", resource]).await.unwrap();
        assert!(output.stderr.contains(UNCONVERTED), "{}", output.stderr);
    }
    let output = write(cluster, &["create"], &queue(V2, "refused", &json!({}), &json!({}))).await;
    assert!(!output.status.success(), "{}", output.stderr);
    let names = cluster.kubectl(&["get", V3, "-o", "name"]).await.unwrap().success().unwrap();
    assert_eq!(names, "queue.scheduling.run.ai/stored\n");

    the_garbage_collector_asks_for(world).await;
    garbage_is_collected_and_namespaces_go(world).await;

    cluster
        .helm(&["uninstall", "tenure", "--namespace", "tenure-system", "--wait"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let commands = commands("After an uninstall");
    let (install, unconvert) = commands.split_once("kubectl patch ").unwrap();
    run(cluster, &format!("kubectl patch {unconvert}")).await;
    let names = async || {
        let output = cluster.kubectl(&["get", "queues.scheduling.run.ai", "-o", "name"]).await?;
        Ok(output.success().ok().filter(|names| names == "queue.scheduling.run.ai/stored\n"))
    };
    eventually("queues of both versions without a webhook", DEADLINE, names).await.unwrap();
    run(cluster, &format!("{} --force-conflicts", install.trim_end())).await;
    let strategy = ["get", "crd", "queues.scheduling.run.ai", "-o", "jsonpath={.spec.conversion.strategy}"];
    assert_eq!(cluster.kubectl(&strategy).await.unwrap().success().unwrap(), "Webhook");
    let delete = ["delete", "crd", "queues.scheduling.run.ai", "--timeout=60s"];
    cluster.kubectl(&delete).await.unwrap().success().unwrap();
}

/// It looks for new kinds twice a minute, and takes the preferred version.
async fn the_garbage_collector_asks_for(world: &World) {
    let asked = async || {
        let log = fs::read_to_string(world.cluster.audit_log())?;
        let asked = log.lines().any(|line| {
            line.contains("/apis/scheduling.run.ai/v2/queues") && line.contains("kube-controller-manager")
        });
        Ok(asked.then_some(()))
    };
    eventually("the garbage collector to ask for queues", DEADLINE, asked).await.unwrap();
}

async fn garbage_is_collected_and_namespaces_go(world: &World) {
    let namespace = Namespace::new(world).await;
    let test = workload("Deployment", namespace.name(), "test", &json!({}), &Value::Null);
    let test = namespace.create(&test).await;
    namespace.await_running(2).await;
    namespace.delete(&test).await;
    // the garbage is collected
    namespace.await_pods(&[]).await;
    let delete = ["delete", "namespace", namespace.name(), "--timeout=60s"];
    world.cluster.kubectl(&delete).await.unwrap().success().unwrap();
}
