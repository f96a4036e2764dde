//! A Deployment, its `ReplicaSet` and a pod of it, created once and copied often.

use anyhow::{Context, Result};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::DeleteParams, core::DynamicObject};
use serde_json::{Value, json};
use tenure_tests::{
    World,
    scale::{etcd::Stored, namespace, random},
    workloads::{Namespace, controller, owned},
};

/// The number of pods of an owner.
pub const PODS_PER_OWNER: usize = 3;

/// In which namespaces and queues the copies are, in turn.
#[derive(Clone, Copy)]
pub struct Places {
    pub namespaces: usize,
    pub queues: usize,
}

pub fn namespace_name(number: usize) -> String {
    format!("team-{number:04}")
}

pub fn queue_name(number: usize) -> String {
    format!("queue-{number:04}")
}

/// The namespace and the name of a copied pod.
pub fn pod_of(number: usize, places: Places) -> (String, String) {
    let owner = number / PODS_PER_OWNER;
    let name = format!("training-run-{owner:05}-{HASH}-{}", pod_suffix(number));
    (namespace_name(owner % places.namespaces), name)
}

/// Of queues. Those of even numbers are of one, the others of the other.
#[derive(Clone, Copy)]
pub enum Family {
    Tensorstack,
    Runai,
}

impl Family {
    /// That of a queue.
    pub const fn of(queue: usize) -> Self {
        if queue.is_multiple_of(2) { Self::Tensorstack } else { Self::Runai }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Tensorstack => "scheduler.tensorstack.dev/queue",
            Self::Runai => "kai.scheduler/queue",
        }
    }
}

// what differs between copies, as it is in the models
const NAMESPACE: &str = "team-model";
const NAME: &str = "training-run-model";
const POD: &str = "pod-model";
const QUEUE_LABEL: &str = "example.com/queue-label";
const QUEUE: &str = "queue-model";

const HASH: &str = "7c9d5f8b6b";

/// A Deployment, its `ReplicaSet` and a pod of it, as the API server has them.
pub struct Model {
    deployment: Original,
    replica_set: Original,
    pod: Original,
}

impl Model {
    /// Creates them as a user, controllers, scheduler and kubelet would, and deletes them when they are read.
    pub async fn create(world: &World) -> Result<Self> {
        namespace(world, NAMESPACE).await;
        let here = Namespace::of(world, NAMESPACE);
        let deployment = here.create(&deployment()).await;
        let replica_set = here.create(&owned(replica_set(), &[controller(&deployment)])).await;
        let pod = here.create(&owned(pod(), &[controller(&replica_set)])).await;
        let client = world.cluster.client()?;
        bind(&client, &pod.name_any()).await?;
        here.patch_status(&pod, &running()).await;
        let pod = here.find(&pod).await;
        let model = Self {
            deployment: Original::of("deployments", &deployment)?,
            replica_set: Original::of("replicasets", &replica_set)?,
            pod: Original::of("pods", &pod)?,
        };
        for object in [&pod, &replica_set, &deployment] {
            here.delete(object).await;
        }
        // no kubelet is there
        let now = DeleteParams::default().grace_period(0);
        Api::<Pod>::namespaced(client, NAMESPACE).delete(&pod.name_any(), &now).await?;
        Ok(model)
    }

    /// Bytes of a pod.
    pub const fn pod_size(&self) -> usize {
        self.pod.text.len()
    }

    /// An owner with what is above it and below it.
    pub fn copies(&self, owner: usize, places: Places) -> impl Iterator<Item = Stored> {
        let queue = owner % places.queues;
        let created =
            Timestamp::now() - SignedDuration::from_mins(7 + i64::try_from(owner % 10_000).unwrap_or(0));
        let marks = [
            (NAMESPACE.to_owned(), namespace_name(owner % places.namespaces)),
            (NAME.to_owned(), format!("training-run-{owner:05}")),
            (QUEUE_LABEL.to_owned(), Family::of(queue).label().to_owned()),
            (QUEUE.to_owned(), queue_name(queue)),
            (self.deployment.uid.clone(), uid("deployment", owner)),
            (self.replica_set.uid.clone(), uid("replica set", owner)),
        ];
        let created = format!("{created:.0}");
        let of_pod = |number: usize| {
            [(POD.to_owned(), pod_suffix(number)), (self.pod.uid.clone(), uid("pod", number))]
        };
        let pods = (0..PODS_PER_OWNER).map(|pod| owner * PODS_PER_OWNER + pod);
        let pods: Vec<Stored> =
            pods.map(|number| self.pod.copy(marks.iter().chain(&of_pod(number)), &created)).collect();
        [&self.deployment, &self.replica_set]
            .map(|owner| owner.copy(&marks, &created))
            .into_iter()
            .chain(pods)
    }
}

