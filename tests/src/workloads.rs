//! Workloads in queues, and what becomes of them.

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::Pod,
    events::v1::Event,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use tenure_testbed::eventually;

use crate::{DEADLINE, World};

/// A tensorstack queue in the system namespace.
pub fn queue(name: &str, max_duration: &str) -> Value {
    json!({
        "apiVersion": "scheduler.tensorstack.dev/v1beta1", "kind": "Queue",
        "metadata": {"name": name, "namespace": "t9k-system"}, "spec": {"maxDuration": max_duration},
    })
}

/// A queue of the run.ai family.
pub fn runai_queue(name: &str, parent: &str, max_duration: &str) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue",
        "metadata": {"name": name}, "spec": {"parentQueue": parent, "maxDuration": max_duration},
    })
}

/// A label that puts a pod into a tensorstack queue.
pub fn in_queue(name: &str) -> Value {
    json!({"scheduler.tensorstack.dev/queue": name})
}

/// A label that puts a pod into a queue of the run.ai family.
pub fn in_runai_queue(name: &str) -> Value {
    json!({"kai.scheduler/queue": name})
}

/// A pod template: labels beside the selector's, and more fields of its spec.
fn template(labels: &Value, spec: &Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "test"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
    });
    merge(&mut template["metadata"]["labels"], labels);
    merge(&mut template["spec"], spec);
    template
}

fn merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        target[key] = value.clone();
    }
}

/// An object that has a pod template, of any native kind.
pub fn workload(kind: &str, namespace: &str, name: &str, labels: &Value, pod_spec: &Value) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let mut object = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": template(labels, pod_spec)},
    });
    match kind {
        "Job" => object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never"),
        _ => object["spec"]["selector"] = json!({"matchLabels": {"app": "test"}}),
    }
    if kind != "Job" && kind != "DaemonSet" {
        object["spec"]["replicas"] = json!(2);
    }
    object
}

/// A pod without an owner.
pub fn bare_pod(namespace: &str, name: &str, labels: &Value, pod_spec: &Value) -> Value {
    let mut pod = template(labels, pod_spec);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// What the tests look at in one namespace.
pub struct Namespace {
    client: Client,
    name: String,
}

impl Namespace {
    /// Looks into a namespace.
    pub fn of(world: &World, name: &str) -> Self {
        Self { client: world.cluster.client().expect("a client"), name: name.into() }
    }

    /// The live pods, by uid.
    pub async fn pods(&self) -> Vec<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.name);
        let list = pods.list(&ListParams::default()).await.expect("pods can be listed");
        list.items.iter().filter_map(ResourceExt::uid).collect()
    }

    /// Waits until so many pods are there and all run.
    pub async fn await_running(&self, count: usize) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.name);
        let running = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
        let all = async || {
            let items = pods.list(&ListParams::default()).await?.items;
            Ok((items.len() == count && items.iter().all(running)).then_some(()))
        };
        eventually("all pods to run", DEADLINE, all).await.expect("pods run");
    }

    /// The objects of all `MaxDurationExceeded` events, as `Kind/name: note`.
    pub async fn events(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.name);
        let exceeded = ListParams::default().fields("reason=MaxDurationExceeded");
        let list = events.list(&exceeded).await.expect("events can be listed");
        let told = |event: &Event| {
            let object = event.regarding.clone().unwrap_or_default();
            let (kind, name) = (object.kind.unwrap_or_default(), object.name.unwrap_or_default());
            format!("{kind}/{name}: {}", event.note.as_deref().unwrap_or_default())
        };
        list.items.iter().map(told).collect()
    }

    /// Waits until there are so many `MaxDurationExceeded` events, or more.
    pub async fn await_events(&self, count: usize) {
        let enough = async || Ok((self.events().await.len() >= count).then_some(()));
        eventually(&format!("{count} events"), DEADLINE, enough).await.expect("there are events");
    }

    /// Waits until a workload is paused and its pods are gone; returns the record of the pause.
    pub async fn await_paused(&self, kind: &str, name: &str) -> Value {
        let what = format!("{kind} {name} to be paused");
        let record = eventually(&what, DEADLINE, async || Ok(self.pause(kind, name).await)).await;
        record.expect("it is paused")
    }

    /// The record of a pause; none if the workload isn't paused.
    pub async fn pause(&self, kind: &str, name: &str) -> Option<Value> {
        let (client, namespace) = (self.client.clone(), self.name.as_str());
        let (paused, annotations) = match kind {
            "Deployment" => {
                let found: Deployment = Api::namespaced(client, namespace).get(name).await.ok()?;
                (found.spec.replicas == Some(0), found.annotations().clone())
            }
            "StatefulSet" => {
                let found: StatefulSet = Api::namespaced(client, namespace).get(name).await.ok()?;
                (found.spec.replicas == Some(0), found.metadata.annotations.unwrap_or_default())
            }
            "ReplicaSet" => {
                let found: ReplicaSet = Api::namespaced(client, namespace).get(name).await.ok()?;
                (found.spec.replicas == Some(0), found.metadata.annotations.unwrap_or_default())
            }
            _ => {
                let found: Job = Api::namespaced(client, namespace).get(name).await.ok()?;
                (found.spec?.suspend == Some(true), found.metadata.annotations.unwrap_or_default())
            }
        };
        let record = annotations.get("tenure.dev/paused")?;
        paused.then(|| serde_json::from_str(record).expect("the record is JSON"))
    }
}
