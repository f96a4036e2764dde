//! Metadata that a tenant forges: `managedFields` with a time that no Rust program reads, or nested deeper than any reads.
//! None of it is in the way of other namespaces, nor of a program that starts.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{env, process::Command};

use http::Request;
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_testbed::{eventually, program};
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, bare_pod, in_queue, queue, workload},
};
use tokio::task::spawn_blocking;

const CEILING: &str = "forged-metadata";

/// The latest time that the API server takes. It is after the last one of jiff.
const LATE: &str = "9999-12-31T23:59:59Z";

/// An object with two entries of its own about a field that it doesn't have.
fn forged(mut object: Value) -> Value {
    let entry = |manager: &str, fields: Value| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": object["apiVersion"], "time": LATE,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let deep = (0..200).fold(json!({}), |fields, _| json!({"f:a": fields}));
    let entries = [
        entry("late", json!({"f:metadata": {"f:labels": {"f:zzz": {}}}})),
        entry("deep", json!({"f:metadata": {"f:labels": {"f:zzz": deep}}})),
    ];
    object["metadata"]["managedFields"] = json!(entries);
    object
}

/// Creates an object as it is. A client in Rust couldn't read the answer.
async fn create(world: &World, object: &Value) {
    let create = ["create", "--validate=false", "-f", "-"];
    world.cluster.kubectl_with_input(&create, &object.to_string()).await.unwrap().success().unwrap();
}

async fn kubectl(world: &World, namespace: &Namespace, arguments: &[&str]) -> String {
    let arguments = [arguments, &["-n", namespace.name()]].concat();
    world.cluster.kubectl(&arguments).await.unwrap().success().unwrap()
}

/// A Job of one pod in the queue.
fn job(namespace: &Namespace, name: &str) -> Value {
    workload("Job", namespace.name(), name, &in_queue(CEILING), &Value::Null)
}

/// Forges an object of each kind that Tenure follows and a tenant may create.
async fn forge(world: &World, tenant: &Namespace) {
    let named = |name: &str| json!({"name": name, "namespace": tenant.name()});
    let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "none"});
    let objects = [
        json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension", "metadata": named("extension"),
            "spec": {"target": target, "duration": "1h"},
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": named("budget"),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "test"}}},
        }),
        json!({
            "apiVersion": "scheduler.tensorstack.dev/v1beta1", "kind": "PodGroup", "metadata": named("group"),
            "spec": {"minMember": 1, "queue": CEILING},
        }),
        bare_pod(tenant.name(), "pod", &in_queue(CEILING), &Value::Null),
        job(tenant, "owner"),
    ];
    for object in objects {
        create(world, &forged(object)).await;
    }
    for kind in ["extension", "poddisruptionbudget", "podgroups.scheduler.tensorstack.dev"] {
        let stored = kubectl(world, tenant, &["get", kind, "-o", "json", "--show-managed-fields"]).await;
        assert!(stored.contains(LATE), "the API server keeps the entries: {stored}");
    }
}

/// Checks that the ceiling holds in a namespace.
async fn assert_paused(world: &World, namespace: &Namespace, name: &str) {
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/{name}", namespace.name());
    let client = world.cluster.client().unwrap();
    eventually(&format!("{path} to be paused"), DEADLINE, async || {
        // the text alone: a client in Rust couldn't read what is forged
        let shown = client.request_text(Request::get(&path).body(Vec::new())?).await?;
        Ok(shown.contains("\"suspend\":true").then_some(()))
    })
    .await
    .unwrap();
}

/// Checks that the plugin answers for all namespaces.
async fn assert_shown(world: &World, arguments: &[&str], text: &str) {
    let plugin = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
    let mut command = Command::new(plugin);
    command.args(arguments).env("KUBECONFIG", world.cluster.kubeconfig()).env("HOME", env::temp_dir());
    let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(text), "{arguments:?}: {output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_managed_fields_are_in_no_ones_way() {
    let values = ["schedulerExtender.enabled=true", "guard.enabled=true"];
    let world = Box::pin(World::running_with("forged", &values, &[])).await.unwrap();
    let groups = tenure_tests::fixtures::definitions("scheduler.tensorstack.dev");
    tenure_tests::fixtures::install(&world, groups).await;
    world.apply(&queue(CEILING, "1s")).await;
    let (tenant, other) = (Namespace::new(&world).await, Namespace::new(&world).await);
    forge(&world, &tenant).await;
    assert_paused(&world, &tenant, "owner").await;
    let gone = ["wait", "--for=delete", "pod/pod", "--timeout=1m"];
    kubectl(&world, &tenant, &gone).await;
    let first = other.create(&job(&other, "first")).await;
    assert_paused(&world, &other, &first.name_any()).await;

    world.tenure.stop_keeper().await.unwrap();
    world.tenure.stop_webhook().await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    other.create(&job(&other, "second")).await;
    assert_paused(&world, &other, "second").await;

    assert_shown(&world, &["list", "-A"], "job/owner").await;
    assert_shown(&world, &["extensions", "-A"], "extension").await;
    assert_shown(&world, &["resume", "job/owner", "-n", tenant.name()], "resumed").await;
}
