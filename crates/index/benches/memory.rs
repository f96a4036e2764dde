//! Bytes that the index holds for each pod of a large cluster, beside what the same pods take as the types of
//! k8s-openapi, decoded whole: `cargo bench -p tenure-index`.
#![allow(clippy::panic, reason = "a benchmark that can't be run must end")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_index::{CeilingIndex, CeilingOptions, SeenRun, Uid, UsageLedger};
use tenure_policy::usage::PodRun;
use tenure_types::{podgroup::PodGroupKind, projection, room::PodWithRoom, tensorstack::v1beta1};

/// The most bytes of the index for a pod. It was 340 before pods showed their ends and evidence.
const GOAL: usize = 368;

/// The most bytes of the index for any `PodGroup` that a user may write.
const GROUP_GOAL: usize = 42 << 10;

const LARGE_GROUPS: usize = 10;
const CONTROL_PODS: usize = 1_000;
const QUEUES: usize = 500;
const NAMESPACES: usize = 1_000;
const PODS_PER_OWNER: usize = 3;

/// Counts the bytes that are asked for and not yet given back.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator is unsafe by nature; this one only counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    // `cargo test --bench` runs this too, to see that it works
    let measured = std::env::args().any(|argument| argument == "--bench");
    let pods = if measured { 150_000 } else { 3_000 };
    let index = held_by(|| {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        for queue in 0..QUEUES {
            let spec = v1beta1::QueueSpec { max_duration: Some("1d".into()), ..Default::default() };
            index.apply_queue(&format!("queue-{queue}"), &spec);
        }
        for number in 0..pods {
            index.apply_pod(&decode::<projection::Pod>(pod(number)));
        }
        assert_eq!(index.counts(Timestamp::MIN, Timestamp::MIN).under_ceiling, pods);
        index
    });
    for size in [1, 100] {
        let grouped = held_by(|| in_groups(pods, size));
        let groups = pods / size;
        println!("in PodGroups of {size:<8}{} bytes a pod, {groups} groups with theirs", grouped / pods);
    }
    let per_group = held_by(large_groups) / LARGE_GROUPS;
    println!("the largest PodGroups   {per_group} bytes a group (goal: at most {GROUP_GOAL})");
    assert!(per_group <= GROUP_GOAL, "{per_group} bytes a group are more than the goal of {GROUP_GOAL}");
    let counted = held_by(|| in_ledger(pods));
    println!("in a ledger of usage    {} bytes a pod, where that is on", counted / pods);
    let control = held_by(|| (0..CONTROL_PODS).map(|number| decode(pod(number))).collect::<Vec<Pod>>());
    let (per_pod, control_per_pod) = (index / pods, control / CONTROL_PODS);
    println!("pods in the index       {pods}, in {QUEUES} queues and {NAMESPACES} namespaces");
    println!("index                   {per_pod} bytes a pod (goal: at most {GOAL}), {} MiB", index >> 20);
    println!(
        "control: whole pods     {control_per_pod} bytes a pod, decoded from the same {} bytes of JSON",
        json_size()
    );
    println!("ratio                   1 : {}", control_per_pod / per_pod.max(1));
    assert!(!measured || per_pod <= GOAL, "{per_pod} bytes a pod are more than the goal of {GOAL}");
}

/// An index of pods in groups of `size` pods. Some schedulers make a group for each pod: `size` 1.
fn in_groups(pods: usize, size: usize) -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    for number in 0..pods {
        let name = format!("pg-training-run-{:06}-7c9d5f8b6b", number / size);
        let namespace = format!("team-namespace-{}", number / size % NAMESPACES);
        let mut pod = decode::<projection::Pod>(pod(number));
        pod.metadata.namespace = Some(namespace.clone());
        pod.metadata.annotations = Some([("pod-group-name".to_owned(), name.clone())].into());
        index.apply_pod(&pod);
        if number % size == 0 {
            let group = json!({
                "metadata": {
                    "name": name, "namespace": namespace, "resourceVersion": number.to_string(),
                    "uid": format!("{number:08x}-bbbb-4def-8123-456789abcdef"),
                    "annotations": {"kai.scheduler/last-start-timestamp": "2026-01-02T03:04:06Z"},
                },
                "spec": {"queue": "queue", "minMember": size},
            });
            index.apply_group(PodGroupKind::Runai, &decode(group));
        }
    }
    assert_eq!(index.gangs().filter(|gang| gang.start.is_some()).count(), pods / size);
    assert_eq!((index.new_stampings(Timestamp::MAX), index.next_expiry()), (vec![], None));
    index
}

