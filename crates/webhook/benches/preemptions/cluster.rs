//! A large cluster, and a scheduler's questions about it.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_index::PlacementIndex;
use tenure_service::watch::Store;
use tenure_types::{
    podgroup::PodGroupKind,
    projection::{Node, PodDisruptionBudget, RunaiQueueObject},
};
use tenure_webhook::KnownQueues;

pub const PODS_PER_NODE: usize = 30;
pub const CANDIDATES: usize = 500;
pub const VICTIMS: usize = 10;
const QUEUES: usize = 500;
const DEPARTMENTS: usize = 9;
const TEAMS: usize = QUEUES - DEPARTMENTS - 1;
/// The number of pods of a group, each of which is on a node of its own.
const GROUP: usize = 8;
/// Nodes whose numbers have the same last digit are of one sort.
const SORTS: usize = 10;
const CLASSES: [(&str, i32); 3] = [("batch", 100), ("train", 500), ("serve", 1_000)];

/// The answer for a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// All its pods are old enough.
    Kept,
    /// Half of the victims that are offered are protected, and there are others.
    Substituted,
    /// All its pods are protected.
    Dropped,
}

impl Sort {
    pub fn of(node: usize) -> Self {
        match node % SORTS {
            0..=6 => Self::Kept,
            7 | 8 => Self::Substituted,
            _ => Self::Dropped,
        }
    }
}

pub fn now() -> Timestamp {
    Timestamp::from_second(1_767_323_045).unwrap()
}

/// The place of a pod: victims come first among the pods of a node.
#[derive(Clone, Copy)]
struct Place {
    node: usize,
    slot: usize,
}

impl Place {
    /// Returns the first pod of the pod's group, which stands for the group. None: the pod is in no
    /// group, like a third of all pods.
    fn group(self, nodes: usize) -> Option<Self> {
        let block = GROUP * SORTS;
        let first = self.node / block * block + self.node % SORTS;
        (!self.slot.is_multiple_of(3) && first + block <= nodes).then_some(Self { node: first, ..self })
    }

    fn number(self) -> usize {
        self.node * PODS_PER_NODE + self.slot
    }

    fn uid(self) -> String {
        uid(self.number())
    }

    fn is_young(self) -> bool {
        match Sort::of(self.node) {
            Sort::Kept => false,
            Sort::Substituted => self.slot < VICTIMS && self.slot.is_multiple_of(2),
            Sort::Dropped => true,
        }
    }

    fn is_elastic(self) -> bool {
        self.slot % 6 == 1 && Sort::of(self.node) != Sort::Dropped
    }

    /// Returns the name and the value of the pod's priority class.
    fn class(self, nodes: usize) -> (&'static str, i32) {
        CLASSES[self.group(nodes).unwrap_or(self).number() % CLASSES.len()]
    }

    fn scheduled(self) -> Timestamp {
        now() - SignedDuration::from_mins(if self.is_young() { 2 } else { 300 })
    }
}

/// A uid as an API server makes them: in no order.
fn uid(number: usize) -> String {
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let (high, low) = (mixed >> 32, mixed & 0xffff_ffff);
    format!("{high:08x}-{:04x}-4{:03x}-9{:03x}-{:012x}", low >> 16, low & 0xfff, low >> 20, number)
}

pub fn queues() -> KnownQueues {
    let mut queues = KnownQueues::default();
    let mut apply = |name: String, spec: Value| {
        queues.apply(decode::<RunaiQueueObject>(json!({"metadata": {"name": name}, "spec": spec})));
    };
    apply("root".into(), json!({"maxDuration": "7d", "reclaimMinRuntime": "10m"}));
    for department in 0..DEPARTMENTS {
        let spec = json!({"parentQueue": "root", "reclaimMinRuntime": "1h"});
        apply(format!("department-{department}"), spec);
    }
    for team in 0..TEAMS {
        let parent = format!("department-{}", team % DEPARTMENTS);
        apply(format!("team-{team}"), json!({"parentQueue": parent, "preemptMinRuntime": "30m"}));
    }
    queues
}

