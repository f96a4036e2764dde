//! Namespaces in trouble hold up no other, and large objects don't end the keeper.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod flood;
mod memory;

use std::time::Duration;

use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams, client::Body, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE, World,
    keeper::Metrics,
    policies::Refusal,
    workloads::{Namespace, bare_pod, distinct, in_queue, queue, workload},
};
use tokio::{net::TcpListener, sync::OnceCell, time::Instant};

/// The longest time for which a namespace in trouble may hold up another.
const HELD_UP: Duration = Duration::from_secs(20);

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(|| World::running("fair")).await.unwrap()
}

#[tokio::test]
async fn a_namespace_that_refuses_events_holds_up_no_other_and_loses_none_if_that_ends() {
    const PODS: usize = 40;
    let world = world().await;
    let (refused, fine) = (Namespace::new(world).await, Namespace::new(world).await);
    let refusal = Refusal::forbidding(world, &refused, "request.resource.resource != 'events'").await;
    refused.apply(&queue("fair-events", "1s")).await;
    for number in 0..PODS {
        let name = format!("pod-{number}");
        let pod = bare_pod(refused.name(), &name, &in_queue("fair-events"), &Value::Null);
        refused.create(&distinct(pod, &name)).await;
    }
    refused.await_pods(&[]).await;
    fine.create(&workload("Deployment", fine.name(), "test", &in_queue("fair-events"), &Value::Null)).await;
    let record = fine.await_paused("Deployment", "test").await;
    let paused = record["at"].as_str().unwrap().parse::<Timestamp>().unwrap();
    fine.await_events_of("MaxDurationExceeded", 1).await;
    let events: Api<Event> = Api::namespaced(world.cluster.client().unwrap(), fine.name());
    let of_pause = ListParams::default().fields("reason=MaxDurationExceeded");
    let written =
        events.list(&of_pause).await.unwrap().items.remove(0).metadata.creation_timestamp.unwrap().0;
    let held_up = written.duration_since(paused);
    assert!(
        held_up <= SignedDuration::try_from(HELD_UP).unwrap(),
        "the event came {held_up:#} after the pause"
    );

    // a refusal that doesn't last costs no event
    assert_eq!(refused.events().await, [""; 0]);
    refusal.lift(world).await;
    refused.await_events(PODS).await;
    let metrics = Metrics::of_world(world).await;
    assert_eq!(metrics.count("tenure_keeper_events_total", &[("result", "Refused")]), 0);
}

/// A suspended Job whose time to come back has come, by its annotations.
fn due_job(namespace: &Namespace, name: &str) -> Value {
    let record = json!({
        "reason": "PodsReadyTimeout", "at": Timestamp::now() - SignedDuration::from_mins(10),
        "queue": "fair-returns", "queueGroup": "scheduler.tensorstack.dev",
        "field": "spec.suspend", "value": true, "previousValue": false,
    });
    let state =
        json!({"count": 1, "priority": 0, "requeueAt": Timestamp::now() - SignedDuration::from_mins(5)});
    let mut job = workload("Job", namespace.name(), name, &in_queue("fair-returns"), &Value::Null);
    job["spec"]["suspend"] = json!(true);
    job["metadata"]["annotations"] =
        json!({"tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string()});
    distinct(job, name)
}

/// An admission webhook for changes of Jobs in one namespace that never answers; returns its configuration once the API
/// server asks it.
async fn hang_changes_of_jobs(world: &World, namespace: &Namespace, port: u16) -> Value {
    let name = format!("hangs-{}", namespace.name());
    let rule = json!({
        "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"],
    });
    let webhook = json!({
        "name": "hangs.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://127.0.0.1:{port}/")}, "timeoutSeconds": 30,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name()}},
        "rules": [rule],
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [webhook],
    });
    let probe = workload("Job", namespace.name(), "probe", &json!({}), &json!({}));
    namespace.create(&probe).await;
    world.apply(&configuration).await;
    let label = ["label", "--dry-run=server", "--overwrite", "--request-timeout=1s", "job/probe"];
    let label = [&label[..], &["probe=true", "--namespace", namespace.name()]].concat();
    let hangs = async || Ok((!world.cluster.kubectl(&label).await?.status.success()).then_some(()));
    eventually("changes of Jobs to hang", DEADLINE, hangs).await.unwrap();
    configuration
}

