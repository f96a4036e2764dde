//! Preemption by the real kube-scheduler, with Tenure as its extender. Tests share a cluster, and
//! each has an [`Arena`] with a node of its own.

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;

use crate::{
    DEADLINE, World, fixtures,
    workloads::{Namespace, bare_pod},
};

/// The values of the chart that turn the extender on.
pub const EXTENDER: &[&str] = &["schedulerExtender.enabled=true"];

/// The name of a class whose annotations can't be read. Admission would refuse it, but it is stored
/// before the webhook runs.
pub const UNREADABLE: &str = "unreadable";

/// Returns a cluster whose kube-scheduler asks Tenure, which knows the `PodGroup`s of the run.ai
/// family. `extender` has more fields of the extender's configuration.
pub async fn world(name: &str, extender: &Value) -> anyhow::Result<World> {
    let values = [EXTENDER, &["webhook.failurePolicy=Ignore"]].concat();
    let world = Box::pin(World::installed(name, &values)).await?;
    world
        .apply(&class(UNREADABLE, 1000, "PreemptLowerPriority", &[("minimum-preemptable-priority", "a")]))
        .await;
    fixtures::install(&world, fixtures::definitions("scheduling.run.ai")).await;
    world.tenure.start_webhook(&world.cluster).await?;
    configure(&world, extender).await?;
    Ok(world)
}

/// Has kube-scheduler ask Tenure, with more fields of the extender's configuration. Restarts
/// kube-scheduler.
pub async fn configure(world: &World, more: &Value) -> anyhow::Result<()> {
    let mut extender = world.tenure.extender(&world.cluster);
    merge(&mut extender, more);
    world.cluster.configure_scheduler(|config| config["extenders"] = json!([extender])).await
}

/// Returns a `PriorityClass` with annotations about preemption.
fn class(name: &str, value: i32, policy: &str, annotations: &[(&str, &str)]) -> Value {
    let prefix = "preemption-toleration.scheduling.x-k8s.io";
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("{prefix}/{key}"), json!(value))).collect();
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": annotations}, "value": value, "preemptionPolicy": policy,
    })
}

/// A namespace for one test, and a node that is named like it.
pub struct Arena<'w> {
    /// The cluster.
    pub world: &'w World,
    /// The namespace of the test's pods.
    pub namespace: Namespace,
}

impl<'w> Arena<'w> {
    /// Creates a namespace and an empty node with this number of processors.
    pub async fn new(world: &'w World, cpus: u32) -> Self {
        let arena = Self { world, namespace: Namespace::new(world).await };
        arena.add_node(arena.node(), cpus).await;
        arena
    }