/// An index of this many nodes, with their pods.
pub fn index(nodes: usize) -> PlacementIndex {
    let mut index = PlacementIndex::default();
    for (name, value) in CLASSES {
        let prefix = "preemption-toleration.scheduling.x-k8s.io";
        let annotations = json!({
            format!("{prefix}/minimum-preemptable-priority"): (value + 1).to_string(),
            format!("{prefix}/toleration-seconds"): "60",
        });
        let annotations = (name == "serve").then_some(annotations);
        index.apply(decode::<PriorityClass>(
            json!({"metadata": {"name": name, "annotations": annotations}, "value": value}),
        ));
    }
    for team in 0..TEAMS {
        for app in 0..team % 4 {
            index.apply(decode::<PodDisruptionBudget>(json!({
                "metadata": {"namespace": namespace(team), "name": format!("budget-{app}")},
                "spec": {"selector": {"matchLabels": {"app.kubernetes.io/name": format!("app-{app}")}}},
                "status": {"disruptionsAllowed": app},
            })));
        }
    }
    for node in 0..nodes {
        let labels = json!({
            "kubernetes.io/hostname": node_name(node), "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a",
            "node.kubernetes.io/instance-type": "gpu-8", "kai.scheduler/node-pool": format!("pool-{}", node % 4),
        });
        index.apply(decode::<Node>(json!({"metadata": {"name": node_name(node), "labels": labels}})));
    }
    let places = (0..nodes).flat_map(|node| (0..PODS_PER_NODE).map(move |slot| Place { node, slot }));
    for place in places {
        if let Some(first) = place.group(nodes).filter(|first| first.node == place.node) {
            index.apply_group(PodGroupKind::Runai, &decode(pod_group(first)));
        }
        index.apply_pod(decode(pod(place, nodes)));
    }
    index.apply_pod(decode(preemptor(nodes)));
    index.recompute();
    index
}

fn decode<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

pub fn node_name(node: usize) -> String {
    format!("gpu-node-{node:05}.cluster.example.com")
}

fn namespace(team: usize) -> String {
    format!("team-{team}")
}

fn team(of: Place) -> usize {
    of.number() % TEAMS
}

fn pod_group(first: Place) -> Value {
    let least = if first.is_elastic() { GROUP / 2 } else { GROUP };
    json!({
        "metadata": {"namespace": namespace(team(first)), "name": format!("group-{}", first.number()), "uid": uid(first.number() + 1_000_000)},
        "spec": {"queue": format!("team-{}", team(first)), "minMember": least},
    })
}

/// A pod with the fields that decisions need, and with the labels of an indexed Job.
fn pod(place: Place, nodes: usize) -> Value {
    let group = place.group(nodes);
    let workload = group.unwrap_or(place);
    let (number, team) = (workload.number(), team(workload));
    let (class, priority) = place.class(nodes);
    let job = format!("training-{number:06}");
    let of_job = uid(number + 2_000_000);
    let requests = json!({
        "cpu": format!("{}", 2 + number % 3 * 2), "memory": format!("{}Gi", 8 << (number % 3)), "nvidia.com/gpu": "1",
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{job}-{}-x7k2p", place.node % GROUP), "namespace": namespace(team), "uid": place.uid(),
            "resourceVersion": "184467441", "creationTimestamp": place.scheduled(),
            "labels": {
                "app.kubernetes.io/name": format!("app-{}", number % 5), "kai.scheduler/queue": format!("team-{team}"),
                "batch.kubernetes.io/controller-uid": of_job, "batch.kubernetes.io/job-name": job, "controller-uid": of_job,
                "batch.kubernetes.io/job-completion-index": (place.node / SORTS % GROUP).to_string(), "job-name": job,
            },
            "annotations": group.map(|group| json!({"pod-group-name": format!("group-{}", group.number())})),
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": of_job, "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": node_name(place.node), "priority": priority, "priorityClassName": class, "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "registry.example.com/training:1.2.3", "resources": {"requests": requests, "limits": requests}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": place.scheduled(), "lastProbeTime": null}],
        },
    })
}