#[tokio::test]
async fn owners_whose_return_hangs_hold_up_no_other_and_come_back_later() {
    const JOBS: usize = 30;
    let world = world().await;
    let (hanging, fine) = (Namespace::new(world).await, Namespace::new(world).await);
    fine.apply(&queue("fair-returns", "30d")).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let configuration = hang_changes_of_jobs(world, &hanging, silent.local_addr().unwrap().port()).await;
    let mut jobs = Vec::new();
    for number in 0..JOBS {
        jobs.push(hanging.create(&due_job(&hanging, &format!("job-{number:02}"))).await);
    }
    let (job, begun) = (fine.create(&due_job(&fine, "job")).await, Instant::now());
    let back = async |namespace: &Namespace, job: &DynamicObject| {
        namespace.field(job, "spec.suspend").await != json!(true)
    };
    let is_back = async || Ok(back(&fine, &job).await.then_some(()));
    eventually("the Job to come back", DEADLINE, is_back).await.unwrap();
    assert!(begun.elapsed() <= HELD_UP, "it came back after {:?}", begun.elapsed());
    assert!(!back(&hanging, &jobs[0]).await);

    hanging.delete(&serde_json::from_value(configuration).unwrap()).await;
    drop(silent);
    let all_back = async || {
        for job in &jobs {
            if !back(&hanging, job).await {
                return Ok(None);
            }
        }
        Ok(Some(()))
    };
    eventually("all Jobs to come back", DEADLINE, all_back).await.unwrap();
}

#[tokio::test]
async fn owners_whose_pause_hangs_hold_up_no_other_and_are_paused_later() {
    const JOBS: usize = 40;
    let world = world().await;
    let (hanging, fine) = (Namespace::new(world).await, Namespace::new(world).await);
    fine.apply(&queue("fair-pauses", "1s")).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let configuration = hang_changes_of_jobs(world, &hanging, silent.local_addr().unwrap().port()).await;
    for number in 0..JOBS {
        let name = format!("job-{number:02}");
        let job = workload("Job", hanging.name(), &name, &in_queue("fair-pauses"), &Value::Null);
        hanging.create(&distinct(job, &name)).await;
    }
    eventually("the pods of all Jobs", DEADLINE, async || {
        Ok((hanging.pods().await.len() >= JOBS).then_some(()))
    })
    .await
    .unwrap();
    let begun = Instant::now();
    fine.create(&workload("Deployment", fine.name(), "test", &in_queue("fair-pauses"), &Value::Null)).await;
    fine.await_paused("Deployment", "test").await;
    assert!(begun.elapsed() <= HELD_UP, "it was paused after {:?}", begun.elapsed());
    assert!(hanging.pause("Job", "job-00").await.is_none());

    hanging.delete(&serde_json::from_value(configuration).unwrap()).await;
    drop(silent);
    hanging.await_paused("Job", "job-00").await;
}

/// The `FlowSchema` that the API server uses for a request of a service account of ours, by its uid.
async fn flow_schema_of(world: &World, account: &str, path: &str) -> String {
    let kubeconfig = world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, account).await.unwrap();
    let client = world.cluster.client_of(&kubeconfig).await.unwrap();
    let response = client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let header = response.headers().get("x-kubernetes-pf-flowschema-uid").unwrap();
    header.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_api_server_serves_requests_of_keeper_and_webhook_by_the_charts_flow_schemas() {
    let world = world().await;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{RELEASE_NAMESPACE}/leases/tenure-keeper");
    for (account, path, schema) in [
        ("tenure-keeper", "/api/v1/pods?limit=1", "tenure"),
        ("tenure-keeper", "/version", "tenure"),
        ("tenure-keeper", &*leases, "tenure-leases"),
        ("tenure-webhook", "/apis/scheduling.run.ai/v3alpha1/queues?limit=1", "tenure"),
    ] {
        let uid = ["get", "flowschema", schema, "--output=jsonpath={.metadata.uid}"];
        let uid = world.cluster.kubectl(&uid).await.unwrap().success().unwrap();
        let used = async || Ok((flow_schema_of(world, account, path).await == uid).then_some(()));
        eventually(&format!("{path} by {account} to be in {schema}"), DEADLINE, used).await.unwrap();
    }
}