/// An index of groups with as many subgroups, of the longest names, as etcd takes.
fn large_groups() -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    for group in 0..LARGE_GROUPS {
        let subgroups: Vec<Value> =
            (0..5_900).map(|number| json!({"name": format!("{group:0>126}-{number:0>126}")})).collect();
        let group = json!({
            "metadata": {"name": format!("g-{group}"), "namespace": "ns", "uid": group.to_string()},
            "spec": {"queue": "queue", "subGroups": subgroups},
        });
        index.apply_group(PodGroupKind::Runai, &decode(group));
    }
    index
}

/// A ledger in which each pod runs.
fn in_ledger(pods: usize) -> UsageLedger {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    let mut ledger = UsageLedger::new(["nvidia.com/gpu".to_owned()].into(), Timestamp::MIN);
    ledger.begin_list();
    for number in 0..pods {
        let (pod, requests, stopped) = decode::<PodWithRoom>(pod(number)).split_run();
        let uid = Uid::of(pod.metadata.uid.as_deref().unwrap_or_default());
        let run = PodRun::of(&pod, stopped);
        let seen = SeenRun { uid, version: number.to_string(), run, requests, claims: Vec::new() };
        ledger.list(&seen, Timestamp::MAX, || index.run_place(&pod));
    }
    ledger.end_list(pods.to_string(), Timestamp::MAX);
    assert_eq!(ledger.live(), pods);
    ledger
}

fn held_by<T>(make: impl FnOnce() -> T) -> usize {
    let before = HELD.load(Relaxed);
    let value = make();
    let held = HELD.load(Relaxed) - before;
    drop(black_box(value));
    held
}

fn decode<T: DeserializeOwned>(pod: Value) -> T {
    serde_json::from_value(pod).unwrap_or_else(|error| panic!("no pod: {error}"))
}

fn json_size() -> usize {
    pod(0).to_string().len()
}

/// A pod as a Deployment makes it, with what kubelet, scheduler and managers write.
fn pod(number: usize) -> Value {
    let owner = number / PODS_PER_OWNER;
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z"});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let managed: Value =
        (0..40).map(|field| (format!("f:field-{field}"), json!({"f:name": {}, ".": {}}))).collect();
    let variable =
        |number: usize| json!({"name": format!("VARIABLE_{number}"), "value": "a value of some length"});
    let environment: Vec<Value> = (0..20).map(variable).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("training-run-{owner:06}-7c9d5f8b6b-{number:06}"),
            "namespace": format!("team-namespace-{}", owner % NAMESPACES),
            "uid": format!("{number:08x}-89ab-4def-8123-456789abcdef"),
            "resourceVersion": number.to_string(),
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {
                "app.kubernetes.io/name": "training",
                "pod-template-hash": "7c9d5f8b6b",
                "scheduler.tensorstack.dev/queue": format!("queue-{}", owner % QUEUES),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("training-run-{owner:06}-7c9d5f8b6b"),
                "uid": format!("{owner:08x}-aaaa-4def-8123-456789abcdef"), "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": managed, "f:spec": managed},
            }],
        },
        "spec": {
            "priority": 0,
            "schedulerName": "t9k-scheduler",
            "nodeName": format!("node-{}", number % 5_000),
            "containers": [{
                "name": "training", "image": "registry.example.com/training:1.2.3", "env": environment,
                "resources": {"requests": {"cpu": "1", "memory": "100Mi", "nvidia.com/gpu": "1"}},
            }],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": conditions,
        },
    })
}