/// The same pod with all fields that a scheduler sends: it drops `managedFields` itself.
fn whole_pod(place: Place, nodes: usize) -> Value {
    let mut pod = pod(place, nodes);
    let variable = |number: usize| json!({"name": format!("TRAINING_VARIABLE_{number}"), "value": "a \"value\" of some length"});
    let environment: Vec<Value> = (0..30).map(variable).collect();
    let mount = |number: usize| json!({"name": format!("volume-{number}"), "mountPath": format!("/mnt/data-{number}"), "readOnly": true});
    let mounts: Vec<Value> = (0..8).map(mount).collect();
    let volume = |number: usize| json!({"name": format!("volume-{number}"), "configMap": {"name": format!("config-{number}"), "defaultMode": 420}});
    let volumes: Vec<Value> = (0..8).map(volume).collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 5, "periodSeconds": 10, "timeoutSeconds": 1});
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let container = &mut pod["spec"]["containers"][0];
    for (field, value) in [
        (
            "command",
            json!([
                "python",
                "-m",
                "torch.distributed.run",
                "--nnodes=8",
                "train.py",
                "--config",
                "/mnt/data-0/config.yaml"
            ]),
        ),
        ("env", json!(environment)),
        ("volumeMounts", json!(mounts)),
        ("livenessProbe", probe.clone()),
        ("readinessProbe", probe),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("imagePullPolicy", json!("IfNotPresent")),
    ] {
        container[field] = value;
    }
    let tolerations =
        ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "nvidia.com/gpu"].map(toleration);
    for (field, value) in [
        ("volumes", json!(volumes)),
        ("tolerations", json!(tolerations)),
        ("restartPolicy", json!("Never")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("serviceAccountName", json!("default")),
        ("nodeSelector", json!({"node.kubernetes.io/instance-type": "gpu-8"})),
    ] {
        pod["spec"][field] = value;
    }
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": place.scheduled(), "lastProbeTime": null});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let container = json!({
        "name": "main", "ready": true, "restartCount": 0, "started": true, "image": "registry.example.com/training:1.2.3",
        "imageID": format!("registry.example.com/training@sha256:{}", "0f2c1f3e".repeat(8)),
        "containerID": format!("containerd://{}", "5d5b7c1b".repeat(8)), "state": {"running": {"startedAt": place.scheduled()}}, "lastState": {},
    });
    pod["status"] = json!({
        "phase": "Running", "conditions": conditions, "containerStatuses": [container], "hostIP": "10.0.0.1", "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}], "qosClass": "Guaranteed", "startTime": place.scheduled(),
    });
    pod
}

/// The form in which a scheduler names pods.
#[derive(Clone, Copy)]
pub enum Form {
    Uids,
    Pods,
}

/// A scheduler's question about these candidates.
pub fn question(form: Form, candidates: &[usize], nodes: usize) -> Value {
    let victim = |place: Place| match form {
        Form::Uids => json!({"UID": place.uid()}),
        Form::Pods => whole_pod(place, nodes),
    };
    let victims = |node: usize| {
        let mut places: Vec<Place> = (0..VICTIMS).map(|slot| Place { node, slot }).collect();
        // the most important first, as kube-scheduler sends them
        places.sort_by_key(|place| (Reverse(place.class(nodes).1), place.scheduled()));
        let pods: Vec<Value> = places.into_iter().map(victim).collect();
        json!({"Pods": pods, "NumPDBViolations": 0})
    };
    let by_node: Value = candidates.iter().map(|node| (node_name(*node), victims(*node))).collect();
    let (uids, pods) = match form {
        Form::Uids => (by_node, Value::Null),
        Form::Pods => (Value::Null, by_node),
    };
    json!({"Pod": preemptor(nodes), "NodeNameToVictims": pods, "NodeNameToMetaVictims": uids})
}

/// The pod that wants room.
fn preemptor(nodes: usize) -> Value {
    let mut preemptor = whole_pod(Place { node: 0, slot: 0 }, nodes);
    preemptor["metadata"]["name"] = json!("preemptor");
    preemptor["metadata"]["annotations"] = json!({});
    preemptor["metadata"]["uid"] = json!("705ab4f5-6393-11e8-b7cc-42010a800002");
    preemptor["spec"]["priority"] = json!(10_000);
    preemptor["spec"]["nodeName"] = Value::Null;
    preemptor["status"] = json!({"phase": "Pending"});
    preemptor
}