/// A uid that differs from those of its neighbours as those do that API servers write.
fn uid(kind: &str, number: usize) -> String {
    let number = u64::try_from(number).unwrap_or_default();
    let [high, low] = [0, 1].map(|half| random(half, random(kind.len() as u64, number)));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

/// Five characters, as of a name that the API server has made up.
fn pod_suffix(number: usize) -> String {
    format!("{number:05x}")
}

/// An object as JSON, and what of it is its own.
struct Original {
    key: String,
    text: String,
    uid: String,
    created: String,
}

impl Original {
    fn of(resource: &str, object: &DynamicObject) -> Result<Self> {
        let mut object = object.clone();
        // it isn't stored, but follows from where it is stored
        object.metadata.resource_version = None;
        let created = object.creation_timestamp().context("it was created")?;
        Ok(Self {
            key: format!("/registry/{resource}/{NAMESPACE}/{}", object.name_any()),
            text: serde_json::to_string(&object)?,
            uid: object.uid().context("it has a uid")?,
            created: created.0.to_string(),
        })
    }

    fn copy<'a>(&self, marks: impl IntoIterator<Item = &'a (String, String)>, created: &str) -> Stored {
        let (mut key, mut value) = (self.key.clone(), self.text.replace(&self.created, created));
        for (from, to) in marks {
            key = key.replace(from, to);
            value = value.replace(from, to);
        }
        Stored { key, value }
    }
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "training", "team": "research", QUEUE_LABEL: QUEUE})
}

/// The objects that controllers make of them.
fn labels_below() -> Value {
    with(labels(), json!({"pod-template-hash": HASH}))
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn template(labels: &Value) -> Value {
    let variable =
        |number: u32| json!({"name": format!("TRAINING_OPTION_{number}"), "value": "a value of some length"});
    let environment: Vec<Value> = (1..=12).map(variable).collect();
    let resources = json!({"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"});
    let container = json!({
        "name": "main", "image": "registry.example.com/research/training:1.2.3", "env": environment,
        "command": ["python", "-m", "training.main", "--config=/etc/training/config.yaml"],
        "resources": {"requests": resources, "limits": resources},
    });
    json!({"metadata": {"labels": labels}, "spec": {"schedulerName": "kai-scheduler", "containers": [container]}})
}

fn scaled(kind: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicas": PODS_PER_OWNER, "selector": {"matchLabels": labels}, "template": template(labels)},
    })
}

fn deployment() -> Value {
    scaled("Deployment", NAME, &labels())
}

fn replica_set() -> Value {
    scaled("ReplicaSet", &format!("{NAME}-{HASH}"), &labels_below())
}

fn pod() -> Value {
    let metadata = json!({
        "name": format!("{NAME}-{HASH}-{POD}"), "generateName": format!("{NAME}-{HASH}-"),
        "namespace": NAMESPACE, "labels": labels_below(),
    });
    with(template(&labels_below()), json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
}

async fn bind(client: &Client, pod: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    });
    let request = Request::post(format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding"));
    client.request_text(request.body(binding.to_string().into_bytes())?).await?;
    Ok(())
}

/// The status of a pod that its kubelet reports.
fn running() -> Value {
    let now = Timestamp::now().to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "observedGeneration": 1});
    let conditions = ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"]
        .map(condition);
    let image = "registry.example.com/research/training:1.2.3";
    let container = json!({
        "name": "main", "image": image, "ready": true, "started": true, "restartCount": 0,
        "imageID": format!("{image}@sha256:{}", "0".repeat(64)), "containerID": format!("containerd://{}", "1".repeat(64)),
        "state": {"running": {"startedAt": now}},
    });
    json!({
        "phase": "Running", "conditions": conditions, "containerStatuses": [container], "startTime": now,
        "hostIP": "192.0.2.1", "podIP": "10.244.0.1", "podIPs": [{"ip": "10.244.0.1"}],
    })
}