    /// Creates another node for the test's pods, and waits until it is ready.
    pub async fn add_node(&self, name: &str, cpus: u32) {
        let resources = json!({"cpu": cpus.to_string(), "memory": "64Gi", "pods": "50"});
        let labels = json!({"kubernetes.io/hostname": name, "arena": self.node()});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": resources, "capacity": resources},
        });
        let node = self.namespace.create(&node).await;
        let ready = async || {
            let node = serde_json::to_value(self.namespace.get(&node).await)?;
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
            let ready = conditions
                .is_some_and(|all| all.iter().any(|of| of["type"] == "Ready" && of["status"] == "True"));
            Ok((ready && node.pointer("/spec/taints").is_none()).then_some(()))
        };
        eventually("the node to be ready", DEADLINE, ready).await.unwrap();
    }

    /// Returns the name of the node.
    pub fn node(&self) -> &str {
        self.namespace.name()
    }

    /// Creates a queue, with fields of its spec such as `preemptMinRuntime`. Returns its name: the
    /// arena's name and the one given.
    pub async fn queue(&self, name: &str, spec: Value) -> String {
        let name = format!("{}-{name}", self.node());
        self.namespace.create(&json!({
            "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
        })).await;
        name
    }

    /// Creates a `PriorityClass`, with annotations such as `toleration-seconds`, by their names
    /// without the prefix. Returns its name: the arena's name and the one given.
    pub async fn class(&self, name: &str, value: i32, policy: &str, annotations: &[(&str, &str)]) -> String {
        let name = format!("{}-{name}", self.node());
        self.namespace.create(&class(&name, value, policy, annotations)).await;
        name
    }

    /// Creates a pod that fits only on the nodes of the arena.
    pub async fn pod(&self, wish: &Wish<'_>) -> DynamicObject {
        self.namespace.create(&self.wanted(wish).await).await
    }

    /// Returns a pod that fits only on the nodes of the arena, to be created by another user.
    pub async fn wanted(&self, wish: &Wish<'_>) -> Value {
        let Wish { name, cpu, queue, class, priority, ref more } = *wish;
        let labels = if queue.is_empty() { json!({}) } else { json!({"kai.scheduler/queue": queue}) };
        let class = if class.is_empty() { self.priority(priority).await } else { class.to_owned() };
        let spec = json!({
            "nodeSelector": {"arena": self.node()},
            "priorityClassName": class,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "example.com/image",
                "resources": {"requests": {"cpu": cpu.to_string(), "memory": "1Gi"}},
            }],
        });
        let mut pod = bare_pod(self.namespace.name(), name, &labels, &spec);
        merge(&mut pod, more);
        pod
    }

    /// Creates a class of this priority without annotations, if it is missing. Returns its name.
    async fn priority(&self, priority: i32) -> String {
        let name = format!("priority-{priority}");
        self.namespace.apply(&class(&name, priority, "PreemptLowerPriority", &[])).await;
        name
    }

    /// Creates a pod, and waits until it is on the node.
    pub async fn placed(&self, wish: &Wish<'_>) -> DynamicObject {
        let pod = self.pod(wish).await;
        self.await_placed(&pod).await;
        pod
    }

    /// Waits until a pod is on the node.
    pub async fn await_placed(&self, pod: &DynamicObject) {
        let placed = async || {
            let placed = self.scheduled(pod).await.filter(|scheduled| scheduled["status"] == "True");
            Ok(placed.map(drop))
        };
        eventually(&format!("{} to be scheduled", pod.name_any()), DEADLINE, placed).await.unwrap();
    }

    /// Waits until kube-scheduler has made room for a pod: the pod is nominated to a node, or on a
    /// node. A pod whose victim is gone before kube-scheduler has noted the preemption may wait for
    /// five minutes more, which is kube-scheduler's own doing.
    pub async fn await_room(&self, pod: &DynamicObject) {
        let has_room = async || {
            let nominated = self.namespace.field(pod, "status.nominatedNodeName").await.is_string();
            let is_placed = self.scheduled(pod).await.is_some_and(|scheduled| scheduled["status"] == "True");
            Ok((nominated || is_placed).then_some(()))
        };
        eventually(&format!("room for {}", pod.name_any()), DEADLINE, has_room).await.unwrap();
    }

    /// Waits until kube-scheduler has tried to place a pod, and to preempt others for it, and has
    /// failed.
    pub async fn await_refused(&self, pod: &DynamicObject) {
        let refused = async || {
            let refused = self.scheduled(pod).await.filter(|scheduled| scheduled["status"] == "False");
            Ok(refused.map(drop))
        };
        eventually(&format!("{} to be refused", pod.name_any()), DEADLINE, refused).await.unwrap();
        assert_eq!(self.namespace.field(pod, "status.nominatedNodeName").await, Value::Null);
    }

    /// Waits until a pod is gone, as the victim of a preemption.
    pub async fn await_preempted(&self, pod: &DynamicObject) {
        let gone = async || Ok(self.namespace.get(pod).await.is_none().then_some(()));
        eventually(&format!("{} to be preempted", pod.name_any()), DEADLINE, gone).await.unwrap();
    }

    /// Asserts that a pod is neither terminating nor marked as a victim.
    pub async fn assert_untouched(&self, pod: &DynamicObject) {
        let now = self.namespace.get(pod).await.expect("it is still there");
        assert!(now.metadata.deletion_timestamp.is_none(), "{} is terminating", pod.name_any());
        let conditions = self.namespace.field(pod, "status.conditions").await.to_string();
        assert!(!conditions.contains("DisruptionTarget"), "{conditions}");
    }

    /// Returns the condition `PodScheduled`. None: the pod has none yet.
    async fn scheduled(&self, pod: &DynamicObject) -> Option<Value> {
        let conditions = self.namespace.field(pod, "status.conditions").await;
        conditions.as_array()?.iter().find(|condition| condition["type"] == "PodScheduled").cloned()
    }

    /// Returns the time at which a pod was scheduled.
    pub async fn scheduled_at(&self, pod: &DynamicObject) -> Timestamp {
        let condition = self.scheduled(pod).await.filter(|scheduled| scheduled["status"] == "True").unwrap();
        condition["lastTransitionTime"].as_str().unwrap().parse().unwrap()
    }

    /// Sets the start of a pod to an hour before its scheduling: of pods of one priority
    /// kube-scheduler evicts the youngest.
    pub async fn age(&self, pod: &DynamicObject) {
        let at = self.scheduled_at(pod).await - SignedDuration::from_hours(1);
        self.namespace.patch_status(pod, &json!({"startTime": at})).await;
    }

    /// Sets the time at which a pod on the node was scheduled.
    pub async fn schedule_at(&self, pod: &DynamicObject, at: Timestamp) {
        let mut conditions = self.namespace.field(pod, "status.conditions").await;
        for condition in conditions.as_array_mut().into_iter().flatten() {
            if condition["type"] == "PodScheduled" {
                condition["lastTransitionTime"] = json!(at);
            }
        }
        self.namespace.patch_status(pod, &json!({"conditions": conditions})).await;
    }
}

/// The properties of a pod to create.
#[derive(Clone, Debug, Default)]
pub struct Wish<'a> {
    /// Its name.
    pub name: &'a str,
    /// The processors that it requests.
    pub cpu: u32,
    /// Its queue. Empty: no queue.
    pub queue: &'a str,
    /// Its `PriorityClass`. Empty: a class of its priority.
    pub class: &'a str,
    /// Its priority, if it has no class.
    pub priority: i32,
    /// Further fields of the object.
    pub more: Value,
}

/// Merges fields into an object, level by level. Null changes nothing.
fn merge(target: &mut Value, more: &Value) {
    match (target, more) {
        (_, Value::Null) => {}
        (Value::Object(target), Value::Object(more)) => {
            for (key, value) in more {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, more) => target.clone_from(more),
    }
}
