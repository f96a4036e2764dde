//! The preset that takes the place of T9k's Duration Keeper. Its commands are those of that program's page.

use std::{fs, process::Command};

use anyhow::ensure;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Process, eventually, free_port, program};
use tokio::task::spawn_blocking;

use crate::{
    CHART, DEADLINE, arguments, find,
    keeper::CONFIG_FILE,
    kubectl,
    notes::{commands, shell},
    parse, template,
};

const PRESET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure/values-t9k.yaml");
const SYSTEM: &str = "t9k-system";
const COMPONENT: &str = "tensorstack.dev/component";

/// The Deployment `test` of Duration Keeper's page, and its Queue with an earlier end.
const EXAMPLE: &str = r#"
apiVersion: scheduler.tensorstack.dev/v1beta1
kind: Queue
metadata: {name: demo, namespace: t9k-system}
spec:
  closed: false
  maxDuration: 3s
  preemptible: true
  priority: 1
  quota: {requests: {cpu: "10", memory: 1Gi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: test, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {name: deploy-test}}
  template:
    metadata:
      labels: {name: deploy-test, scheduler.tensorstack.dev/queue: demo}
    spec:
      schedulerName: t9k-scheduler
      containers:
        - {name: nginx, image: nginx, resources: {requests: {cpu: 1, memory: 100Mi}}}
"#;

async fn preset(values: &Value) -> Vec<Value> {
    let output = template("tenure", values, &["--values", PRESET]).await;
    parse(&output.success().unwrap())
}

#[tokio::test]
async fn preset_is_named_and_labelled_as_the_duration_keeper() {
    let objects = preset(&json!({})).await;
    let deployment = find(&objects, "Deployment", "duration-keeper");
    assert_eq!(deployment.pointer("/metadata/namespace"), Some(&json!(SYSTEM)));
    for metadata in ["/metadata", "/spec/template/metadata"] {
        let labels = deployment.pointer(metadata).unwrap().get("labels").unwrap();
        assert_eq!(labels.get(COMPONENT), Some(&json!("duration-keeper")));
    }
    assert_eq!(deployment.pointer("/spec/replicas"), Some(&json!(1)));
    let arguments = arguments(deployment);
    for argument in [
        "--admin-listen=:8080",
        "--t9k-system-namespace=t9k-system",
        "--schedulers=t9k-scheduler",
        "--threadiness=1",
        "--log-level=info",
    ] {
        assert!(arguments.iter().any(|given| given == argument), "{argument} in {arguments:?}");
    }
    // KAI-Scheduler's is none
    let config = find(&objects, "ConfigMap", "tenure-config").pointer("/data/tenure.yaml").unwrap();
    let config: Value = serde_saphyr::from_str(config.as_str().unwrap()).unwrap();
    let keeper = "system:serviceaccount:t9k-system:duration-keeper";
    assert_eq!(config.get("trustedWriters"), Some(&json!([keeper])));
    let crds = |object: &&Value| object.get("kind") == Some(&json!("CustomResourceDefinition"));
    assert_eq!(objects.iter().find(crds), None);
    let off = preset(&json!({"options": {"durationKeeper": {"enabled": false}}})).await;
    assert!(!serde_json::to_string(&off).unwrap().contains("duration-keeper"));
}

#[tokio::test]
async fn preset_takes_the_place_of_the_duration_keeper() {
    let cluster = &Cluster::start("chart-t9k").await.unwrap();
    kubectl(cluster, &["create", "namespace", SYSTEM], "").await;
    // T9k's own, which the chart leaves alone
    let queues = format!("{CHART}/files/crds/scheduler.tensorstack.dev_queues.yaml");
    kubectl(cluster, &["apply", "--server-side", "-f", &queues], "").await;
    let release = async |verb: &str, flags: &[&str]| {
        let arguments = [verb, "tenure", CHART, "--namespace", SYSTEM, "--values", PRESET, "--wait"];
        cluster.helm(&[&arguments, flags].concat()).await.unwrap()
    };
    let notes = release("install", &[]).await.success().unwrap();

    let pods =
        run(cluster, "kubectl -n t9k-system get pod -l tensorstack.dev/component=duration-keeper").await;
    let rows: Vec<_> = pods.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(rows.len(), 1, "{pods}");
    assert!(pods.contains("\nduration-keeper-"), "{pods}");
    assert!(rows.iter().all(|row| row.get(1..3) == Some(&["1/1", "Running"])), "{pods}");

    let edit = "export KUBE_EDITOR='sed -i s/--threadiness=1/--threadiness=4/'
        kubectl -n t9k-system edit deploy duration-keeper
        kubectl -n t9k-system rollout status deploy duration-keeper";
    run(cluster, edit).await;
    assert!(live_arguments(cluster).await.contains(&"--threadiness=4".to_owned()));
    // edits by hand aren't lost unnoticed
    let refused = release("upgrade", &[]).await;
    assert!(refused.stderr.contains("conflict"), "{}", refused.stderr);
    let upgrade = ["--set", "keeper.threadiness=4", "--set", "log.level=debug", "--force-conflicts"];
    release("upgrade", &upgrade).await.success().unwrap();
    let arguments = live_arguments(cluster).await;
    assert!(arguments.contains(&"--log-level=debug".to_owned()), "{arguments:?}");

    let (keeper, admin) = keeper_of_the_deployment(cluster, arguments).await;
    let ready = format!("--server={admin}");
    eventually("the keeper to be ready", DEADLINE, async || {
        let ready = cluster.kubectl(&[&ready, "get", "--raw=/ready"]).await?;
        ready.success().map(Some).map_err(|error| keeper.failure(&error.to_string()))
    })
    .await
    .unwrap();
    kubectl(cluster, &["apply", "-f", "-"], EXAMPLE).await;
    let paused = ["wait", "deployment/test", "--for=jsonpath={.spec.replicas}=0", "--timeout=60s"];
    kubectl(cluster, &paused, "").await;
    eventually("its event", DEADLINE, async || {
        let events = run(cluster, "kubectl get event | grep deployment/test").await;
        // the longest reason of all events decides how wide the column is
        let mut rows = events.lines().map(|row| row.split_whitespace().skip(1).take(3));
        let is_recorded = rows.any(|row| row.eq(["Warning", "MaxDurationExceeded", "deployment/test"]));
        ensure!(is_recorded, "{}{}", events, keeper.failure("hasn't told"));
        Ok(Some(()))
    })
    .await
    .unwrap();
    let checks = commands(&notes, "\n1. ", "\n2. ");
    let lease = checks.lines().find(|check| check.contains("get lease")).unwrap();
    assert!(run(cluster, lease).await.contains("pod-of-the-test"));
}

/// Runs a command as a person does, and returns its output.
async fn run(cluster: &Cluster, script: &str) -> String {
    let mut shell = shell(cluster, script).await;
    let output = spawn_blocking(move || shell.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn live_arguments(cluster: &Cluster) -> Vec<String> {
    let get = ["get", "deployment", "duration-keeper", "--namespace", SYSTEM, "--output=json"];
    arguments(&serde_json::from_str(&kubectl(cluster, &get, "").await).unwrap())
}

/// The keeper as in the Deployment, with its rights, and the URL of its admin port.
async fn keeper_of_the_deployment(cluster: &Cluster, arguments: Vec<String>) -> (Process, String) {
    let kubeconfig = cluster.service_account_kubeconfig(SYSTEM, "duration-keeper").await.unwrap();
    let admin = format!("127.0.0.1:{}", free_port().unwrap());
    let mut command = Command::new(spawn_blocking(|| program("tenure-keeper")).await.unwrap().unwrap());
    let get = ["get", "configmap", "tenure-config", "-n", SYSTEM, "-o=jsonpath={.data.tenure\\.yaml}"];
    let config = cluster.directory().join("t9k.yaml");
    fs::write(&config, kubectl(cluster, &get, "").await).unwrap();
    let config = config.display().to_string();
    let here = |argument: String| {
        let argument = argument.replace(":8080", &admin).replace("$(POD_NAME)", "pod-of-the-test");
        argument.replace(CONFIG_FILE, &config)
    };
    command.args(arguments.into_iter().map(here)).arg("--kubeconfig").arg(kubeconfig);
    let log = cluster.directory().join("tenure-keeper.log");
    (Process::spawn("duration-keeper", command, &log).unwrap(), format!("http://{admin}"))
}
